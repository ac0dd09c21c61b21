"""A verifier that knows a few tokens: each is the name of whom it is for."""

from mcp.server.auth.provider import AccessToken

AUTH = """
[auth]
verifier = "tests.gateway.tokens:Verifier"
issuer = "https://login.example"
resource = "https://front.example/mcp"
scopes = ["tools"]
"""
"""What a gateway's file says to have them checked by it."""

KNOWN = frozenset({"ada", "eve"})


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in KNOWN:
            return None
        claims = {"iss": "https://login.example", "aud": "https://two.example"}
        return AccessToken(token=token, client_id="app", scopes=["tools"], subject=token, claims=claims)
