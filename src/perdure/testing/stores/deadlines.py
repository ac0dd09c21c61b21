"""Runs that are past their deadline though their worker is alive: it should have ended them, and somebody has to."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import LeaseLost
from perdure.domain.model import Change, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    DONE,
    LEASE,
    NOW,
    Changes,
    hire,
    new_task,
    running,
    take,
)

TIMEOUT = 5_000
LATE = 1_000


async def test_the_deadline_counts_from_each_claim(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT))
    assert claim.deadline_at == NOW + TIMEOUT
    await store.release(claim)
    clock.advance(700)
    again = await take(store)
    assert again is not None
    assert again.deadline_at == NOW + 700 + TIMEOUT


async def test_a_run_without_a_bound_has_no_deadline_and_is_never_overdue(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    assert claim.deadline_at is None
    clock.advance(10**12)
    assert await store.free_overdue(10, late_ms=LATE) == 0
    await store.finish(claim, DONE)


async def test_a_run_is_freed_when_it_is_later_than_it_may_be_and_not_before(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT))
    changes.clear()
    clock.advance(TIMEOUT + LATE)
    assert await store.free_overdue(10, late_ms=LATE) == 0
    await store.report(claim, "still here")
    changes.clear()
    clock.advance(1)
    assert await store.free_overdue(10, late_ms=LATE) == 1
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]
    with pytest.raises(LeaseLost):
        await store.finish(claim, DONE)
    again = await take(store)
    assert again is not None
    assert (again.seq, again.attempt, again.deaths, again.failures) == (claim.seq, 2, 1, 0)


async def test_it_is_an_event_of_its_own_kind(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT))
    clock.advance(TIMEOUT + 1)
    await store.free_overdue(10, late_ms=0)
    events = (await store.inspect(claim.task.id)).events
    assert events == (timeline.overran(NOW + TIMEOUT + 1, 1, 10),)


async def test_its_worker_keeps_its_lease_and_its_other_runs(store: Store, clock: VirtualClock) -> None:
    await store.create(new_task(timeout_ms=TIMEOUT))
    await store.create(new_task())
    worker = await hire(store)
    _, other = await worker.claim()
    clock.advance(TIMEOUT + 1)
    assert await store.free_overdue(10, late_ms=0) == 1
    await store.report(other, "still mine")
    assert len(await worker.claim()) == 1


async def test_each_overdue_run_is_freed_once(store: Store, clock: VirtualClock) -> None:
    await running(store, new_task(timeout_ms=TIMEOUT))
    clock.advance(TIMEOUT + 1)
    assert [await store.free_overdue(10, late_ms=0) for _ in range(3)] == [1, 0, 0]


async def test_no_more_are_freed_than_the_limit_and_the_longest_overdue_first(
    store: Store, clock: VirtualClock
) -> None:
    late = await running(store, new_task(timeout_ms=2_000))
    later = await running(store, new_task(timeout_ms=1_000))
    clock.advance(3_000)
    assert await store.free_overdue(0, late_ms=0) == 0
    assert await store.free_overdue(1, late_ms=0) == 1
    await store.report(late, "still mine")
    with pytest.raises(LeaseLost):
        await store.report(later, "no longer mine")


async def test_a_task_that_overran_too_often_fails_as_if_its_workers_had_died(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT, max_attempts=2))
    clock.advance(LEASE)
    await store.take_over()
    assert await take(store) is not None
    clock.advance(TIMEOUT + 1)
    assert await store.free_overdue(10, late_ms=0) == 1
    task = await store.get(ADA, claim.task.id)
    assert task.status is Status.FAILED
    assert task.message is not None
    assert "died or went silent 2 times" in task.message
    assert [event.kind for event in (await store.inspect(task.id)).events] == [
        timeline.EventKind.DEATH,
        timeline.EventKind.OVERRUN,
    ]


async def test_a_run_that_was_to_stop_ends_cancelled(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT))
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(TIMEOUT + 1)
    assert await store.free_overdue(10, late_ms=0) == 1
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_run_that_nobody_holds_is_not_overdue(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=TIMEOUT))
    await store.release(claim)
    clock.advance(10 * TIMEOUT)
    assert await store.free_overdue(10, late_ms=0) == 0
