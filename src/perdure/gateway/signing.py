"""Who asks, in a header that the gateway signs and a backend verifies: both ends of it.

It is a JWT that is good for a minute, for one backend, and says whose request it is exactly as the gateway has it:
tenant and principal of the owner. So a server that had authenticated its users by itself, and goes behind a gateway
that tells them apart by the same rule (`perdure.wire.identity.by_token`), still knows them by the same names, and their
tasks remain theirs. Issuer, client and subject go along by themselves, for servers that know nothing of Perdure's
owners.

Keys are shared secrets (HS256) or Ed25519 pairs (EdDSA), of which a backend gets the public half. The first of the
gateway's signs; a backend takes any that it has, so a key is changed by giving the new one to the backends first. Which
algorithm counts is a matter of the key, never of the token. The token's type is its own, so that none that somebody
else signs by the same key for another purpose is taken for one.

The header proves who asks to whoever trusts the gateway, and to nobody else. It does not replace TLS: whoever reads it
on the way can use it for a minute.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import Owner
from perdure.wire.identity import Identify
from perdure.wire.models import RequestContext
from perdure.wire.refusals import Seldom

__all__ = ["HEADER", "Key", "SignedHeader", "Unverified", "signed_identity", "verified"]

logger = logging.getLogger(__name__)

HEADER: Final = "perdure-identity"
"""The name of the header, in lower case."""

_TYPE: Final = "perdure-identity+jwt"
_LIFE: Final = 60
_LONGEST: Final = 300
"""Seconds that one may be good for, whatever it says."""
_LEEWAY: Final = 10
"""Seconds by which clocks may differ."""
_MOST: Final = 12_000
"""Characters of one. An owner's names take 1,500 bytes, as JSON up to three times that, and base64 adds a third."""
_SHORTEST_SECRET: Final = 32
"""Bytes: what the hash gives (RFC 7518, 3.2)."""
_NEEDED: Final = ["iss", "aud", "sub", "iat", "exp", "tenant"]


class Unverified(Exception):
    """The header is not one that a trusted gateway has signed for us, just now. The text is for the log."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and the name that tells which one was used. Made by one of the three functions."""

    id: str
    algorithm: Literal["HS256", "EdDSA"]
    material: bytes | Ed25519PrivateKey | Ed25519PublicKey = field(repr=False)

    @classmethod
    def shared(cls, id: str, secret: bytes) -> Key:
        """A secret that the gateway and a backend share: at least 32 random bytes.

        Raises:
            ConfigurationError: it is too short.
        """
        if len(secret) < _SHORTEST_SECRET:
            raise ConfigurationError(f"The key {id!r} has less than {_SHORTEST_SECRET} bytes")
        return cls(id, "HS256", secret)

    @classmethod
    def private(cls, id: str, pem: bytes) -> Key:
        """The half of an Ed25519 pair that signs, as PEM.

        Raises:
            ConfigurationError: it is none.
        """
        return cls(id, "EdDSA", _loaded(id, pem, load_private=True))

    @classmethod
    def public(cls, id: str, pem: bytes) -> Key:
        """The half that verifies, as PEM.

        Raises:
            ConfigurationError: it is none.
        """
        return cls(id, "EdDSA", _loaded(id, pem, load_private=False))

    @property
    def signs(self) -> bool:
        """Whether it is one to sign by."""
        return not isinstance(self.material, Ed25519PublicKey)

    @property
    def verifying(self) -> bytes | Ed25519PublicKey:
        """What a signature is held against."""
        return self.material.public_key() if isinstance(self.material, Ed25519PrivateKey) else self.material


class SignedHeader:
    """Tells one backend who asks.

    Args:
        audience: the backend, as it knows itself.
        issuer: the gateway, as its backends know it.
        keys: the first one signs; the others are on their way in or out.
        life: seconds that a header is good for; 300 at most.
        now: seconds since the epoch.

    Raises:
        ConfigurationError: there is no key to sign by.
    """

    def __init__(
        self,
        audience: str,
        *,
        issuer: str,
        keys: Sequence[Key],
        life: int = _LIFE,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not keys or not keys[0].signs:
            raise ConfigurationError(f"The first key for the backend {audience} has to be one that signs")
        if not 1 <= life <= _LONGEST:
            raise ConfigurationError(f"A signed header is good for 1 to {_LONGEST} seconds")
        self._audience = audience
        self._issuer = issuer
        self._key = keys[0]
        self._life = life
        self._now = now

    async def headers(self, owner: Owner, token: AccessToken | None, until: float = math.inf) -> Mapping[str, str]:
        now = int(self._now())
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": owner.principal,
            "tenant": owner.tenant,
            "iat": now,
            "exp": now + self._life,
        }
        if token is not None:
            client, issuer, subject = principal_components(token)
            claims["client"] = {"issuer": issuer, "client": client, "subject": subject}
        key = self._key
        signed = jwt.encode(claims, cast("Any", key.material), key.algorithm, headers={"kid": key.id, "typ": _TYPE})
        return {HEADER: signed}

    async def aclose(self) -> None:
        pass


