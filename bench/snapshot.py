"""What a snapshot that stays open costs a claim: part of `bench.store`, on PostgreSQL.

As long as a transaction may still look at old rows, nothing that was updated or deleted since can be cleaned up, and
whoever looks for the next run walks over what is left of all the others. A backup or a report holds one for a minute.
So tasks are made at a steady rate, claimed and completed by one worker as they come, each claim is timed, and nearly
all of that time another connection has a snapshot open. What counts is the end, when the most has gathered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from perdure.domain.model import Claim, Completed, Demand, NewTask
from perdure.store.base import Store

from . import report
from .backends import PostgreSQL

__all__ = ["Beside", "Load", "measure"]

TARGET: Final = 4.0
"""Times the claim in a store with nothing in it and nothing else to do."""

_LAST: Final = 6
"""The end is the last one of so many parts."""
_TICK: Final = 0.01
_SLOTS: Final = 128
_LEASE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Beside:
    """Seconds of each claim that got something: before the snapshot, at its end, and after it; and the true rate."""

    before: list[float]
    at_end: list[float]
    after: list[float]
    rate: float
    held: float

    def lines(self, empty: float) -> Iterator[report.Line]:
        """`empty`: the median of a claim in a store with nothing in it."""
        yield report.measured(f"claim, {self.rate:,.0f} tasks/s, no snapshot", report.latencies(self.before))
        yield report.measured(f"claim, a snapshot held for {self.held:g} s", report.latencies(self.at_end))
        ratio = median(self.at_end) / empty
        yield report.at_most("  p50 to p50 of nothing stored", [ratio], TARGET, "{:.2f} times".format)
        yield report.measured("claim, after the snapshot", report.latencies(self.after))


@dataclass(slots=True)
class Load:
    """Tasks at a steady rate, and a worker that claims and completes them as they come."""

    new_task: Callable[[], NewTask]
    result: Completed
    rate: int
    claims: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When each began, and its seconds."""
    completed: int = 0
    _work: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncGenerator[None]:
        awake = asyncio.Event()
        unsubscribe = store.subscribe(lambda change: awake.set() if change is None or change.runnable else None)
        session = await store.open_session(_LEASE_MS, {})
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(self._create(store)), group.create_task(self._claim(store, session.id, awake))]
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                unsubscribe()
        await asyncio.gather(*self._work)
        await store.close_session(session.id)

    def between(self, start: float, end: float) -> list[float]:
        return [seconds for at, seconds in self.claims if start <= at < end]

    async def _create(self, store: Store) -> None:
        """By a timetable: what a slow moment has delayed comes all the sooner after it."""
        started, made = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - started) * self.rate)
            for _ in range(due - made):
                self._begin(store.create(self.new_task()))
            made = due
            await asyncio.sleep(_TICK)

    async def _claim(self, store: Store, session_id: str, awake: asyncio.Event) -> None:
        handler = self.new_task().operation.handler
        while True:
            awake.clear()
            started = time.perf_counter()
            found = await store.claim(session_id, [Demand(handler, _SLOTS)], _SLOTS)
            if found:
                self.claims.append((started, time.perf_counter() - started))
                for claim in found:
                    self._begin(self._finish(store, claim))
            else:
                await awake.wait()

    async def _finish(self, store: Store, claim: Claim) -> None:
        await store.finish(claim, self.result)
        self.completed += 1

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def measure(backend: PostgreSQL, name: str, load: Load, held: float) -> Beside:
    """Hold a snapshot of that store for so many seconds of the load; a part of that before it and after it."""
    part = held / _LAST
    report.say(f"a snapshot for {held:g} s")
    store = backend.store(name)
    await store.open()
    try:
        async with load.running(store):
            await asyncio.sleep(part)
            began, done = time.perf_counter(), load.completed
            async with backend.snapshot(name):
                await asyncio.sleep(held)
                ended, done = time.perf_counter(), load.completed - done
            await asyncio.sleep(part)
        return Beside(
            load.between(0, began),
            load.between(ended - part, ended),
            load.between(ended, time.perf_counter()),
            done / (ended - began),
            held,
        )
    finally:
        await store.close()
