"""A process's engine as a whole: store, hub, worker and janitor, started and stopped in order.

The order of the end matters. The worker goes first, since it still has to write what its tasks came to; the janitor is
only cancelled; the store goes last and commits what is queued. The end is shielded: a server that is being cancelled
(Ctrl-C, a closed pipe) still hands its tasks over, for no longer than the grace period and a little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
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

_RESTART_AFTER = 1.0
"""Seconds between the crash of a part of the engine and its next beginning."""
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
        self._worker: Worker | None = None
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Everything is up inside.

        Raises:
            StoreUnusable: before anything else was started.
        """
        self._stopping = False
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
        # Not in a group: its end is bounded here, and a group would wait for a part that hangs.
        janitor = asyncio.create_task(_again_and_again("janitor", self._janitor().keep_house))
        serving = asyncio.create_task(_again_and_again("worker", self._serve)) if self.options.worker else None
        try:
            yield
        finally:
            with anyio.move_on_after(self.options.grace_ms / 1000 + _MARGIN, shield=True):
                await self._stop(janitor, serving)

    async def _stop(self, janitor: asyncio.Task[None], serving: asyncio.Task[None] | None) -> None:
        self._stopping = True
        if self._worker is not None:
            self._worker.stop()
        try:
            if serving is not None:
                await asyncio.wait({serving})
        finally:
            for task in (janitor, *((serving,) if serving else ())):
                task.cancel()
            await asyncio.gather(janitor, return_exceptions=True)

    async def _serve(self) -> None:
        if not self._stopping:
            self._worker = self._new_worker()
            await self._worker.serve()

    def _new_worker(self) -> Worker:
        options = self.options
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


async def _again_and_again(name: str, part: Callable[[], Awaitable[None]]) -> None:
    """Run a part until it ends by itself. One that crashes is begun anew after a while.

    A bug there must not leave a server behind that hands out handles and runs nothing. What the crashed worker held is
    freed when its lease has lapsed.
    """
    while True:
        try:
            await part()
        except Exception:  # the boundary around a whole part of the engine
            logger.critical("the %s crashed; beginning anew in %g s", name, _RESTART_AFTER, exc_info=True)
            await asyncio.sleep(_RESTART_AFTER)
        else:
            return
