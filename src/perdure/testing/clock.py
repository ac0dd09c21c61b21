"""Time that stands still unless it is moved."""

from __future__ import annotations

from typing import Final

__all__ = ["START", "VirtualClock"]

START: Final = 1_800_000_000_000
"""Some day in 2027, in milliseconds since the epoch."""


class VirtualClock:
    """A clock for a store. Read from any thread, moved by the test.

    It speaks milliseconds, as everything that a store is told. To move time under a `Harness`, call the harness: its
    `advance` takes durations, and runs what becomes due.
    """

    def __init__(self, now: int = START) -> None:
        self.now = now
        """Milliseconds since the epoch."""

    def __call__(self) -> int:
        """The time."""
        return self.now

    def advance(self, ms: int) -> None:
        """Move the clock by so many milliseconds."""
        self.now += ms
