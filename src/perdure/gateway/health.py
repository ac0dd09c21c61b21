"""Looks after one backend: asks it `server/discover` every so often, and tells the breaker what it finds.

A breaker by itself knows of a failure only by the requests that fail, so clients would be the ones to find out that a
backend is gone, and one of them has to be the trial when it is back. A probe goes past the gate: a backend that has as
much to do as it may is busy, and not ill. What answers in the protocol's words is well, an error included; what the
breaker counts is decided there, so both agree on what is a failure.

After some failures in a row the breaker is opened. While it is open, the first probe that comes back closes it, but not
before its pause is over: a backend that answers probes and fails requests must not be opened and closed all the time.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import anyio
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER

from .breaker import Position
from .faults import Fault
from .upstream import Upstream

__all__ = ["Health", "HealthBounds", "discovery"]

_VERSION: Final = "2026-07-28"
_SPREAD: Final = 0.2


@dataclass(frozen=True, slots=True)
class HealthBounds:
    """How a backend is looked after.

    Args:
        every: seconds from one probe to the next.
        within: seconds that one may take.
        failures: in a row, after which the breaker is opened.
    """

    every: float = 10.0
    within: float = 5.0
    failures: int = 2


class Health:
    """Of one backend.

    Args:
        upstream: the backend.
        bounds: see there.
        headers: that go with a probe; asked for each time, since a signed one does not last.
        chance: from 0 to 1. Several gateways that were started together do not probe together.
        sleep: for so many seconds.
    """

    def __init__(
        self,
        upstream: Upstream,
        bounds: HealthBounds | None = None,
        *,
        headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._upstream = upstream
        self._bounds = bounds or HealthBounds()
        self._headers = headers
        self._chance = chance
        self._sleep = sleep
        self._failures = 0
        self.last: Fault | None = None
        """What was wrong at the last look; None: nothing, or there was none."""

    async def run(self) -> None:
        """Probe until cancelled. The first one goes out at once."""
        while True:
            await self.probe()
            await self._sleep(self._bounds.every * (1 + _SPREAD * (2 * self._chance() - 1)))

    async def probe(self) -> bool:
        """Look once. Whether it is well."""
        try:
            headers: Mapping[str, str] = {} if self._headers is None else await self._headers()
            deadline = anyio.current_time() + self._bounds.within
            await self._upstream.probe(*discovery(headers), deadline=deadline)
        except Fault as fault:
            self._note(fault)
        else:
            self._note(None)
        return self.last is None

    def _note(self, fault: Fault | None) -> None:
        self.last = fault
        breaker = self._upstream.breaker
        if fault is not None and fault.counts:
            self._failures += 1
            # Once a pause is over it is a trial that failed; during one there is nothing to add.
            if self._failures >= self._bounds.failures and breaker.position is not Position.OPEN:
                breaker.open()
            return
        self._failures = 0
        if breaker.position is Position.HALF_OPEN:
            breaker.close()


def discovery(headers: Mapping[str, str]) -> tuple[JSONObject, dict[str, str]]:
    """A `server/discover` of the gateway's own, and the headers that go with it; `headers` come on top."""
    meta: JSONObject = {
        PROTOCOL_VERSION_META_KEY: _VERSION,
        CLIENT_INFO_META_KEY: {"name": "perdure-gateway", "version": version("perdure")},
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    message: JSONObject = {"jsonrpc": "2.0", "id": "probe", "method": DISCOVER, "params": {"_meta": meta}}
    return message, {MCP_PROTOCOL_VERSION_HEADER: _VERSION, MCP_METHOD_HEADER: DISCOVER, **headers}
