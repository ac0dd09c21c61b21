"""The clock of an embedded store: wall time that waits out small steps back.

Leases, expiry and timestamps of one SQLite file are compared across processes of one machine, so they need wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "WallClock"]

Clock = Callable[[], int]
"""Milliseconds since the Unix epoch, UTC."""


_SMALL_STEP = 1000
"""Milliseconds. What a clock that is kept in time may be set back by at once."""


class WallClock:
    """The machine's wall clock, and small steps back are waited out: it stands still until time has caught up.

    A large step back means that the clock was wrong before it, and standing still until that wrong time comes would
    freeze every lease and ttl. So it is followed; `lifecycle.apply` keeps a task's own times in order all the same.

    Safe to call from any thread: a lost race returns a slightly older reading.
    """

    def __init__(self, source: Callable[[], float] = time.time) -> None:
        self._source = source
        self._latest = 0

    def __call__(self) -> int:
        now = int(self._source() * 1000)
        self._latest = self._latest if 0 < self._latest - now <= _SMALL_STEP else now
        return self._latest
