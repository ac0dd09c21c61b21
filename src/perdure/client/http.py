"""Streamable HTTP whose session survives what happens to a connection: a server that restarts, a proxy that hangs up.

In the SDK's transport whatever goes wrong with one request (a refused connection, one that breaks in the middle of a
JSON response, a token that can't be had) ends the whole session, and with it the program that is inside of the client.
A wait for a task takes hours, in which servers are deployed anew and tokens run out. So such an error becomes an answer
here, of a connection -32000 with status 503, which is what a server that has no room says; and whoever sent the request
decides whether to send it again. So it is from the first request on that follows a `server/discover`.

The SDK makes one and the same error of each status above 400 that comes without a JSON-RPC error. Here those that pass
(a proxy's 503) are told from those that do not (401 once a token is past its time): nobody waits for the latter.

A server decides how much it answers, and this how much is taken: a body is counted while it is read, and so is each
event of a stream, by the SDK.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, JSONRPCError
from pydantic import ValidationError

from perdure.domain.names import DISCOVER

from . import tokens
from .faults import NOT_BEGUN, TOO_LARGE, UNREACHABLE

__all__ = ["HTTP"]

logger = logging.getLogger(__name__)

_CONNECT: Final = 30.0
_READ: Final = 300.0
"""Seconds without a byte after which a stream is held to be dead; both are the SDK's own figures."""

_MOST_BYTES: Final = 64 * 2**20
"""The SDK's own figure for an event, 1 MiB, is less than what an ordinary server's tools may return."""

_TOKEN: Final = {
    401: "HTTP status 401: the server wants a token, and this one is missing, wrong or past its time",
    403: "HTTP status 403: the server does not let this token do that",
}
_TOO_MANY: Final = 429
_PASSING: Final = frozenset({_TOO_MANY, 502, 503, 504})
_LEFT_TO_THE_SDK: Final = frozenset({404, 408, 425})
"""404 is also said of a session that is over, which the SDK knows; the others may pass, as it has it."""

_Streams = Any
"""What the SDK's transports yield; its name for that is not public."""


class HTTP(AbstractAsyncContextManager[_Streams]):
    """A transport for `mcp.Client`, in place of the URL: `Client(HTTP(url), extensions=[tasks])`.

    Args:
        url: of the MCP endpoint.
        headers: to send with each request, such as `{"Authorization": "Bearer …"}`.
        auth: as httpx2 takes it; the SDK's OAuth provider, say. What it raises once the client is connected is an error
            of the request that it is for, and not the end of the session.
        verify: False to accept any certificate, or an `ssl.SSLContext`.
        trust_env: False to go through no proxy that the environment names.
        max_bytes: of one answer, decoded; a larger one is an `AnswerTooLarge`.

    It is good for one connection after another, and a `RuntimeError` for two at once.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        verify: Any = True,
        trust_env: bool = True,
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        self.url = url
        self._most = max_bytes
        self._options: dict[str, Any] = {
            "headers": dict(headers or {}),
            "auth": auth,
            "verify": verify,
            "trust_env": trust_env,
        }
        self._connection: AbstractAsyncContextManager[_Streams] | None = None

    def client(self) -> httpx2.AsyncClient:
        """The HTTP client that it is made of, for the SDK's own `streamable_http_client`."""
        return _Enduring(self._most, timeout=httpx2.Timeout(_CONNECT, read=_READ), **self._options)

    async def __aenter__(self) -> _Streams:
        if self._connection is not None:
            raise RuntimeError("This HTTP(…) is in use: make another one for another client")
        connection = self._connected()
        self._connection = connection
        try:
            return await connection.__aenter__()
        except BaseException:
            self._connection = None
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        connection, self._connection = self._connection, None
        return None if connection is None else await connection.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[_Streams]:
        async with (
            self.client() as http,
            streamable_http_client(self.url, http_client=http, max_sse_event_size=self._most) as streams,
        ):
            yield streams


