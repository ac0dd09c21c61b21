"""The clock of an embedded store: wall time that never runs backwards within a process.

Leases, expiry and timestamps of one SQLite file are compared across processes of one machine, so they need wall time. A
step backwards (NTP, a resumed laptop) must not make a task younger than it was, so each reading is at least the one
before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "WallClock"]

Clock = Callable[[], int]
"""Milliseconds since the Unix epoch, UTC."""


class WallClock:
    """The machine's wall clock, made monotonic.

    Safe to call from any thread: a lost race returns a slightly older reading.
    """

    def __init__(self, source: Callable[[], float] = time.time) -> None:
        self._source = source
        self._latest = 0

    def __call__(self) -> int:
        self._latest = max(self._latest, int(self._source() * 1000))
        return self._latest
