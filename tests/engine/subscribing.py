"""What the tests of listening work with: snapshots that are kept up, and reading what a subscription hands out."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

from perdure.domain.limits import Limits
from perdure.domain.model import Task
from perdure.engine.snapshots import Snapshots
from perdure.engine.subscription import Subscription
from perdure.store.base import Store
from tests.support import PATIENCE

T = TypeVar("T")


@dataclass
class Bounds:
    subscriptions: int | None = None
    owner_subscriptions: int | None = None
    subscribed_tasks: int | None = None
    owner_subscribed_tasks: int | None = None
    limits: Limits = field(default_factory=Limits)


class Hands:
    """A clock that stands still: nothing is asked for just because time goes by."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


@asynccontextmanager
async def listening(
    store: Store, bounds: Bounds | None = None, clock: Callable[[], float] = perf_counter
) -> AsyncGenerator[Snapshots]:
    """The snapshots of a process, kept up inside."""
    within = bounds or Bounds()
    snapshots = Snapshots(lambda: store, lambda: within, clock)
    unsubscribe = store.subscribe(snapshots.notify)
    snapshots.open()
    keeping = asyncio.create_task(snapshots.keep_up())
    try:
        yield snapshots
        assert not keeping.done(), keeping.exception()
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        unsubscribe()


async def now(awaitable: Awaitable[T]) -> T:
    """What must come without anybody's doing."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def seen(subscription: Subscription) -> Task:
    """What it hands out next."""
    snapshot = await now(subscription.next())
    assert snapshot is not None, "it is over"
    return snapshot.task


async def several(subscription: Subscription, count: int) -> list[Task]:
    """What it hands out next, so many times."""
    return [await seen(subscription) for _ in range(count)]


async def pending(subscription: Subscription) -> list[Task]:
    """All that it has to hand out as things are."""
    return await several(subscription, len(subscription.pending))


async def rest(subscription: Subscription) -> list[Task]:
    """What it hands out until it is over."""
    tasks: list[Task] = []
    while (snapshot := await now(subscription.next())) is not None:
        tasks.append(snapshot.task)
    return tasks
