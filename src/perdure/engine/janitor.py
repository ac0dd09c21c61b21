"""Housekeeping: tasks past their ttl are stopped, finished ones are purged later, tombstones age out.

And runs that are long past their deadline are freed. Their workers should have ended them, so this is the net below
that: what it catches is a worker whose lease is renewed while the part of it that watches the deadline is stuck.

In bounded batches with a breath between them, so that a million expired tasks never hold up a client's write for longer
than one batch takes. Any number of replicas may keep house at once: each batch is one atomic verb of the store, and a
task that one has taken is gone for the others.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.domain.errors import StoreUnavailable
from perdure.store.base import Housekeeping

__all__ = ["Janitor"]

logger = logging.getLogger(__name__)

_BATCH = 200


class Janitor:
    """Keeps a store tidy.

    `linger_ms`: how long a finished task stays readable after its ttl, so that a client which polls slowly still sees
    how it ended. `tombstone_ms`: how long after the purge its owner hears that it expired, rather than that there is no
    such task. `late_ms`: how long past its deadline a run is left to its worker.
    """

    def __init__(
        self, store: Housekeeping, *, linger_ms: int, tombstone_ms: int, late_ms: int = 60_000, every_ms: int = 1000
    ) -> None:
        self._store = store
        self._late_ms = late_ms
        self._linger_ms = linger_ms
        self._tombstone_ms = tombstone_ms
        self._every = every_ms / 1000

    async def sweep(self) -> bool:
        """One batch of each kind. Returns whether there may be more."""
        expired = await self._store.expire(_BATCH)
        overdue = await self._store.free_overdue(_BATCH, late_ms=self._late_ms)
        purged = await self._store.purge(_BATCH, linger_ms=self._linger_ms, tombstone_ms=self._tombstone_ms)
        return _BATCH in (expired, overdue, purged)

    async def keep_house(self) -> None:
        """Sweep again and again, until cancelled."""
        while True:
            more = False
            try:
                more = await self.sweep()
            except StoreUnavailable:
                logger.debug("could not keep house: the store is unavailable")
            await asyncio.sleep(0.01 if more else self._every)
