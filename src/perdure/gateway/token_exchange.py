"""A client's token for one that is good at a backend: OAuth 2.0 Token Exchange (RFC 8693).

What an authorization server gave is kept until shortly before it expires, for each client's token, and never longer
than that token lasts itself. While one exchange is under way, others for the same token wait for it. What was refused
is remembered for a moment, so that a client that keeps coming with it is not the authorization server's trouble too.

The tokens of clients are keys of the cache as digests only. Those that were got are in memory as they are.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

import anyio
import httpx2
from mcp.server.auth.provider import AccessToken

from perdure.domain.errors import ConfigurationError
from perdure.domain.hosts import is_this_machine
from perdure.domain.model import JSONObject, Owner
from perdure.wire.refusals import Seldom

from .faults import BackendTimeout, Fault, IdentityRefused, IdentityUnavailable
from .rawjson import NotJSON, decode
from .urls import callable_url

__all__ = ["ExchangeTerms", "TokenExchange"]

logger = logging.getLogger(__name__)

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name
_TAKEN: Final = frozenset({_ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt"})
_CLIENTS_FAULT: Final = frozenset(
    {"invalid_grant", "invalid_request", "invalid_target", "invalid_scope", "access_denied"}
)
"""Errors that are about the token that was to be exchanged; by all others the gateway is not set up as it should be."""

_BODY: Final = 64 * 1024
"""Bytes of an answer."""
_PATIENCE: Final = 10.0
"""Seconds for one exchange."""
_POOL: Final = 20
_KEPT: Final = 10_000
"""Tokens, and refusals, that are kept."""
_UNSAID: Final = 60.0
"""Seconds that a token is kept whose answer does not say how long it lasts."""
_MARGIN: Final = 30.0
"""Seconds before its end at which a token is replaced, or a fifth of its life, if that is less."""
_LONGEST: Final = 86_400.0
"""Seconds that a token is kept at most, whatever the answer says."""
_REFUSED: Final = 5.0
"""Seconds that a refusal is remembered."""


@dataclass(frozen=True, slots=True)
class ExchangeTerms:
    """How tokens for one backend are got.

    Args:
        endpoint: the authorization server's token endpoint; https, or on this machine.
        client_id: of the gateway there.
        client_secret: likewise; sent as HTTP Basic.
        audience: the backend's name there, if it is asked for by name.
        resource: the backend's URL, if it is asked for by that (RFC 8707).
        scope: what to ask for, if it is not all that the client's token has.
    """

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    audience: str | None = None
    resource: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    token: str = field(repr=False)
    fault: IdentityRefused | None = None


class _Flight:
    """One exchange that is under way. Without an outcome, who made it went away, and somebody else has to."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.token: str | None = None
        self.fault: Fault | None = None


