"""A server whose users come with signed tokens (JWTs) of one or more authorization servers.

export ISSUER=https://login.example.com JWKS=https://login.example.com/jwks.json
export AUDIENCE=https://tasks.example.com/mcp
export REQUEST_STATE_KEY=$(python -c "import secrets; print(secrets.token_hex(32))")
python examples/jwt_tokens.py --store sqlite:///tokens.db
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import RequestStateSecurity
from pydantic import AnyHttpUrl

from perdure import Tasks, serve

logger = logging.getLogger(__name__)

# Only algorithms with a public key. One with a shared secret (HS256) would let whoever has a published key sign by it.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
CLAIMS = ["iss", "sub", "aud", "exp"]  # what every token has to have; and a client, see `Issuer`
LEEWAY = 10  # seconds by which clocks may differ
FRESH = 300  # seconds after which an issuer's keys are fetched again, so that one that was withdrawn is forgotten
STALE = 3600  # seconds after which they are forgotten even if the issuer can't be reached
PAUSE = 10  # seconds between two fetches: anybody can name keys that there are none of


class Keys:
    """The public keys of one issuer, by their ids."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._lock = asyncio.Lock()

    async def get(self, key_id: str) -> jwt.PyJWK | None:
        # While one fetches them anew, the others go on with the keys that they know.
        if key_id not in self._keys or (self._age() >= FRESH and not self._lock.locked()):
            async with self._lock:
                if self._has_to_fetch(key_id):
                    await self._fetch()
        return self._keys.get(key_id) if self._age() < STALE else None

    def _age(self) -> float:
        return time.monotonic() - self._fetched

    def _has_to_fetch(self, key_id: str) -> bool:
        wanted = key_id not in self._keys or self._age() >= FRESH
        return wanted and time.monotonic() - self._tried >= PAUSE

    async def _fetch(self) -> None:
        try:
            async with httpx2.AsyncClient(timeout=5) as http:
                response = await http.get(self._url)
            found = jwt.PyJWKSet(response.raise_for_status().json()["keys"])
        except (httpx2.HTTPError, LookupError, TypeError, ValueError, jwt.PyJWTError) as error:
            logger.warning("the keys at %s can't be had: %r", self._url, error)
        else:
            self._keys = {key.key_id: key for key in found if key.key_id and key.algorithm_name in ALGORITHMS}
            self._fetched = time.monotonic()
        self._tried = time.monotonic()


@dataclass(frozen=True)
class Issuer:
    """An authorization server: its name in tokens, where its keys are, and which claim names the client."""

    url: str
    jwks: str
    client_claim: str = "client_id"  # others say azp, appid or cid


class SignedTokens(TokenVerifier):
    """Takes tokens that one of the `issuers` signed, for this server (`audience`), and that have not expired."""

    def __init__(self, issuers: Iterable[Issuer], audience: str) -> None:
        self._audience = audience
        self._issuers: Mapping[str, tuple[Issuer, Keys]] = {each.url: (each, Keys(each.jwks)) for each in issuers}

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            return await self._verified(token)
        except (jwt.PyJWTError, RecursionError) as error:  # the latter: JSON that nests too deep, for older PyJWT
            logger.debug("a token is refused: %s", error)
            return None

    async def _verified(self, token: str) -> AccessToken | None:
        # Nothing in a token is to be believed before its signature was checked. What it says here only decides by which
        # issuer's keys, and no others, that is done.
        unverified = jwt.decode_complete(token, options={"verify_signature": False})
        issuer, keys = self._issuers.get(str(unverified["payload"].get("iss")), (None, None))
        if issuer is None or keys is None:
            return None
        key = await keys.get(str(unverified["header"].get("kid")))
        if key is None:
            return None
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],  # the key's own, whatever the token says
            issuer=issuer.url,
            audience=self._audience,
            leeway=LEEWAY,
            options={"require": [*CLAIMS, issuer.client_claim]},
        )
        return self._access(token, claims, issuer)

    def _access(self, token: str, claims: dict[str, Any], issuer: Issuer) -> AccessToken:
        return AccessToken(
            token=token,
            # These three are whose the tasks are: a verifier that leaves the subject or the issuer out makes all users
            # of a client, or users of different issuers, one owner.
            client_id=str(claims[issuer.client_claim]),
            subject=claims["sub"],
            claims=claims,  # with `iss`, and with what `tenant_claim` names
            scopes=str(claims.get("scope", "")).split(),
            expires_at=int(claims["exp"]) + LEEWAY,  # streams end by then
            resource=self._audience,
        )


AUDIENCE = os.environ["AUDIENCE"]

tasks = Tasks("sqlite:///tokens.db", tenant_claim="org")
mcp = tasks.server(
    "signed",
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(os.environ["ISSUER"]),
        resource_server_url=AnyHttpUrl(AUDIENCE),
        validate_token_resource=True,
    ),
    token_verifier=SignedTokens([Issuer(os.environ["ISSUER"], os.environ["JWKS"])], AUDIENCE),
    request_state_security=RequestStateSecurity(keys=[os.environ["REQUEST_STATE_KEY"]]),
)


@tasks.tool()
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
