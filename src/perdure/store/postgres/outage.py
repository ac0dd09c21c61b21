"""A database that is away, in the log: one line when that begins, and one when it is over.

Everybody who uses the store tries again and again meanwhile, several times a second; what each of them hears is the
same, and a log that says it each time would hide what else there is.
"""

from __future__ import annotations

import logging
from time import monotonic

__all__ = ["Outage"]

logger = logging.getLogger(__name__)


class Outage:
    """Whether the database is away, as far as this process knows. `what` is how the log calls it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None

    def begins(self, why: str) -> None:
        """It could not be used."""
        if self._since is None:
            self._since = monotonic()
            logger.warning("%s can't be used, and is tried again until it can: %s", self._what, why)

    def ends(self) -> None:
        """It could be used."""
        if self._since is not None:
            logger.warning("%s can be used again, after %.1f s", self._what, monotonic() - self._since)
            self._since = None
