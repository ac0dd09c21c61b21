"""A server with authentication, whose questions can be answered after a restart and to any of its processes.

export REQUEST_STATE_KEY=$(python -c "import secrets; print(secrets.token_hex(32))")
export TOKENS='{"a-long-secret": {"client_id": "cli", "scopes": [], "subject": "ann", "claims": {"org": "acme"},
    "resource": "https://tasks.example.com/mcp"}}'
python examples/secured.py --store sqlite:///secured.db
"""

import json
import os

from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import RequestStateSecurity
from pydantic import AnyHttpUrl

from perdure import Tasks, serve


class KnownTokens(TokenVerifier):
    """Looks tokens up in a list. Yours asks the authorization server, or checks a signature."""

    def __init__(self, known: dict[str, dict[str, object]]) -> None:
        self._known = known

    async def verify_token(self, token: str) -> AccessToken | None:
        details = self._known.get(token)
        return None if details is None else AccessToken.model_validate({**details, "token": token})


tasks = Tasks("sqlite:///secured.db", tenant_claim="org")
mcp = tasks.server(
    "secured",
    auth=AuthSettings(
        issuer_url=AnyHttpUrl("https://login.example.com"),
        resource_server_url=AnyHttpUrl("https://tasks.example.com/mcp"),
        validate_token_resource=True,
    ),
    token_verifier=KnownTokens(json.loads(os.environ["TOKENS"])),
    request_state_security=RequestStateSecurity(keys=[os.environ["REQUEST_STATE_KEY"]]),
)


@tasks.tool(ttl="1d")
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
