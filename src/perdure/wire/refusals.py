"""A line in the log for those who were refused because there is too much of something.

Clients are told when to come back; whoever runs the server has to hear of it too, or nobody moves a bound. What is
refused may be refused a thousand times a second, so of each kind there is one line a minute, with how many there were.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["Refusals"]

logger = logging.getLogger(__name__)

_EVERY: Final = 60.0
"""Seconds from one line of a kind to the next."""


class Refusals:
    """Counts them by what clients are told, of which there are a few."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def note(self, why: str) -> None:
        """One more was refused."""
        now = self._clock()
        if now - self._said.get(why, -_EVERY) < _EVERY:
            self._unsaid[why] = self._unsaid.get(why, 0) + 1
            return
        self._said[why] = now
        more = self._unsaid.pop(why, 0)
        logger.warning("a request was refused: %s%s", why, f" (and {more} since the last such line)" if more else "")
