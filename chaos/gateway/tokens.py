"""The verifier of the gateways: a token is the name of an owner."""

from mcp.server.auth.provider import AccessToken

__all__ = ["OWNERS", "Verifier"]

OWNERS = ("ada", "bea", "cyd", "dan")


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in OWNERS:
            return None
        claims = {"iss": "https://login.example"}
        return AccessToken(token=token, client_id="chaos", scopes=["tools"], subject=token, claims=claims)
