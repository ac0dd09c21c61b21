"""One user is one owner, whichever client they use: `identify=` says whose a request is, in place of the default.

Tokens, and what the environment has to hold, are those of jwt_tokens.py.
"""

import json
import os

from jwt_tokens import AUDIENCE, Issuer, SignedTokens
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from pydantic import AnyHttpUrl

from perdure import Owner, Tasks, serve


def by_user(ctx: ServerRequestContext) -> Owner:
    """The user, within an organization. Called on every request for a task, so it looks nothing up."""
    token = get_access_token()
    if token is None:
        return Owner("", "local")  # over stdio: whoever started the server
    claims = token.claims or {}
    organization = claims.get("org")
    if token.subject is None or not isinstance(organization, str):
        raise MCPError(INVALID_REQUEST, "The access token names no user of an organization")
    # The issuer too: another one may give the same name to somebody else. As JSON, so that no two pairs are one text.
    return Owner(organization, json.dumps([claims["iss"], token.subject]))


tasks = Tasks("sqlite:///shared.db", identify=by_user)
mcp = tasks.server(
    "shared",
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(os.environ["ISSUER"]),
        resource_server_url=AnyHttpUrl(AUDIENCE),
        validate_token_resource=True,
    ),
    token_verifier=SignedTokens([Issuer(os.environ["ISSUER"], os.environ["JWKS"])], AUDIENCE),
)


@tasks.tool()
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
