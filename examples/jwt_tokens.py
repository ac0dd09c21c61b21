"""Signed tokens (JWTs) of one or more authorization servers, for the servers beside this file.

export ISSUER=https://login.example.com JWKS=https://login.example.com/jwks.json
export AUDIENCE=https://tasks.example.com/mcp
export REQUEST_STATE_KEY=$(python -c "import secrets; print(secrets.token_hex(32))")
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import RequestStateSecurity
from pydantic import AnyHttpUrl
from starlette.exceptions import HTTPException

logger = logging.getLogger(__name__)

# Only algorithms with a public key. One with a shared secret (HS256) would let whoever has a published key sign by it.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
CLAIMS = ["iss", "sub", "aud", "exp"]  # what every token has to have; and a client, see `Issuer`
LEEWAY = 10  # seconds by which clocks may differ
FRESH = 300  # seconds after which an issuer's keys are fetched again, so that one that was withdrawn is forgotten
STALE = 3600  # seconds after which they are forgotten even if the issuer can't be reached
PAUSE = 10  # seconds between two fetches: anybody can name keys that there are none of
EVERY = 60  # seconds between two lines in the log about tokens that were refused for one reason


class Keys:
    """The public keys of one issuer, by their ids."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._away = False
        self._lock = asyncio.Lock()

    async def get(self, key_id: str) -> jwt.PyJWK | None:
        # While one fetches them anew, the others go on with the keys that they know, if those are still good.
        known = key_id in self._keys and self._age() < STALE
        if not known or (self._age() >= FRESH and not self._lock.locked()):
            async with self._lock:
                if self._has_to_fetch(key_id):
                    await self._fetch()
        key = self._keys.get(key_id) if self._age() < STALE else None
        if key is None and self._away:
            # It may be a good one, and 401 would have the client throw it away.
            raise HTTPException(503, "The keys of the token's issuer can't be had", {"Retry-After": f"{PAUSE}"})
        return key

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
            self._away = True
        else:
            self._away = False
            self._keys = {key.key_id: key for key in found if key.key_id and key.algorithm_name in ALGORITHMS}
            self._fetched = time.monotonic()
        self._tried = time.monotonic()


@dataclass(frozen=True)
class Issuer:
    """An authorization server: its name in tokens, where its keys are, and which claim names the client."""

    url: str
    jwks: str
    client_claim: str = "client_id"  # others say azp, appid or cid


class Reasons:
    """Why tokens were refused, for whoever runs the server; clients hear none. Of each kind a line a minute."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._unsaid = Counter[str]()

    def note(self, error: Exception) -> None:
        kind, now = type(error).__name__, time.monotonic()
        self._unsaid[kind] += 1
        if now - self._said.get(kind, float("-inf")) >= EVERY:
            self._said[kind] = now
            logger.info(
                "a token was refused: %s: %.300s (%d since the last such line)", kind, error, self._unsaid.pop(kind)
            )


class SignedTokens(TokenVerifier):
    """Takes tokens that one of the `issuers` signed, for this server (`audience`), and that have not expired."""

    def __init__(self, issuers: Iterable[Issuer], audience: str) -> None:
        self._audience = audience
        self._reasons = Reasons()
        self._issuers: Mapping[str, tuple[Issuer, Keys]] = {each.url: (each, Keys(each.jwks)) for each in issuers}

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            return await self._verified(token)
        except (jwt.PyJWTError, RecursionError) as error:  # the latter: JSON that nests too deep, for older PyJWT
            self._reasons.note(error)
            return None

    async def _verified(self, token: str) -> AccessToken:
        # Nothing in a token is to be believed before its signature was checked. What it says here only decides by which
        # issuer's keys, and no others, that is done.
        unverified = jwt.decode_complete(token, options={"verify_signature": False})
        name = str(unverified["payload"].get("iss"))
        issuer, keys = self._issuers.get(name, (None, None))
        if issuer is None or keys is None:
            raise jwt.InvalidIssuerError(f"{name[:100]!r} is none of {[*self._issuers]}")
        key = await keys.get(str(unverified["header"].get("kid")))
        if key is None:
            raise jwt.InvalidKeyError(f"{issuer.url} has no such key")
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
        for name in ("sub", issuer.client_claim):
            if not isinstance(claims[name], str) or not claims[name].strip():
                raise jwt.InvalidTokenError(f"the claim {name!r} names nobody")
        return AccessToken(
            token=token,
            # These three are whose the tasks are: a verifier that leaves the subject or the issuer out makes all users
            # of a client, or users of different issuers, one owner.
            client_id=claims[issuer.client_claim],
            subject=claims["sub"],
            claims=claims,  # with `iss`, and with what `tenant_claim` names
            scopes=str(claims.get("scope", "")).split(),
            expires_at=int(claims["exp"]) + LEEWAY,  # streams end by then
            resource=self._audience,
        )


def verifier() -> SignedTokens:
    """What checks the tokens, as the environment says; a gateway's file may name it."""
    return SignedTokens([Issuer(needed("ISSUER"), needed("JWKS"))], needed("AUDIENCE"))


def options() -> dict[str, Any]:
    """What `tasks.server` takes for all of this."""
    return {
        "token_verifier": verifier(),
        "auth": AuthSettings(
            issuer_url=AnyHttpUrl(needed("ISSUER")),
            resource_server_url=AnyHttpUrl(needed("AUDIENCE")),
            validate_token_resource=True,  # without it, tokens that are for other servers are the verifier's to refuse
        ),
        "request_state_security": RequestStateSecurity(keys=[needed("REQUEST_STATE_KEY")]),
    }


def needed(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SystemExit(f"{name} is not in the environment: the beginning of jwt_tokens.py says what has to be there")
    return value