class _Enduring(httpx2.AsyncClient):
    """An HTTP client that answers by itself where there is no answer, or one of more than `most` bytes."""

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(event_hooks={"request": [_goes], "response": [_comes]}, **options)
        self._most = most

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """As httpx2's. A body that is no stream is read here, where it may break off without harm."""
        # An outage while connecting stays what it is: an answer, even an error, would be taken for that of a server of
        # the handshake era, which has no tasks.
        connecting = request.headers.get(MCP_METHOD_HEADER, DISCOVER) == DISCOVER
        sent = _Sent()
        outer = _SENT.set(sent)
        try:
            response = await super().send(request, stream=True, **options)
            if stream and _is_stream(response):
                return response
            body = await _read(response, self._most)
        except Exception as error:  # boundary: `auth` is the user's, and what a peer sends is decoded
            if connecting:
                raise
            return _unanswered(request, error, begun=sent.begun)
        finally:
            _SENT.reset(outer)
        if body is None:
            return _passing(request, f"The answer has more than {self._most} bytes", **{TOO_LARGE: self._most})
        response = _whole(response, body)
        if _is_answer(response) or (connecting and response.status_code not in _TOKEN):
            return response
        return _spoken(request, response)


class _Sent:
    """`begun`: whether the server may have begun with the request that is being sent, whose `auth` sends others too."""

    begun = False


_SENT: Final = ContextVar[_Sent]("sent")


async def _goes(request: httpx2.Request) -> None:
    # By its header, as `auth` may send a copy.
    if MCP_METHOD_HEADER in request.headers:
        _SENT.get().begun = True


async def _comes(response: httpx2.Response) -> None:
    if MCP_METHOD_HEADER in response.request.headers and response.status_code in _TOKEN:
        _SENT.get().begun = False


async def _read(response: httpx2.Response, most: int) -> bytes | None:
    """The body; None if it is larger than that."""
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > most:
                return None
        return bytes(body)
    finally:
        # httpx2 does so itself where the connection fails, and not where the body can't be decoded.
        await response.aclose()


def _whole(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """The same response with its body at hand, which is no longer encoded."""
    encoded = {b"content-encoding", b"content-length", b"transfer-encoding"}
    # As bytes: httpx2 reads more in a header than it writes.
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in encoded]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


def _spoken(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """What a status says that came without an answer of the protocol."""
    status = response.status_code
    message = _TOKEN.get(status, f"HTTP status {status}")
    if status in _PASSING:
        after = _retry_after(response)
        hint: dict[str, Any] = {} if after is None else {"retryAfterMs": math.ceil(after * 1000)}
        # Only 429 is sure to come from who has not begun. A proxy says the others of a server that died at it, too.
        return _passing(request, message, **hint, **{NOT_BEGUN if status == _TOO_MANY else UNREACHABLE: True})
    if 400 <= status < 500 and status not in _LEFT_TO_THE_SDK:
        return _made_up(request, status, {"code": INVALID_REQUEST, "message": message})
    return response


def _unanswered(request: httpx2.Request, error: Exception, *, begun: bool) -> httpx2.Response:
    """What stands for the answer of a request that came to `error`. `begun`: the server may have begun with it."""
    logger.debug("a request has no answer", exc_info=error)
    name = type(error).__name__
    if begun and isinstance(error, httpx2.TransportError):
        return _passing(request, f"The server can't be reached: {name}", **{UNREACHABLE: True})
    if begun and isinstance(error, httpx2.RequestError):
        data = {UNREACHABLE: True}
        return _made_up(
            request, 502, {"code": INTERNAL_ERROR, "message": f"The answer can't be read: {name}", "data": data}
        )
    return _made_up(request, 503, tokens.missing(error, begun=begun))


def _passing(request: httpx2.Request, message: str, **data: Any) -> httpx2.Response:
    return _made_up(request, 503, {"code": CONNECTION_CLOSED, "message": message, "data": data})


def _made_up(request: httpx2.Request, status: int, error: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(status, request=request, json={"jsonrpc": "2.0", "id": None, "error": error})


def _is_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def _is_answer(response: httpx2.Response) -> bool:
    """Whether the protocol has the say: what succeeded, or an error that is JSON-RPC's."""
    if response.status_code < 400:
        return True
    if not response.headers.get("content-type", "").lower().startswith("application/json"):
        return False
    try:
        JSONRPCError.model_validate_json(response.content)
    except ValidationError:
        return False
    return True


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, if the header says seconds; a date would have to be held against our clock."""
    text = response.headers.get("retry-after", "").strip()
    return float(text) if text.isdecimal() and len(text) < 7 else None
