"""One response of a backend: what its head says, and then its body or its events, within bounds of size and time.

A backend may lie in every way. What is not the protocol's is a fault and goes no further: a redirect (nobody follows
it, or whoever can make a backend redirect could have the gateway call anything that it can reach, with its
credentials), a content type that is neither of the two, a compressed body (nobody asked for it, and it may be a bomb),
a response to another request. What a JSON-RPC response then says is its own affair.

Each read waits for a deadline by itself. No time runs while whoever reads the events is busy with passing them on: what
a client takes long to read is no fault of its backend's. Nothing is read ahead meanwhile, so that a slow client slows
its backend down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httpx2

from perdure.domain.model import JSONObject

from .connections import Response
from .faults import BackendBroken, BackendRefused, BackendTimeout, BackendUnavailable, Fault
from .rawjson import NotJSON, decode
from .sse import Parser, SSEBounds, SSEFault

__all__ = ["Exchange", "Reading", "Verdict", "of_transport"]

_ENDING: Final = 0.05
"""Seconds that a stream has for ending after the response; a connection that has ended well can be used again."""
_TOO_MANY: Final = 429
_NO_ROOM: Final = 503
_EMPTY: Final = frozenset({202, 204})
_LONGEST: Final = 3_600
"""Seconds that clients are told to stay away at most, whatever a backend says."""


class Verdict(Protocol):
    """Who is told how an exchange went."""

    def good(self) -> None: ...

    def fault(self, fault: Fault) -> None: ...

    def over(self) -> None:
        """Whatever became of it, there is nothing more to come."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What one exchange may cost.

    Args:
        backend: its name.
        id: of the request; None: it was a notification.
        body: bytes.
        events: bounds of a stream.
        read: seconds without a byte of a body.
        idle: seconds without a byte of a stream.
        deadline: a moment of the event loop's clock, if nobody reads its events slowly.
        quick: that it takes long says that the backend is not well.
    """

    backend: str
    id: int | str | None
    body: int
    events: SSEBounds
    read: float
    idle: float
    deadline: float
    quick: bool


class Exchange:
    """A response that has begun. `headers`: of the response, their names in lower case.

    Either `body` or `events` is used, as `is_stream` says, and once.
    """

    def __init__(self, response: Response, reading: Reading, verdict: Verdict) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._reading = reading
        self._verdict = verdict
        self._deadline = reading.deadline
        self._events: AsyncGenerator[JSONObject] | None = None
        self._kind = self._header("content-type").partition(";")[0].rstrip()
        self.is_stream = self._kind == "text/event-stream" and self.status < 300

    def check(self) -> None:
        """Judge the head.

        Raises:
            Fault: there is no use in reading on.
        """
        if 300 <= self.status < 400:
            raise self._broken("it redirects")
        if self._header("content-encoding") not in ("", "identity"):
            raise self._broken("it compresses what it says, unasked")
        if self.is_stream:
            self._verdict.good()
        elif self._kind != "application/json" and not self._is_acknowledgement():
            raise self._by_status()

    async def body(self) -> JSONObject | None:
        """The response; None to a notification.

        Raises:
            Fault: there is none.
        """
        try:
            data = await self._whole()
            message = None if self._is_acknowledgement() else self._response_in(data)
        except Fault as fault:
            self._verdict.fault(fault)
            raise
        self._verdict.good()
        return message

    def events(self) -> AsyncGenerator[JSONObject]:
        """The messages of the stream, as they come; the last one is the response.

        Raises, as it goes:
            Fault: it broke off, or broke the protocol.
        """
        self._events = self._told()
        return self._events

    async def _told(self) -> AsyncGenerator[JSONObject]:
        try:
            parser = Parser(self._reading.events, _now())
            while (chunk := await self._next(min(self._idle(), parser.silent_after))) is not None:
                for message in self._messages(parser, chunk):
                    handed_on = _now()
                    yield message
                    self._deadline += _now() - handed_on
                    if "method" not in message:
                        await self._ending()
                        return
            raise BackendUnavailable(self._reading.backend, "hung up before it had answered", begun=True)
        except Fault as fault:
            self._verdict.fault(fault)
            raise

    async def close(self) -> None:
        """Be done with it. If it was not at its end, the backend sees that nobody listens any more."""
        try:
            # From the outside in: a generator that is left where it stands is closed whenever the collector comes by.
            if self._events is not None:
                await self._events.aclose()
            await self._response.aclose()
        finally:
            self._verdict.over()

    def _messages(self, parser: Parser, chunk: bytes) -> Iterator[JSONObject]:
        events = parser.feed(chunk, _now())
        while True:
            try:
                message = decode(next(events))
            except StopIteration:
                return
            except SSEFault as fault:
                if fault.late:
                    raise BackendTimeout(self._reading.backend, begun=True, counts=self._reading.quick) from fault
                # One call that says too much tells nothing of others.
                raise self._broken(str(fault), counts=False) from fault
            except NotJSON as error:
                raise self._broken(f"an event is no message: {error}") from error
            if "method" not in message:
                self._check_response(message)
            yield message

    async def _ending(self) -> None:
        with suppress(httpx2.TransportError):
            # What comes after the response is nobody's; a stream that goes on is cut off.
            await self._response.read(_now() + _ENDING)

    async def _whole(self) -> bytes:
        most = self._reading.body
        announced = self._header("content-length")
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > most):
            raise self._broken("the response is too large", counts=False)
        data = bytearray()
        while (chunk := await self._next(_now() + self._reading.read)) is not None:
            data += chunk
            if len(data) > most:
                raise self._broken("the response is too large", counts=False)
        return bytes(data)

    async def _next(self, until: float) -> bytes | None:
        """The next bytes; None at the end."""
        try:
            return await self._response.read(min(until, self._deadline))
        except httpx2.ReadTimeout as error:
            raise BackendTimeout(self._reading.backend, begun=True, counts=self._reading.quick) from error
        except httpx2.TransportError as error:
            raise of_transport(self._reading.backend, error) from error

    def _idle(self) -> float:
        return _now() + self._reading.idle

    def _response_in(self, data: bytes) -> JSONObject:
        try:
            message = decode(data)
            self._check_response(message)
        except (NotJSON, BackendBroken) as error:
            if self.status >= 400:  # the OAuth error of a 401, say
                raise self._by_status() from error
            raise error if isinstance(error, Fault) else self._broken(str(error)) from error
        return message

    def _check_response(self, message: JSONObject) -> None:
        named, asked = message.get("id"), self._reading.id
        ours = named == asked and type(named) is type(asked)
        if message.get("jsonrpc") != "2.0" or ("result" in message) == ("error" in message):
            raise self._broken("it is no JSON-RPC response")
        if "error" in message:
            ours = ours or named is None  # of a request that it could not read so far
            if not _is_error(message["error"]):
                raise self._broken("its error is none of JSON-RPC")
        elif not isinstance(message["result"], dict):
            raise self._broken("its result is no object")
        if not ours:
            raise self._broken("it answers another request")

    def _is_acknowledgement(self) -> bool:
        return self._reading.id is None and self.status in _EMPTY

    def _by_status(self) -> Fault:
        """What a status means that comes without the protocol's own words."""
        name, status = self._reading.backend, self.status
        if status in (_TOO_MANY, _NO_ROOM):
            # Only 429 is sure to come from who has not begun: a proxy says 503 of a server that died at it, too.
            full = status == _TOO_MANY
            wait = _milliseconds(self._header("retry-after"))
            return BackendUnavailable(name, "has no room", retry_after_ms=wait, begun=not full, counts=not full)
        if status >= 500:
            return BackendUnavailable(name, f"answered with HTTP status {status}", begun=True)
        if status >= 400:
            return BackendRefused(name, status)
        return self._broken("it answers with neither JSON nor a stream of events")

    def _broken(self, why: str, *, counts: bool = True) -> BackendBroken:
        return BackendBroken(self._reading.backend, why, counts=counts)

    def _header(self, name: str) -> str:
        return self.headers.get(name, "").strip().lower()


def of_transport(backend: str, error: httpx2.TransportError) -> Fault:
    """What an error of the connection means."""
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        # A header that can't be sent: it is who asks that is at fault.
        return Fault(backend, f"The request can't be sent to the backend {backend}")
    if isinstance(error, httpx2.ConnectTimeout):
        return BackendTimeout(backend, begun=False, counts=True)
    if isinstance(error, httpx2.PoolTimeout):  # there was no time left for making a connection
        return BackendTimeout(backend, begun=False, counts=False)
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return BackendUnavailable(backend)
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.WriteError):
        return BackendUnavailable(backend, "hung up before it had answered", begun=True)
    return BackendTimeout(backend, begun=True, counts=True)  # of writing: it takes nothing in


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_error(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    error = cast("dict[str, object]", value)
    return type(error.get("code")) is int and isinstance(error.get("message"), str)


def _milliseconds(text: str) -> int | None:
    """Of `Retry-After`, if that says seconds; a date would have to be held against our clock."""
    return min(int(text), _LONGEST) * 1000 if text.isascii() and text.isdecimal() and len(text) < 7 else None
