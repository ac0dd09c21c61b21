"""HTTP/1.1 connections to one backend: one request at a time on each, and kept for the next one.

A hop is paid for with every request, and a general client's share of it was more than that of all else together. This
one knows what the gateway sends (a POST with its whole body) and so sends head and body in one piece: whoever gets them
in two is woken twice. Of a head most is the same each time. h11 writes that once, and what is added is held against the
same grammar, so that no value can be a second header or a second request. What the bytes of a response mean is h11's to
say, as for the server in front. And this one knows that the next request may be somebody else's: a connection on which
more comes than was asked for is closed.

Nobody waits for a place here; the gate before it sees to that. Errors are those of httpx2, which speaks to backends
behind a proxy (`proxied`): whoever judges them need not know which of the two it was.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

import anyio
import h11
import httpx2

from .hops import OURS

__all__ = ["Connections", "Response"]

_HIGH: Final = 64 * 1024
"""Bytes that are read ahead of whoever reads the response, at most; as many may be of one head."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a name is tried as well."""

_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"([^\0\s]+([ \t]+[^\0\s]+)*)?")
"""As h11 has them: no break of a line, and no blank at either end."""
_BOUNDS: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""Headers that say where a request goes and where it ends: each has its own."""
_LENGTH: Final = (b"content-length", b"0")
_ASKED: Final = h11.Request(method="POST", target="/", headers=[(b"host", b"-"), _LENGTH])
_ALL_OF_IT: Final = h11.EndOfMessage()
"""What h11 is told of each request, so that it knows whose turn it is."""


class Response(Protocol):
    """A response that has begun. `headers`: by their names in lower case."""

    status: int
    headers: Mapping[str, str]

    async def read(self, until: float) -> bytes | None:
        """The next bytes of its body; None at the end. `until`: a moment of the event loop's clock.

        Raises:
            httpx2.TransportError: there are none, or none by then.
        """
        ...

    async def aclose(self) -> None:
        """Be done with it, soon. If it was not at its end, the backend sees that nobody listens any more."""
        ...


class Connections:
    """Connections to `url`. `trust`: None where no TLS is spoken. Times in seconds.

    `connect`: until there is a connection. `write`: until a request has been taken. `kept`: without use.
    """

    def __init__(
        self, url: httpx2.URL, trust: ssl.SSLContext | None, *, connect: float, write: float, kept: float
    ) -> None:
        self._host, self._port = url.host, url.port or (443 if trust is not None else 80)
        self._begins = _beginning(url)
        self._trust = trust
        # Of one address there are no two to race; and a race that is cancelled leaves a socket to the collector.
        self._races = not _is_address(url.host)
        self._connect = connect
        self._write = write
        self._kept = kept
        self._idle: list[_Connection] = []

    async def send(self, headers: Sequence[tuple[bytes, bytes]], body: bytes, until: float) -> Response:
        """POST it; the response, once its head is there. `until`: a moment of the event loop's clock.

        Raises:
            httpx2.TransportError: there is none, or none by then.
        """
        request = self.head(headers, len(body)) + body
        connection = self._kept_one() or await self._new(until)
        try:
            await connection.send(request, self._write, until)
            return _Answer(connection, await connection.head(until), self._release)
        except BaseException:
            connection.close()
            raise

    def head(self, headers: Sequence[tuple[bytes, bytes]], length: int) -> bytes:
        """Of a request with these headers, beside those that each has, and a body of `length` bytes.

        Raises:
            httpx2.LocalProtocolError: one of them can't be sent.
        """
        for name, value in headers:
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)) or name.lower() in _BOUNDS:
                raise httpx2.LocalProtocolError("a header can't be sent")
        added = b"".join([b"%b: %b\r\n" % header for header in headers])
        return b"%b%bcontent-length: %d\r\n\r\n" % (self._begins, added, length)

    async def aclose(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def _kept_one(self) -> _Connection | None:
        """The one that was used last: what is not needed grows old, and is closed."""
        oldest = asyncio.get_running_loop().time() - self._kept
        while self._idle and (self._idle[0].gone or self._idle[0].since < oldest):
            self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if not connection.gone:
                return connection
        return None

    async def _new(self, until: float) -> _Connection:
        loop = asyncio.get_running_loop()
        hostname = None if self._trust is None else self._host
        # uvloop's, which uvicorn takes where it is installed, knows no races: it tries one address after the other.
        racing: Any = {}
        if self._races and isinstance(loop, asyncio.BaseEventLoop):
            racing = {"happy_eyeballs_delay": _NEXT_ADDRESS}
        try:
            with anyio.fail_after(min(self._connect, until - loop.time())):
                _, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._trust, server_hostname=hostname, **racing
                )
        except TimeoutError as error:
            late = loop.time() >= until  # which is not the backend's fault
            raise (httpx2.PoolTimeout if late else httpx2.ConnectTimeout)(str(error)) from error
        except (OSError, ssl.CertificateError) as error:
            raise httpx2.ConnectError(str(error)) from error
        return connection

    def _release(self, connection: _Connection) -> None:
        if connection.renew():
            self._idle.append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    """One of them. `since`: from when on it has not been used."""

    __slots__ = ("_data", "_ended", "_error", "_http", "_paused", "_reader", "_rests", "_transport", "_writer", "since")

    def __init__(self) -> None:
        self.since = 0.0
        self._rests = False
        self._http = _machine()
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def gone(self) -> bool:
        """Whether it is closed."""
        return self._ended

    # -- what the event loop calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._rests:  # nobody asked for that, and whoever asks next is not to have it for an answer
            self.close()
            return
        self._data = self._data + data if self._data else data
        if _wake(self._reader):  # and whoever is woken takes it before more can come
            return
        if len(self._data) > _HIGH and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._ended = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writer)
        self._writer = None

    # -- one request ---------------------------------------------------------------------------------------------------

    async def send(self, request: bytes, within: float, until: float) -> None:
        self._rests = False
        self._http.send(_ASKED)
        self._http.send(_ALL_OF_IT)
        cast("asyncio.Transport", self._transport).write(request)
        if self._writer is not None:
            loop = asyncio.get_running_loop()
            try:
                with anyio.fail_after(min(within, until - loop.time())):
                    await self._writer
            except TimeoutError as error:
                late = loop.time() >= until
                raise (httpx2.ReadTimeout if late else httpx2.WriteTimeout)(str(error)) from error

    async def head(self, until: float) -> h11.Response:
        while True:
            event = await self._event(until)
            if isinstance(event, h11.Response):
                return event

    async def body(self, until: float) -> bytes | None:
        while True:
            event = await self._event(until)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if not isinstance(event, h11.InformationalResponse):
                return None

    async def _event(self, until: float) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._more(until)
                if not data and self._http.their_state is h11.SEND_RESPONSE:
                    raise httpx2.RemoteProtocolError("it hung up without a response")
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error
        return event

    async def _more(self, until: float) -> bytes:
        """The next bytes; none at the end."""
        if not (self._data or self._ended):
            if self._paused and self._transport is not None:
                self._paused = False
                self._transport.resume_reading()
            loop = asyncio.get_running_loop()
            if loop.time() >= until:  # however much comes: what is there is always earlier than a timer
                raise httpx2.ReadTimeout("nothing came in time")
            self._reader = reader = loop.create_future()
            late = loop.call_at(until, _fail, reader) if until < math.inf else None
            try:
                await reader
            finally:
                self._reader = None
                if late is not None:
                    late.cancel()
        if self._error is not None and not self._data:
            raise httpx2.ReadError(str(self._error))
        data, self._data = self._data, b""
        return data

    def renew(self) -> bool:
        """Be ready for another request; False: that can't be."""
        http = self._http
        # More than the response would be the next one, to somebody else. While reading is paused nobody knows.
        more = self._data or http.trailing_data[0] or self._paused
        if more or self.gone or http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        self._rests = True
        self.since = asyncio.get_running_loop().time()
        return True

    def close(self) -> None:
        """At once. Harmless when repeated."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()


class _Answer:
    """`Response`, on a connection that is given back at the end."""

    __slots__ = ("_connection", "_release", "headers", "status")

    def __init__(self, connection: _Connection, head: h11.Response, release: Any) -> None:
        self.status = head.status_code
        self.headers: Mapping[str, str] = _folded(head.headers)
        self._connection: _Connection | None = connection
        self._release = release

    async def read(self, until: float) -> bytes | None:
        return None if self._connection is None else await self._connection.body(until)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._release(connection)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _beginning(url: httpx2.URL) -> bytes:
    """Of a head, as far as it is the same for each request to `url`."""
    headers = [(b"host", url.netloc), *OURS, _LENGTH]
    whole = _machine().send(h11.Request(method="POST", target=url.raw_path, headers=headers))
    return (whole or b"").removesuffix(b"%b: %b\r\n\r\n" % _LENGTH)


def _machine() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=_HIGH)


def _folded(headers: Any) -> dict[str, str]:
    """By their names, which h11 has in lower case; those of one name as one."""
    folded: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        folded[key] = f"{folded[key]}, {text}" if key in folded else text
    return folded


def _wake(waiting: asyncio.Future[None] | None) -> bool:
    """Whether somebody was waiting."""
    if waiting is None or waiting.done():
        return False
    waiting.set_result(None)
    return True


def _fail(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(httpx2.ReadTimeout("nothing came in time"))
