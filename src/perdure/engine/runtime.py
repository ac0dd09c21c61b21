"""A process's engine as a whole: store, hub, snapshots, worker, janitor and watch, started and stopped in order.

The order of the end matters. Those who listen are told first, since a server may wait for them; over pipes even before
the input ends (`end_subscriptions`), since nobody is answered after that. The worker goes next, since it still has to
write what its tasks came to; the others are only cancelled; the store goes last and commits what is queued. The end is
shielded: a server that is being cancelled (Ctrl-C, a closed pipe) still hands its tasks over, for no longer than the
grace period and a little.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

from perdure.domain.limits import Limits
from perdure.domain.model import Change
from perdure.store.base import Store

from .backlog import Backlog
from .handler import Handlers
from .janitor import Janitor
from .opened import Opened
from .pace import Pace
from .sealers import Company, Sealing, about, described
from .snapshots import Snapshots
from .unanswered import Unanswered
from .unclaimed import Watch
from .wake import Hub
from .worker import Worker

__all__ = ["Options", "Runtime"]

logger = logging.getLogger(__name__)

_RESTART_AFTER = 1.0
"""Seconds between the crash of a part of the engine and its next beginning."""
_MARGIN = 5.0
"""Seconds on top of the grace period after which a shutdown is given up: the leases then do the rest."""

_LAST_WORD = 20
_LAST_WORD_OF_ONE = 8
"""Turns of a thread for the results of streams to be on their way, once their subscriptions are given back; of one
more. It takes two to write one, so these are enough on a busy machine too, where seconds would not be."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a process takes part. All times in milliseconds.

    `queues`: those that its worker serves, each with how many runs it may have at once (None: as many as the worker);
    None in place of the map: all. `backlog` and `tenant_backlog`: how many tasks may wait to be run, in all and of one
    tenant, before another is refused; `owner_tasks`: how many unfinished ones an owner may have. `subscriptions` and
    `owner_subscriptions`: how many may be open, in all and of one owner; `subscribed_tasks` and
    `owner_subscribed_tasks`: of how many tasks together, one that several ask for counting as often. `polls`: how many
    the process should have to answer per second; `owner_polls`: how many of one owner it answers. `sealing`: under
    which key its store seals, which is said to others.
    """

    worker: bool = True
    concurrency: int = 32
    queues: Mapping[str, int | None] | None = None
    backlog: int | None = 10_000
    tenant_backlog: int | None = None
    owner_tasks: int | None = 1_000
    subscriptions: int | None = 10_000
    owner_subscriptions: int | None = 1_000
    subscribed_tasks: int | None = 100_000
    owner_subscribed_tasks: int | None = 10_000
    polls: int | None = 1_000
    owner_polls: int | None = 1_000
    limits: Limits = field(default_factory=Limits)
    sealing: Sealing = None
    lease_ms: int = 30_000
    grace_ms: int = 10_000
    cleanup_ms: int = 10_000
    poll_ms: int = 450
    linger_ms: int = 300_000
    tombstone_ms: int = 86_400_000


class Runtime:
    """The engine of one process. `running()` may be entered again after it was left."""

    def __init__(self, store: Store, handlers: Handlers, options: Options) -> None:
        self.store = store
        self.opened = Opened(lambda: self.store)
        self.hub = Hub()
        self._handlers = handlers
        self.options = options
        self.backlog = Backlog(lambda: self.store, lambda: self.options)
        self.pace = Pace(lambda: self.options)
        self.snapshots = Snapshots(lambda: self.store, lambda: self.options)
        self.unanswered = Unanswered(lambda: self.store)
        self._worker: Worker | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Store]:
        """The store, open inside: for as long as anybody in this process uses it, whether the engine runs or not.

        Raises:
            StoreUnusable: it can't be opened.
            ConfigurationError: another event loop of this process has it open.
        """
        async with self.opened.here() as store:
            yield store

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Everything is up inside.

        Raises:
            StoreUnusable, ConfigurationError: as `connected`, before anything else was started.
        """
        self._stopping = False
        async with self.connected() as store:
            unsubscribe = store.subscribe(self._notify)
            self.snapshots.open()
            self._loop = asyncio.get_running_loop()
            try:
                async with self._serving():
                    yield
            finally:
                self._loop = None
                self.snapshots.close()
                unsubscribe()

    def _notify(self, change: Change | None) -> None:
        self.hub.notify(change)
        self.snapshots.notify(change)

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        # Not in a group: its end is bounded here, and a group would wait for a part that hangs.
        others = [
            asyncio.create_task(_again_and_again("janitor", self._janitor().keep_house)),
            asyncio.create_task(_again_and_again("watch", Watch(self.store).keep_watch)),
            asyncio.create_task(_again_and_again("snapshots", self.snapshots.keep_up)),
            asyncio.create_task(_again_and_again("unanswered", self.unanswered.keep_watch)),
        ]
        if (sealing := self.options.sealing) is not None:
            logger.info("what is in tasks is %s", described(sealing))
            others.append(asyncio.create_task(_again_and_again("company", Company(self.store, sealing).keep_watch)))
        serving = asyncio.create_task(_again_and_again("worker", self._serve)) if self.options.worker else None
        try:
            yield
        finally:
            with anyio.move_on_after(self.options.grace_ms / 1000 + _MARGIN, shield=True):
                await self._stop(others, serving)

    def stop_working(self) -> None:
        """Begin the end ahead of the rest's: no more claims, the grace period begins, and nobody listens any longer.

        Those who do would hold up a server that waits for its open requests.
        """
        self._stopping = True
        self.snapshots.close()
        if self._worker is not None:
            self._worker.stop()

    def end_subscriptions(self, within: float) -> None:
        """End all of them, and wait until those who read them are through, for so many seconds at most.

        From another thread than the loop's.
        """
        if self._loop is None:
            return
        with suppress(RuntimeError, TimeoutError, CancelledError):  # the loop is over, somebody does not read, it ends
            seeing_off = asyncio.run_coroutine_threadsafe(self._see_off(), self._loop)
            try:
                seeing_off.result(within)
            finally:
                seeing_off.cancel()

    async def _see_off(self) -> None:
        open_by_now = self.snapshots.subscribed
        self.snapshots.close()
        await self.snapshots.given_back()
        # Each is given back before its result is written, and nobody says when that is.
        for _ in range(_LAST_WORD + open_by_now * _LAST_WORD_OF_ONE):
            await asyncio.to_thread(_nothing)

    async def _stop(self, others: list[asyncio.Task[None]], serving: asyncio.Task[None] | None) -> None:
        self.stop_working()
        try:
            if serving is not None:
                await asyncio.wait({serving})
        finally:
            for task in (*others, *((serving,) if serving else ())):
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

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
            cleanup_ms=options.cleanup_ms,
            poll_ms=options.poll_ms,
            queues=options.queues,
            limits=options.limits,
            about=about(options.sealing),
        )

    def _janitor(self) -> Janitor:
        options = self.options
        late_ms = options.cleanup_ms + options.lease_ms
        return Janitor(self.store, linger_ms=options.linger_ms, tombstone_ms=options.tombstone_ms, late_ms=late_ms)


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


def _nothing() -> None:
    """A turn of a thread."""
