"""A server behind a gateway, whose word it takes for whose a request is.

export SUMS_SECRET=$(python -c "import secrets; print(secrets.token_hex(32))")
python examples/behind.py --port 8001
"""

import os

from perdure import Tasks, serve
from perdure.gateway.identity import Key, signed_identity

# To change the secret without a pause, let this server know both of them before the gateway signs by the new one.
keys = [Key.shared("k1", os.environ["SUMS_SECRET"].encode())]
tasks = Tasks("sqlite:///behind.db", identify=signed_identity(audience="sums", issuer="front", keys=keys))
mcp = tasks.server("behind")


@tasks.tool(ttl="1d")
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
