"""One backend: everything that is sent to it goes through here, and nothing that it does gets past the bounds.

Below it are connections and nothing else (`connections`, or `proxied` where the configuration names a proxy): no jar
that gives one user's cookies to the next, no redirects, no credentials or proxies that are found in the environment.

Streams that are listened to have connections and a gate of their own: they stay open for hours, and would take the
places of the calls.

A request goes: who asks, breaker (without waiting, if the backend is left alone), gate, breaker again (it may have
opened meanwhile), head, body. Nothing is sent twice but by `Safe`, and then as a request that is made anew. Each step
keeps to the deadline by itself, so it can be told whether anything was sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import anyio
import httpx2

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER
from perdure.wire.refusals import Seldom

from . import hops, retrying, tracing
from .breaker import Breaker, BreakerBounds, Permit
from .connections import Connections, Response
from .exchange import Exchange, Reading, Verdict, of_transport
from .faults import BackendRefused, BackendTimeout, BackendUnavailable, Fault
from .gate import Gate, Ticket
from .proxied import Proxied
from .rawjson import encode
from .retrying import Safe
from .sse import SSEBounds
from .urls import callable_url

__all__ = ["Bounds", "Exchange", "Reply", "Safe", "Upstream", "Who"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

Who = Callable[[float], Awaitable[Mapping[str, str]]]
"""Makes the headers that say who asks, by a moment of the event loop's clock, or raises a `Fault`."""

