"""Cancelling a task whose code has something to do about it: it waits for work elsewhere, which is to stop as well."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from perdure.domain import timeline
from perdure.domain.journal import EntryState, Waits
from perdure.domain.model import Change, Claim, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    LEASE,
    NAME,
    NOW,
    TOKEN,
    Changes,
    Worker,
    asks,
    both,
    elsewhere,
    external,
    hire,
    new_task,
    running,
    step,
    take,
    waiting,
)

MINDS = elsewhere(ms=60_000, minds_cancel=True)
ASKS_TOO = Waits(asks(name=NAME).asked, MINDS.begun, MINDS.places, minds_cancel=True)


@pytest.mark.parametrize("waits", [MINDS, ASKS_TOO], ids=["working", "input_required"])
async def test_a_task_that_minds_is_made_due_with_the_intent_instead_of_being_cancelled(
    store: Store, clock: VirtualClock, changes: Changes, waits: Waits
) -> None:
    claim = await waiting(store, waits)
    before = await store.get(ADA, claim.task.id)
    clock.advance(10)
    changes.clear()
    task = await store.request_cancel(ADA, claim.task.id)
    assert (task.status, task.cancel_requested, task.inputs) == (Status.WORKING, True, ())
    assert (task.version, task.updated_at) == (before.version + 1, NOW + 10)
    assert await store.get(ADA, task.id) == task
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True, cancel=True)]
    again = await take(store)
    assert again is not None
    assert again.task == task


async def test_asking_twice_is_asking_once(store: Store, clock: VirtualClock, changes: Changes) -> None:
    claim = await waiting(store, MINDS)
    once = await store.request_cancel(ADA, claim.task.id)
    clock.advance(10)
    changes.clear()
    assert await store.request_cancel(ADA, claim.task.id) == once
    assert changes == []
    assert (await store.inspect(claim.task.id)).events == (timeline.cancelled(NOW),)


async def test_a_task_that_does_not_mind_is_cancelled_at_once(store: Store) -> None:
    claim = await waiting(store, both(asks(name=NAME), elsewhere()))
    task = await store.request_cancel(ADA, claim.task.id)
    assert (task.status, task.inputs) == (Status.CANCELLED, ())
    assert await take(store) is None


async def test_a_task_that_minds_and_was_woken_already_hears_of_it_all_the_same(store: Store) -> None:
    claim = await waiting(store, MINDS)
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.WORKING
    again = await take(store)
    assert again is not None
    assert again.task.cancel_requested


async def test_what_is_settled_after_the_request_is_kept(store: Store) -> None:
    claim = await waiting(store, MINDS)
    await store.request_cancel(ADA, claim.task.id)
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, 7)
    again = await (await hire(store)).claim_one()
    assert (await store.journal(again)).entries["0"].over


async def test_a_request_that_came_while_it_was_held_is_not_slept_through(store: Store, changes: Changes) -> None:
    claim = await running(store)
    task = await store.request_cancel(ADA, claim.task.id)
    changes.clear()
    assert await store.park(claim, ASKS_TOO) == task
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True)]
    again = await take(store)
    assert again is not None
    assert again.task == task
    assert set((await store.journal(again)).entries) == {"0"}
    assert set((await store.journal(again)).questions) == {"name"}


async def test_it_is_cancelled_when_its_code_waits_on_and_no_longer_minds(store: Store) -> None:
    claim = await waiting(store, MINDS)
    await store.request_cancel(ADA, claim.task.id)
    again = await (await hire(store)).claim_one()
    assert (await store.park(again, elsewhere())).status is Status.CANCELLED


Leave = Callable[[Store, VirtualClock, Worker, Claim], Awaitable[object]]


async def _release(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    await store.release(claim)


async def _close(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    await store.close_session(worker.session)


async def _give_back(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    assert await store.give_back(worker.session, frozenset({(claim.seq, claim.fence)})) == 1


async def _die(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    clock.advance(LEASE)
    await store.take_over()


async def _overrun(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    clock.advance(6_000)
    await store.free_overdue(10, late_ms=0)


async def _retry(store: Store, clock: VirtualClock, worker: Worker, claim: Claim) -> None:
    await store.retry(claim, 1_000, "no")


leaving = pytest.mark.parametrize("leave", [_release, _close, _give_back, _die, _overrun, _retry])


async def _heard(store: Store, claim: Claim) -> None:
    """Somebody may run the task at once, and hears that it is to stop."""
    again = await take(store)
    assert again is not None
    assert (again.seq, again.task.status, again.task.cancel_requested) == (claim.seq, Status.WORKING, True)


@leaving
async def test_what_its_code_minds_outlives_the_worker_that_held_it(
    store: Store, clock: VirtualClock, changes: Changes, leave: Leave
) -> None:
    claim = await waiting(store, MINDS, new_task(timeout_ms=5_000))
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    worker = await hire(store)
    await leave(store, clock, worker, await worker.claim_one())
    changes.clear()
    task = await store.request_cancel(ADA, claim.task.id)
    assert (task.status, task.cancel_requested) == (Status.WORKING, True)
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True, cancel=True)]
    await _heard(store, claim)


@leaving
async def test_a_request_that_its_worker_did_not_live_to_hear_is_heard_by_the_next(
    store: Store, clock: VirtualClock, changes: Changes, leave: Leave
) -> None:
    claim = await waiting(store, MINDS, new_task(timeout_ms=5_000))
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    worker = await hire(store)
    again = await worker.claim_one()
    await store.request_cancel(ADA, claim.task.id)
    changes.clear()
    await leave(store, clock, worker, again)
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]
    await _heard(store, claim)


@pytest.mark.parametrize("leave", [_release, _close, _give_back, _die, _overrun])
async def test_a_run_that_was_woken_for_the_request_and_did_not_come_to_its_end_is_woken_again(
    store: Store, clock: VirtualClock, leave: Leave
) -> None:
    claim = await waiting(store, MINDS, new_task(timeout_ms=5_000))
    await store.request_cancel(ADA, claim.task.id)
    worker = await hire(store)
    await leave(store, clock, worker, await worker.claim_one())
    await _heard(store, claim)


async def test_a_run_that_was_woken_for_the_request_has_no_other_attempt(store: Store) -> None:
    claim = await waiting(store, MINDS)
    await store.request_cancel(ADA, claim.task.id)
    task = await store.retry(await (await hire(store)).claim_one(), 1_000, "no")
    assert task.status is Status.CANCELLED


async def test_a_run_that_kills_its_workers_is_not_woken_for_ever(store: Store, clock: VirtualClock) -> None:
    claim = await waiting(store, MINDS, new_task(max_attempts=1))
    await store.request_cancel(ADA, claim.task.id)
    worker = await hire(store)
    await _die(store, clock, worker, await worker.claim_one())
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


@leaving
async def test_a_run_minds_from_when_it_recorded_work_that_is_to_be_told(
    store: Store, clock: VirtualClock, leave: Leave
) -> None:
    await store.create(new_task(timeout_ms=5_000))
    worker = await hire(store)
    claim = await worker.claim_one()
    await store.record(claim, replace(external(), value={"token": TOKEN, "tell": True}))
    await store.record(claim, step("1"))
    await leave(store, clock, worker, claim)
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.WORKING
    await _heard(store, claim)


async def test_work_that_can_not_be_told_is_nothing_to_mind(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, external())
    await store.release(claim)
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_later_wait_that_does_not_mind_is_cancelled_at_once(store: Store) -> None:
    claim = await waiting(store, MINDS)
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    again = await (await hire(store)).claim_one()
    await store.park(again, asks(name=NAME))
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_run_that_is_held_hears_of_it_in_the_usual_way(store: Store, changes: Changes) -> None:
    claim = await waiting(store, MINDS)
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    await (await hire(store)).claim_one()
    changes.clear()
    await store.request_cancel(ADA, claim.task.id)
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, cancel=True)]


async def test_a_task_that_never_parked_does_not_mind(store: Store) -> None:
    claim = await running(store)
    await store.release(claim)
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED
