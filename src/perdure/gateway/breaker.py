"""Whether to ask a backend at all: the circuit breaker of one. Pure; its clock is given, in seconds.

Closed, it lets everything through and counts. When enough of what was asked lately failed, and at least a certain part
of it, it opens: the backend is left alone for a pause, and whoever asks hears at once when to come back. After the
pause it is half open: one request goes through as a trial. If that comes back, it closes; if it fails, the next pause
is twice as long, up to a bound.

What is a failure is decided by whoever makes the fault (`Fault.counts`): a transport that breaks, a status of 5xx, a
time-out, nonsense; never a JSON-RPC error, which is a backend that works and says no. A time-out of a call that runs
somebody's code is none either: else one client's slow calls would shut the backend for all others. For the same reason
it goes by the part that failed: a request that always fails can be sent by anybody, as often as they like.

An answer that belongs to what was asked before the breaker last changed is not counted: it tells of a time that is
over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["Breaker", "BreakerBounds", "Permit", "Position"]

_PARTS: Final = 10
"""Of the window, which is forgotten one part at a time."""


class Position(Enum):
    """What a breaker does with a request."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerBounds:
    """When a breaker opens, and for how long.

    Args:
        failures: that there have to be at least within the window.
        part: of all requests of the window that failed, from 0 to 1.
        window: seconds.
        pause: seconds that it stays open the first time.
        longest: seconds that it stays open at most.
    """

    failures: int = 5
    part: float = 0.5
    window: float = 30.0
    pause: float = 1.0
    longest: float = 30.0


@dataclass(slots=True)
class _Count:
    since: float
    good: int = 0
    bad: int = 0


class Permit:
    """Leave to send one request. One of the three has to be called once it is over; what is called later is ignored."""

    __slots__ = ("_breaker", "_era", "_over")

    def __init__(self, breaker: Breaker, era: int) -> None:
        self._breaker = breaker
        self._era = era
        self._over = False

    def good(self) -> None:
        """It was answered."""
        self._end(True)

    def bad(self) -> None:
        """It failed in a way that counts."""
        self._end(False)

    def nothing(self) -> None:
        """How it ended says nothing of the backend: its client went away, say."""
        self._end(None)

    def _end(self, well: bool | None) -> None:
        if not self._over:
            self._over = True
            self._breaker.ended(self._era, well)


class Breaker:
    """The breaker of one backend. `changed`: is told when it has opened (True), and when it has closed."""

    def __init__(
        self, bounds: BreakerBounds, clock: Callable[[], float], changed: Callable[[bool], None] = lambda _: None
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._changed = changed
        self._counts: deque[_Count] = deque()
        self._opened: float | None = None
        self._pause = bounds.pause
        self._trying = False
        self._era = 0

    @property
    def position(self) -> Position:
        """Where it stands now."""
        if self._opened is None:
            return Position.CLOSED
        return Position.OPEN if self._remaining() > 0 else Position.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds after which a request may get through; 0: now."""
        return self._bounds.pause if self._trying else self._remaining()

    def ask(self) -> Permit | None:
        """Leave to send one request, or None: see `wait`."""
        if self._opened is not None:
            if self.wait > 0:
                return None
            self._trying = True
        return Permit(self, self._era)

    def failed(self) -> None:
        """Something that was answered went wrong afterwards: a stream broke off. It counts as a request that failed."""
        if self._opened is None:
            self._count(False)

    def open(self) -> None:
        """Leave the backend alone for a pause, whatever was counted: somebody found out that it is not well."""
        self._change(self._clock())

    def close(self) -> None:
        """Let everything through again: somebody found out that it is well."""
        self._change(None)

    def ended(self, era: int, well: bool | None) -> None:
        """How a request ended that was let through in `era`."""
        if era != self._era:
            return
        if self._opened is None:
            if well is not None:
                self._count(well)
            return
        self._trying = False
        if well is not None:
            self._change(None if well else self._clock())

    def _count(self, well: bool) -> None:
        now = self._clock()
        count = self._current(now)
        if well:
            count.good += 1
            return
        count.bad += 1
        bad = sum(each.bad for each in self._counts)
        good = sum(each.good for each in self._counts)
        if bad >= self._bounds.failures and bad >= self._bounds.part * (bad + good):
            self._change(now)

    def _current(self, now: float) -> _Count:
        while self._counts and now - self._counts[0].since >= self._bounds.window:
            self._counts.popleft()
        if not self._counts or now - self._counts[-1].since >= self._bounds.window / _PARTS:
            self._counts.append(_Count(now))
        return self._counts[-1]

    def _change(self, opened: float | None) -> None:
        if opened is None:
            self._pause = self._bounds.pause
        elif self._opened is not None:
            self._pause = min(self._bounds.longest, self._pause * 2)
        before, self._opened = self._opened, opened
        self._trying = False
        self._counts.clear()
        self._era += 1
        if (before is None) != (opened is None):
            self._changed(opened is not None)

    def _remaining(self) -> float:
        return 0.0 if self._opened is None else max(0.0, self._opened + self._pause - self._clock())
