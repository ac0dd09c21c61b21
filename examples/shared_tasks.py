"""One user is one owner, whichever client they use: `identify=` says whose a request is, in place of the default.

What the environment has to hold is said in jwt_tokens.py.

python examples/shared_tasks.py --store sqlite:///shared.db
"""

import json

import jwt_tokens
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from perdure import Owner, Tasks, serve


def by_user(ctx: ServerRequestContext) -> Owner:
    """The user, within an organization. Called on every request for a task, so it looks nothing up."""
    token = get_access_token()
    if token is None:
        return Owner("", "local")  # over stdio: whoever started the server
    claims = token.claims or {}
    organization, issuer, user = claims.get("org"), claims.get("iss"), token.subject
    # An empty name would be one that everybody shares who comes without one.
    if not all(isinstance(name, str) and name.strip() for name in (organization, issuer, user)):
        raise MCPError(INVALID_REQUEST, "The access token names no user of an organization")
    # The issuer too: another one may give the same name to somebody else. As JSON, so that no two pairs are one text.
    return Owner(str(organization), json.dumps([issuer, user]))


tasks = Tasks("sqlite:///shared.db", identify=by_user)
mcp = tasks.server("shared", **jwt_tokens.options())


@tasks.tool(ttl="1d")
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
