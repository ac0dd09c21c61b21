"""Housekeeping: in batches, one after the other without a long pause, and through a store that is away for a while."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from perdure.domain.errors import LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.model import Demand, Status, Task
from perdure.domain.timeline import EventKind
from perdure.engine.janitor import Janitor
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import HANDLER, claim_as_another, status
from tests.store.support import ADA, BOB, VirtualClock, new_task
from tests.support import eventually

BATCH = 200
HOUR = 3_600_000


@asynccontextmanager
async def keeping_house(janitor: Janitor) -> AsyncGenerator[None]:
    task = asyncio.create_task(janitor.keep_house())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def overdue(store: Store, clock: VirtualClock, count: int) -> list[Task]:
    tasks = list(await asyncio.gather(*(store.create(new_task(ttl_ms=1000)) for _ in range(count))))
    clock.advance(1000)
    return tasks


async def test_a_sweep_is_one_batch_of_each_kind_and_says_whether_there_may_be_more(
    store: Store, clock: VirtualClock
) -> None:
    tasks = await overdue(store, clock, 2 * BATCH + 1)
    janitor = Janitor(store, linger_ms=0, tombstone_ms=HOUR)

    async def left() -> tuple[int, int]:
        """How many tasks are unfinished, and how many can be read at all."""
        seen = [await _look(store, task) for task in tasks]
        return seen.count(Status.WORKING), len(seen) - seen.count(None)

    assert await janitor.sweep()
    assert await left() == (BATCH + 1, BATCH + 1)
    assert await janitor.sweep()
    assert await left() == (1, 1)
    assert not await janitor.sweep()
    assert await left() == (0, 0)
    assert not await janitor.sweep()


async def _look(store: Store, task: Task) -> Status | None:
    try:
        return await status(store, task)
    except TaskExpired:
        return None


async def test_a_finished_task_lingers_and_leaves_a_tombstone_that_ages(store: Store, clock: VirtualClock) -> None:
    (task,) = await overdue(store, clock, 1)
    janitor = Janitor(store, linger_ms=500, tombstone_ms=2000)
    await janitor.sweep()
    assert await status(store, task) is Status.FAILED
    clock.advance(500)
    await janitor.sweep()
    with pytest.raises(TaskExpired):
        await store.get(ADA, task.id)
    with pytest.raises(TaskNotFound):
        await store.get(BOB, task.id)
    clock.advance(2000)
    await janitor.sweep()
    with pytest.raises(TaskNotFound):
        await store.get(ADA, task.id)


async def test_a_backlog_is_worked_off_without_waiting_for_the_next_round(rigged: Rigged, clock: VirtualClock) -> None:
    tasks = await overdue(rigged, clock, 3 * BATCH)
    async with keeping_house(Janitor(rigged, linger_ms=HOUR, tombstone_ms=HOUR, every_ms=HOUR)):
        await eventually(lambda: rigged.calls.count("expire") == 4, "it stopped in the middle")
    assert {await status(rigged, task) for task in tasks} == {Status.FAILED}


@pytest.mark.parametrize("verb", ["expire", "free_overdue", "purge"])
async def test_housekeeping_goes_on_after_the_store_was_away(rigged: Rigged, clock: VirtualClock, verb: str) -> None:
    (task,) = await overdue(rigged, clock, 1)
    rigged.fail(verb, 3)
    async with keeping_house(Janitor(rigged, linger_ms=0, tombstone_ms=HOUR, every_ms=10)):
        await eventually(lambda: rigged.calls.count("purge") >= 4, "it gave up")
    with pytest.raises(TaskExpired):
        await rigged.get(ADA, task.id)


async def test_runs_that_are_long_past_their_deadline_are_freed_though_their_worker_is_alive(
    store: Store, clock: VirtualClock
) -> None:
    """Their worker should have ended them: it has until `late_ms` after it."""
    task = await store.create(new_task(timeout_ms=1000))
    claim = await claim_as_another(store)
    janitor = Janitor(store, linger_ms=0, tombstone_ms=HOUR, late_ms=500)
    clock.advance(1500)
    await janitor.sweep()
    assert await store.backlog(10) == {}
    clock.advance(1)
    assert not await janitor.sweep()
    with pytest.raises(LeaseLost):
        await store.report(claim, "still here")
    again = await claim_as_another(store)
    assert (again.task.id, again.deaths, again.deadline_at) == (task.id, 1, clock.now + 1000)
    assert [event.kind for event in (await store.inspect(task.id)).events] == [EventKind.OVERRUN]


async def test_a_task_whose_runs_all_overrun_fails_when_its_attempts_are_used_up(
    store: Store, clock: VirtualClock
) -> None:
    task = await store.create(new_task(timeout_ms=1000, max_attempts=2))
    janitor = Janitor(store, linger_ms=HOUR, tombstone_ms=HOUR, late_ms=0)
    for _ in range(2):
        await claim_as_another(store)
        clock.advance(1001)
        await janitor.sweep()
    over = await store.get(ADA, task.id)
    assert over.status is Status.FAILED
    assert over.error is not None
    assert "2 times" in over.error.message


async def test_overdue_runs_are_freed_in_batches_too(rigged: Rigged, clock: VirtualClock) -> None:
    for _ in range(BATCH + 1):
        await rigged.create(new_task(timeout_ms=1000))
    session = await rigged.open_session(HOUR, {})
    await rigged.claim(session.id, [Demand(HANDLER, 2 * BATCH)], 2 * BATCH)
    clock.advance(1001)
    janitor = Janitor(rigged, linger_ms=0, tombstone_ms=HOUR, late_ms=0)
    assert [await janitor.sweep(), (await rigged.backlog(HOUR))["acme"]] == [True, BATCH]
    assert [await janitor.sweep(), (await rigged.backlog(HOUR))["acme"]] == [False, BATCH + 1]
