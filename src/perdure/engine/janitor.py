"""Housekeeping: tasks past their ttl are stopped, finished ones are purged later, tombstones age out.

In bounded batches with a breath between them, so that a million expired tasks never hold up a client's write for longer
than one batch takes. Any number of replicas may keep house at once: each batch is one atomic verb of the store, and a
task that one has taken is gone for the others.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.domain.errors import StoreUnavailable
from perdure.store.base import Store

__all__ = ["Janitor"]

logger = logging.getLogger(__name__)

_BATCH = 200


class Janitor:
    """Keeps a store tidy.

    `linger_ms`: how long a finished task stays readable after its ttl, so that a client which polls slowly still sees
    how it ended. `tombstone_ms`: how long after the purge its owner hears that it expired, rather than that there is no
    such task.
    """

    def __init__(self, store: Store, *, linger_ms: int, tombstone_ms: int, every_ms: int = 1000) -> None:
        self._store = store
        self._linger_ms = linger_ms
        self._tombstone_ms = tombstone_ms
        self._every = every_ms / 1000

    async def sweep(self) -> bool:
        """One batch of each kind. Returns whether there may be more."""
        expired = await self._store.expire(_BATCH)
        purged = await self._store.purge(_BATCH, linger_ms=self._linger_ms, tombstone_ms=self._tombstone_ms)
        return _BATCH in (expired, purged)

    async def keep_house(self) -> None:
        """Sweep again and again, until cancelled."""
        while True:
            more = False
            try:
                more = await self.sweep()
            except StoreUnavailable:
                logger.warning("could not keep house: the store is unavailable")
            await asyncio.sleep(0.01 if more else self._every)
