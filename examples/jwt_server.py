"""A server whose users come with signed tokens. What the environment has to hold is said in jwt_tokens.py.

python examples/jwt_server.py --store sqlite:///tokens.db
"""

import jwt_tokens

from perdure import Tasks, serve

tasks = Tasks("sqlite:///tokens.db", tenant_claim="org")
mcp = tasks.server("signed", **jwt_tokens.options())


@tasks.tool(ttl="1d")
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
