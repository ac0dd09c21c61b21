"""A process's engine as a whole: store, hub, worker and janitor, started and stopped in order.

The order of the end matters. The worker goes first, since it still has to write what its tasks came to; the janitor is
only cancelled; the store goes last and commits what is queued. The end is shielded: a server that is being cancelled
(Ctrl-C, a closed pipe) still hands its tasks over, for no longer than the grace period and a little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from perdure.store.base import Store

from .handler import Handlers
from .janitor import Janitor
from .wake import Hub
from .worker import Worker

__all__ = ["Options", "Runtime"]

logger = logging.getLogger(__name__)

_MARGIN = 5.0
"""Seconds on top of the grace period after which a shutdown is given up: the leases then do the rest."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a process takes part. All times in milliseconds."""

    worker: bool = True
    concurrency: int = 32
    lease_ms: int = 30_000
    grace_ms: int = 10_000
    poll_ms: int = 500
    linger_ms: int = 300_000
    tombstone_ms: int = 86_400_000


class Runtime:
    """The engine of one process. `running()` may be entered again after it was left."""

    def __init__(self, store: Store, handlers: Handlers, options: Options) -> None:
        self.store = store
        self.hub = Hub()
        self._handlers = handlers
        self.options = options

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Everything is up inside.

        Raises:
            StoreUnusable: before anything else was started.
        """
        try:
            await self.store.open()
            unsubscribe = self.store.subscribe(self.hub.notify)
            try:
                async with self._serving():
                    yield
            finally:
                unsubscribe()
        finally:  # also when opening failed or was cancelled halfway
            with anyio.CancelScope(shield=True):
                await self.store.close()

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        worker = self._worker()
        tasks = [asyncio.create_task(self._janitor().keep_house(), name="perdure-janitor")]
        if worker is not None:
            tasks.append(asyncio.create_task(worker.serve(), name="perdure-worker"))
        for task in tasks:
            task.add_done_callback(_log_crash)
        try:
            yield
        finally:
            with anyio.move_on_after(self.options.grace_ms / 1000 + _MARGIN, shield=True):
                await self._stop(worker, tasks)

    async def _stop(self, worker: Worker | None, tasks: list[asyncio.Task[None]]) -> None:
        janitor, *serving = tasks
        if worker is not None:
            worker.stop()
        try:
            await asyncio.gather(*serving, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(janitor, return_exceptions=True)

    def _worker(self) -> Worker | None:
        options = self.options
        if not options.worker:
            return None
        return Worker(
            self.store,
            self._handlers,
            concurrency=options.concurrency,
            lease_ms=options.lease_ms,
            grace_ms=options.grace_ms,
            poll_ms=options.poll_ms,
        )

    def _janitor(self) -> Janitor:
        return Janitor(self.store, linger_ms=self.options.linger_ms, tombstone_ms=self.options.tombstone_ms)


def _log_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("%s crashed", task.get_name(), exc_info=error)