class TokenExchange:
    """Passes who asks on to one backend, by a token of its own. It is closed by `aclose`.

    `now`: seconds since the epoch, by which tokens expire.

    Raises:
        ConfigurationError: the endpoint is none that a secret can be sent to, or nothing says who tokens are for.
    """

    def __init__(self, backend: str, exchange: ExchangeTerms, *, now: Callable[[], float] = time.time) -> None:
        self._backend = backend
        self._now = now
        self._url = _checked(backend, exchange)
        self._headers = _credentials(exchange)
        self._asked = _parameters(exchange)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self._seldom = Seldom()
        # None is kept: what comes in one piece with an answer is to httpx2 the next one, which is another user's token.
        limits = httpx2.Limits(max_connections=_POOL, max_keepalive_connections=0)
        self._pool = httpx2.AsyncHTTPTransport(limits=limits, verify=self._url.scheme == "https")

    async def aclose(self) -> None:
        """Close its connections."""
        await self._pool.aclose()

    async def headers(self, owner: Owner, token: AccessToken | None, until: float = math.inf) -> Mapping[str, str]:
        if token is None:
            raise IdentityRefused(self._backend, "the request came without a token")
        with anyio.CancelScope(deadline=until):
            return {"authorization": f"Bearer {await self._exchanged(token)}"}
        raise BackendTimeout(self._backend, begun=False, counts=False)

    async def _exchanged(self, token: AccessToken) -> str:
        name = hashlib.sha256(token.token.encode()).digest()
        while True:
            if (kept := self._look_up(name)) is not None:
                return _outcome(kept.token, kept.fault)
            flight = self._flights.get(name)
            if flight is None:
                return await self._fly(name, token)
            await flight.over.wait()
            if flight.token is not None or flight.fault is not None:
                return _outcome(flight.token, flight.fault)

    def _look_up(self, name: bytes) -> _Kept | None:
        kept = self._kept.get(name)
        if kept is None:
            return None
        if kept.until <= self._now():
            del self._kept[name]
            return None
        self._kept.move_to_end(name)
        return kept

    async def _fly(self, name: bytes, token: AccessToken) -> str:
        flight = self._flights[name] = _Flight()
        try:
            flight.token, life = await self._ask(token.token)
            self._keep(name, _Kept(self._until(life, token), flight.token))
        except Fault as fault:
            flight.fault = fault
            if isinstance(fault, IdentityRefused):
                self._keep(name, _Kept(self._now() + _REFUSED, "", fault))
        finally:
            del self._flights[name]
            flight.over.set()
        return _outcome(flight.token, flight.fault)

    def _keep(self, name: bytes, kept: _Kept) -> None:
        self._kept[name] = kept
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _until(self, life: float, token: AccessToken) -> float:
        now = self._now()
        ends = now + life if token.expires_at is None else min(now + life, token.expires_at)
        return ends - min(_MARGIN, (ends - now) / 5)

    async def _ask(self, token: str) -> tuple[str, float]:
        """The token that `token` is good for, and the seconds that it lasts."""
        body = urlencode({**self._asked, "subject_token": token}).encode()
        try:
            with anyio.fail_after(_PATIENCE):
                status, data = await self._post(body)
            answer = decode(data)
        except (httpx2.TransportError, TimeoutError, NotJSON) as error:
            raise self._unavailable(type(error).__name__) from error
        if status != 200:
            raise self._refused(status, answer)
        return self._read(answer)

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        timeout = {"connect": _PATIENCE, "read": _PATIENCE, "write": _PATIENCE, "pool": _PATIENCE}
        request = httpx2.Request(
            "POST", self._url, headers=self._headers, content=body, extensions={"timeout": timeout}
        )
        response = await self._pool.handle_async_request(request)
        data = bytearray()
        chunks = response.aiter_raw()
        try:
            async for chunk in chunks:
                data += chunk
                if len(data) > _BODY:
                    raise NotJSON("it is too large")
        finally:
            with anyio.move_on_after(1, shield=True):
                await chunks.aclose()
                await response.aclose()
        return response.status_code, bytes(data)

    def _read(self, answer: JSONObject) -> tuple[str, float]:
        token, kind = answer.get("access_token"), answer.get("token_type")
        issued, life = answer.get("issued_token_type", _ACCESS_TOKEN), answer.get("expires_in", _UNSAID)
        if not (isinstance(token, str) and token.isascii() and token.isprintable() and token and " " not in token):
            raise self._unavailable("there is no token in its answer")
        if not isinstance(kind, str) or kind.lower() != "bearer" or not (isinstance(issued, str) and issued in _TAKEN):
            raise self._unavailable("the token that it gives is of another type")
        if isinstance(life, bool) or not isinstance(life, int | float) or not 0 < life < math.inf:
            raise self._unavailable("its answer does not say how long the token lasts")
        return token, min(life, _LONGEST)

    def _refused(self, status: int, answer: JSONObject) -> Fault:
        said = answer.get("error")
        error = said if isinstance(said, str) else ""
        if 400 <= status < 500 and error in _CLIENTS_FAULT:
            return IdentityRefused(self._backend, "the access token can't be exchanged for one that is")
        known = error if error.isascii() and error.isidentifier() else "no error of OAuth"
        return self._unavailable(f"HTTP status {status}, {known[:40]}")

    def _unavailable(self, why: str) -> IdentityUnavailable:
        if (more := self._seldom.due(why)) is not None:
            logger.warning("no token for the backend %s is to be had: %s%s", self._backend, why, more)
        return IdentityUnavailable(self._backend)


def _outcome(token: str | None, fault: Fault | None) -> str:
    if fault is not None:
        raise fault.again()
    return token or ""


def _credentials(exchange: ExchangeTerms) -> dict[str, str]:
    # Both are form-encoded before they are joined (RFC 6749, 2.3.1).
    pair = f"{quote(exchange.client_id, safe='')}:{quote(exchange.client_secret, safe='')}"
    return {
        "authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "content-type": "application/x-www-form-urlencoded",
        "accept": "application/json",
        "accept-encoding": "identity",
    }


def _parameters(exchange: ExchangeTerms) -> dict[str, str]:
    wanted: dict[str, Any] = {"audience": exchange.audience, "resource": exchange.resource, "scope": exchange.scope}
    return {
        "grant_type": _GRANT,
        "subject_token_type": _ACCESS_TOKEN,
        "requested_token_type": _ACCESS_TOKEN,
        **{name: value for name, value in wanted.items() if value is not None},
    }


def _checked(backend: str, exchange: ExchangeTerms) -> httpx2.URL:
    if exchange.audience is None and exchange.resource is None:
        raise ConfigurationError(f"The token exchange for the backend {backend} needs an audience or a resource")
    url = callable_url(exchange.endpoint)
    if url is None or not (url.scheme == "https" or is_this_machine(url.host)):
        raise ConfigurationError(f"The token endpoint for the backend {backend} has to be an https:// URL")
    return url
