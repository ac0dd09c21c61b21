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
from typing import Final

import anyio

from perdure.domain.names import DISCOVER

from . import own
from .breaker import Position
from .faults import Fault
from .upstream import Upstream

__all__ = ["Health", "HealthBounds"]

_SPREAD: Final = 0.2
"""Of the time between two probes, by which chance moves each."""


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
        client_info: who the probes come from, as the protocol has it.
        chance: from 0 to 1. Several gateways that were started together do not probe together.
        sleep: for so many seconds.
    """

    def __init__(
        self,
        upstream: Upstream,
        bounds: HealthBounds | None = None,
        *,
        client_info: Mapping[str, str] | None = None,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._upstream = upstream
        self._bounds = bounds or HealthBounds()
        self._client_info = client_info or {"name": "perdure-gateway", "version": "1"}
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
            message, headers = own.request(DISCOVER, {"_meta": own.meta(self._client_info)})
            deadline = anyio.current_time() + self._bounds.within
            await self._upstream.probe(message, headers, deadline=deadline)
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
