"""Authorization servers for tests: they sign tokens, publish their keys over HTTP on loopback, and rotate them.

The tokens are real: only what is signed by a published key of the right issuer is worth anything. Each method that
makes a bad one breaks a single thing of a good one.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.wire.support import hosting

__all__ = ["AUDIENCE", "Authority", "authority", "unsigned"]

AUDIENCE: Final = "https://tasks.example/mcp"
"""The server that tokens are for."""
LIFE: Final = 3_600
"""Seconds that a token is good for."""

_numbers: Final = count(1)


class Key:
    """One key pair, and its id."""

    def __init__(self, algorithm: str) -> None:
        self.id = f"key-{next(_numbers)}"
        self.algorithm = algorithm
        self.private: Any = (
            rsa.generate_private_key(public_exponent=65537, key_size=2048)
            if algorithm.startswith(("RS", "PS"))
            else ec.generate_private_key(ec.SECP256R1())
        )

    def published(self) -> dict[str, Any]:
        """As a member of a JWKS."""
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), as_dict=True)
        return {**made, "kid": self.id, "alg": self.algorithm, "use": "sig"}


class Authority:
    """One authorization server. `keys`: what it publishes, the newest last; by that one it signs.

    `asked`: how many times its keys were fetched. `answer`: what is served in place of them, if anything is.
    """

    def __init__(self, issuer: str, algorithm: str) -> None:
        self.issuer = issuer
        self.jwks = ""
        self.keys = [Key(algorithm)]
        self.asked = 0
        self.answer: Callable[[], Response] | None = None
        self._algorithm = algorithm

    def rotate(self, *, withdraw: bool) -> None:
        """Sign by a new key from now on; and no longer publish the old ones, or still."""
        self.keys = [*([] if withdraw else self.keys), Key(self._algorithm)]

    def claims(self, subject: str | None, **others: Any) -> dict[str, Any]:
        """What a good token of that user's says. `others` are put over it; None leaves one out."""
        now = int(time.time())
        all_of_them = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": subject,
            "client_id": "app",
            "iat": now,
            "exp": now + LIFE,
            "scope": "tasks",
        }
        return {name: value for name, value in (all_of_them | others).items() if value is not None}

    def token(self, subject: str | None, *, key: Key | None = None, **others: Any) -> str:
        """A token, signed by the newest key, or by another one."""
        return self.signed(self.claims(subject, **others), key or self.keys[-1])

    def signed(self, claims: Mapping[str, Any], key: Key, **header: Any) -> str:
        return jwt.encode(dict(claims), key.private, key.algorithm, headers={"kid": key.id, "typ": "at+jwt", **header})

    async def endpoint(self, _request: Request) -> Response:
        """Serve the keys."""
        self.asked += 1
        return JSONResponse({"keys": [key.published() for key in self.keys]}) if self.answer is None else self.answer()


@asynccontextmanager
async def authority(issuer: str = "https://id.example", algorithm: str = "ES256") -> AsyncGenerator[Authority]:
    """One that is up; `issuer` is a mere name, as the keys' URL is another one."""
    made = Authority(issuer, algorithm)
    async with hosting(Starlette(routes=[Route("/keys", made.endpoint)])) as (_, url):
        made.jwks = f"{url}/keys"
        yield made


def unsigned(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes = b"") -> str:
    """What no library makes: any header, any claims, any signature."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