_LISTEN: Final = "subscriptions/listen"
_KEPT: Final = 4.0
"""Seconds that a connection is kept without use: less than servers keep one (uvicorn and Node 5 s), or we would send a
request on one that they are closing, and nobody could say whether it was carried out."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a backend is asked, and how much is taken from it. Times in seconds.

    Args:
        connect: until there is a connection.
        read: without a byte of a response that has begun, and until one begins that runs nobody's code.
        idle: without a byte of a stream.
        total: of a whole request, its time in the queue and its retries included. Streams have none but the caller's.
        body: bytes of a JSON response.
        events: of a stream.
        calls: requests at a time.
        queue: requests that wait for their turn.
        patience: that one waits.
        streams: of `subscriptions/listen`, at a time; none waits.
        breaker: when the backend is left alone.
        retry: of what is safe.
    """

    connect: float = 5.0
    read: float = 60.0
    idle: float = 300.0
    total: float = 300.0
    body: int = 16 * 1024 * 1024
    events: SSEBounds = field(default_factory=SSEBounds)
    calls: int = 100
    queue: int = 1_000
    patience: float = 10.0
    streams: int = 1_000
    breaker: BreakerBounds = field(default_factory=BreakerBounds)
    retry: Safe = field(default_factory=Safe)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole JSON-RPC response and the status it came with. `message` is None to a notification."""

    status: int
    message: JSONObject | None


class _Outcome:
    """Tells the breaker how one exchange went, and of a stream also what becomes of it after it has begun well.

    Once it is over, `ticket` is given back.
    """

    __slots__ = ("_breaker", "_gate", "_note", "_permit", "_ticket", "_told")

    def __init__(
        self, breaker: Breaker, permit: Permit, note: Callable[[Fault], None], gate: Gate, ticket: Ticket
    ) -> None:
        self._breaker = breaker
        self._permit = permit
        self._note = note
        self._gate = gate
        self._ticket = ticket
        self._told = False

    def good(self) -> None:
        self._permit.good()
        self._told = True

    def fault(self, fault: Fault) -> None:
        self._note(fault)
        if isinstance(fault, BackendRefused):  # by a backend that is there
            self._permit.good()
        elif not fault.counts:
            self._permit.nothing()
        elif self._told:
            self._breaker.failed()
        else:
            self._permit.bad()
        self._told = True

    def over(self) -> None:
        self._permit.nothing()
        self._gate.leave(self._ticket)


class _Ignored:
    """For an exchange that the breaker is not told of."""

    def good(self) -> None:
        pass

    def fault(self, fault: Fault) -> None:
        pass

    def over(self) -> None:
        pass


class Upstream:
    """The backend `name` at `url`. It is entered once, and then used by everybody at once.

    Args:
        name: in errors and metrics.
        url: of its MCP endpoint.
        bounds: of what it may cost.
        proxy: URL of a proxy to reach it by. That of the environment is never used.
        verify: an `ssl.SSLContext` for certificates that the machine does not know, or False to accept any.
        clock: seconds, for the breaker.
        chance: from 0 to 1, for the pauses between tries.

    Raises:
        ConfigurationError: the URL, or the proxy's, is none that can be called.
    """

    def __init__(
        self,
        name: str,
        url: str,
        bounds: Bounds | None = None,
        *,
        proxy: str | None = None,
        verify: Any = True,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.bounds = bounds or Bounds()
        self.breaker = Breaker(self.bounds.breaker, clock, self._tell)
        self.calls = Gate(name, self.bounds.calls, self.bounds.queue, self.bounds.patience)
        self.streams = Gate(name, self.bounds.streams, 0, self.bounds.patience)
        self.discovered: JSONObject | None = None
        """The result of the last `server/discover` that was asked of it, by whomever."""
        self._url = _checked(name, url)
        if proxy is not None and callable_url(proxy) is None:
            raise ConfigurationError(
                f"The proxy of the backend {name} has to begin with http:// or https:// and a host"
            )
        self._proxy = proxy
        self._verify = verify
        self._chance = chance
        self.seldom = Seldom(clock)
        """Says of a line in the log about this backend whether it is due: what all of its clients meet is one line."""
        self._pools: dict[bool, Connections | Proxied] = {}

    async def __aenter__(self) -> Self:
        # One more than the gate lets in: a probe has to get through where the gate is full.
        for listening, most in ((False, self.bounds.calls + 1), (True, self.bounds.streams)):
            self._pools[listening] = self._pool(most)
        return self

    def _pool(self, most: int) -> Connections | Proxied:
        times = {"connect": self.bounds.connect, "write": self.bounds.read}
        if self._proxy is not None:
            return Proxied(self._url, self._proxy, self._verify, most=most, **times)
        # Certificates take a while to load, and where no TLS is spoken they are of no use.
        trust = httpx2.create_ssl_context(self._verify) if self._url.scheme == "https" else None
        return Connections(self._url, trust, **times, kept=_KEPT)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def safe(self, message: JSONObject) -> Safe | None:
        """Leave to send `message` more than once, if there is any."""
        return retrying.safe(message, self.discovered, self.bounds.retry)

    async def request(
        self,
        message: JSONObject,
        headers: Mapping[str, str],
        who: Who | None = None,
        *,
        deadline: float,
        retry: Safe | None = None,
        lane: Hashable = None,
    ) -> Reply:
        """The response to `message`, also where it comes at the end of a stream; what comes before it is dropped.

        Args:
            message: a request or a notification.
            headers: to send; those that are between a client and the gateway are left out.
            who: makes more of them, for each try anew: what says who asks may be good for a minute.
            deadline: a moment of the event loop's clock (`anyio.current_time`).
            retry: see `safe`.
            lane: whose request it is: one lane can't keep the others waiting.

        Raises:
            Fault: there is none.
        """
        deadline = min(deadline, asyncio.get_running_loop().time() + self.bounds.total)
        return await self._insist(lambda: self._once(message, headers, who, deadline, lane), deadline, retry)

    @asynccontextmanager
    async def stream(
        self,
        message: JSONObject,
        headers: Mapping[str, str],
        who: Who | None = None,
        *,
        deadline: float,
        retry: Safe | None = None,
        lane: Hashable = None,
    ) -> AsyncGenerator[Exchange]:
        """The response to `message` as it comes. Leaving it before its end cancels the request, and nothing else.

        Arguments as of `request`. Once a response has begun, nothing is sent again.

        Raises:
            Fault: there is none. Reading it may raise one as well.
        """
        exchange = await self._insist(lambda: self._begun(message, headers, who, deadline, lane), deadline, retry)
        try:
            yield exchange
        finally:
            await exchange.close()

    async def probe(self, message: JSONObject, headers: Mapping[str, str], *, deadline: float) -> Reply:
        """As `request`, past the gate and the breaker, and once: to find out how it is. The breaker is not told."""
        return await self._read(await self._exchange(message, headers, deadline, _Ignored()), message)

    async def _insist(self, send: Callable[[], Awaitable[T]], deadline: float, retry: Safe | None) -> T:
        failures, begun = 0, False
        while True:
            try:
                return await send()
            except Fault as fault:
                failures += 1
                # What an earlier try may have done is not undone by the last one, which perhaps was not even sent.
                fault.begun = begun = fault.begun or begun
                left = deadline - anyio.current_time()
                wait = None if retry is None else retrying.pause(fault, failures, retry, left, self._chance())
                if wait is None:
                    raise
                failed = fault
            await anyio.sleep(wait)
            if begun and retry is not None and retry.confirm is not None and not await retry.confirm():
                raise failed

    async def _begun(
        self, message: JSONObject, headers: Mapping[str, str], who: Who | None, deadline: float, lane: Hashable
    ) -> Exchange:
        """A response that has begun, if it is let through. Whoever gets it has to close it."""
        told = headers if who is None else {**headers, **await who(deadline)}
        self._refuse_if_left_alone()
        listens = message.get("method") == _LISTEN
        gate = self.streams if listens else self.calls
        ticket = await gate.enter(lane, deadline)
        try:
            if ticket.waited and who is not None:  # asked for before too, so that nobody has a place only to wait here
                told = {**headers, **await who(deadline)}
            permit = self._permit()
        except BaseException:
            gate.leave(ticket)
            raise
        # That a stream ends is ordinary, after an hour without a word for one, and whoever listens says so.
        outcome = _Outcome(self.breaker, permit, _unsaid if listens else self._note, gate, ticket)
        return await self._exchange(message, told, deadline, outcome)

    async def _once(
        self, message: JSONObject, headers: Mapping[str, str], who: Who | None, deadline: float, lane: Hashable
    ) -> Reply:
        return await self._read(await self._begun(message, headers, who, deadline, lane), message)

    async def _read(self, exchange: Exchange, message: JSONObject) -> Reply:
        response: JSONObject | None = None
        try:
            if exchange.is_stream:
                async for response in exchange.events():  # noqa: B007 - the last one is the response
                    pass
            else:
                response = await exchange.body()
        finally:
            await exchange.close()
        result = None if response is None else response.get("result")
        if message.get("method") == DISCOVER and isinstance(result, dict):
            self.discovered = result
        return Reply(exchange.status, response)

    async def _exchange(
        self, message: JSONObject, headers: Mapping[str, str], deadline: float, verdict: Verdict
    ) -> Exchange:
        quick = message.get("method") in retrying.QUICK
        exchange = None
        try:
            response = await self._send(message, headers, deadline, quick)
            exchange = Exchange(response, self._reading(message, deadline, quick), verdict)
            exchange.check()
        except BaseException as error:
            if isinstance(error, Fault):
                verdict.fault(error)
            if exchange is None:
                verdict.over()
            else:
                await exchange.close()
            raise
        return exchange

    async def _send(self, message: JSONObject, headers: Mapping[str, str], deadline: float, quick: bool) -> Response:
        message, headers = tracing.carried(message, headers)
        until = min(deadline, asyncio.get_running_loop().time() + self.bounds.read) if quick else deadline
        pool = self._pools[message.get("method") == _LISTEN]
        try:
            return await pool.send(hops.onward(headers), encode(message), until)
        except httpx2.ReadTimeout as error:
            raise BackendTimeout(self.name, begun=True, counts=quick) from error
        except httpx2.TransportError as error:
            raise of_transport(self.name, error) from error

    def _reading(self, message: JSONObject, deadline: float, quick: bool) -> Reading:
        bounds, asked = self.bounds, cast("int | str | None", message.get("id"))
        return Reading(self.name, asked, bounds.body, bounds.events, bounds.read, bounds.idle, deadline, quick)

    def _tell(self, opened: bool) -> None:
        if opened:
            logger.warning("the backend %s is not well, and is left alone for a while", self.name)
        else:
            logger.info("the backend %s is well again", self.name)

    def _note(self, fault: Fault) -> None:
        """A line in the log: clients hear less than whoever runs the gateway has to."""
        cause = type(fault.__cause__ or fault).__name__
        if (more := self.seldom.due(f"{fault} {cause}")) is not None:
            logger.warning("%s (%s)%s", fault, cause, more)

    def _refuse_if_left_alone(self) -> None:
        if (wait := self.breaker.wait) > 0:
            raise BackendUnavailable(
                self.name, "is not well", retry_after_ms=math.ceil(wait * 1000), counts=False, resting=True
            )

    def _permit(self) -> Permit:
        permit = self.breaker.ask()
        if permit is None:
            self._refuse_if_left_alone()
            raise BackendUnavailable(self.name, "is not well", counts=False, resting=True)
        return permit


def _unsaid(fault: Fault) -> None:
    pass


def _checked(name: str, text: str) -> httpx2.URL:
    url = callable_url(text)
    if url is None:  # and is not repeated: there may be a password in it
        raise ConfigurationError(f"The URL of the backend {name} has to begin with http:// or https:// and a host")
    if url.userinfo or url.fragment:
        raise ConfigurationError(f"The URL of the backend {name} may have no user, password or fragment")
    return url