def signed_identity(
    *, audience: str, issuer: str, keys: Sequence[Key], now: Callable[[], float] = time.time
) -> Identify:
    """For a backend: `Tasks(identify=signed_identity(…))` takes a gateway's word for whose a request is.

    A request without the header, with two of them, or with one that is not good, is refused with -32600. Which it was
    is in the log, of each kind a line a minute.

    Args:
        audience: this server, as the gateway's configuration names it.
        issuer: the gateway.
        keys: that are taken: shared secrets, or the public halves.
        now: seconds since the epoch.

    Raises:
        ConfigurationError: there is no key, or two have one name.
    """
    by_id = {key.id: key for key in keys}
    if not by_id or len(by_id) != len(keys):
        raise ConfigurationError("signed_identity needs keys, each by a name of its own")
    seldom = Seldom()

    def identify(ctx: RequestContext) -> Owner:
        try:
            claims = verified(_only(ctx), audience=audience, issuer=issuer, keys=by_id, now=now())
        except Unverified as error:
            if (more := seldom.due(str(error))) is not None:
                logger.info("a signed identity was refused: %s%s", error, more)
            raise MCPError(INVALID_REQUEST, "The request does not say whose it is") from None
        return Owner(claims["tenant"], claims["sub"])

    return identify


def verified(text: str, *, audience: str, issuer: str, keys: Mapping[str, Key], now: float) -> Mapping[str, Any]:
    """The claims of a header: `tenant` and `sub` are texts.

    Raises:
        Unverified: it is not good.
    """
    if len(text) > _MOST:
        raise Unverified("it is too long")
    try:
        head = jwt.get_unverified_header(text)
        named: object = head.get("kid")
        key = keys.get(named) if isinstance(named, str) else None
        if key is None or head.get("typ") != _TYPE:
            raise Unverified("it is signed by a key that is not known, or is something else")
        claims = _decoded(text, key, audience, issuer)
    except (jwt.PyJWTError, RecursionError) as error:  # the latter: JSON that nests too deep
        raise Unverified(type(error).__name__) from error
    _check_times(claims, now)
    if not (isinstance(claims["tenant"], str) and isinstance(claims["sub"], str)):
        raise Unverified("it names nobody")
    return claims


def _decoded(text: str, key: Key, audience: str, issuer: str) -> dict[str, Any]:
    return jwt.decode(
        text,
        cast("Any", key.verifying),
        algorithms=[key.algorithm],
        audience=audience,
        issuer=issuer,
        # The times are judged below, by a clock that is given. One audience: who has several is for several to use.
        options={"require": _NEEDED, "strict_aud": True, "verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    since, until = claims["iat"], claims["exp"]
    if type(since) is not int or type(until) is not int or not 0 < until - since <= _LONGEST:
        raise Unverified("its times are none, or it is good for too long")
    if since > now + _LEEWAY:
        raise Unverified("it is of a time to come")
    if until <= now - _LEEWAY:
        raise Unverified("it has expired")


def _only(ctx: RequestContext) -> str:
    request: Any = ctx.request
    values: list[str] = [] if request is None else request.headers.getlist(HEADER)
    if len(values) != 1:
        raise Unverified("there is none" if not values else "there are several")
    return values[0]


def _loaded(id: str, pem: bytes, *, load_private: bool) -> Ed25519PrivateKey | Ed25519PublicKey:
    try:
        key = load_pem_private_key(pem, None) if load_private else load_pem_public_key(pem)
    except (ValueError, TypeError):  # the latter: it is protected by a password
        key = None
    if not isinstance(key, Ed25519PrivateKey | Ed25519PublicKey):
        raise ConfigurationError(f"The key {id!r} is no Ed25519 key in PEM, or needs a password")
    return key
