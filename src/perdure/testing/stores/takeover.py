"""What becomes of a dead worker's runs."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import LeaseLost
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Demand, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import ADA, DONE, HANDLER, LEASE, NAME, NOW, asks, hire, new_task, parked, running


async def test_a_lapsed_lease_loses_its_runs_and_each_has_lost_one_attempt(store: Store, clock: VirtualClock) -> None:
    for _ in range(2):
        await store.create(new_task())
    worker = await hire(store)
    claims = await worker.claim()
    clock.advance(LEASE)
    assert await store.take_over() == 2
    assert await store.sessions() == ()
    again = await (await hire(store)).claim()
    assert [(claim.seq, claim.attempt) for claim in again] == [(claim.seq, 2) for claim in claims]
    assert [claim.task for claim in again] == [claim.task for claim in claims]


async def test_a_lease_that_lives_keeps_its_runs(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(LEASE - 1)
    assert await store.take_over() == 0
    await store.finish(claim, DONE)


async def test_a_process_known_to_be_dead_loses_its_runs_before_the_lease_lapses(store: Store) -> None:
    dead = await running(store)
    ((session, _),) = await store.sessions()
    alive = await running(store)
    assert await store.take_over([session.id, "nobody"]) == 1
    again = await (await hire(store)).claim_one()
    assert (again.seq, again.attempt) == (dead.seq, 2)
    await store.finish(alive, DONE)


async def test_each_run_is_freed_once_however_many_replicas_ask(store: Store, clock: VirtualClock) -> None:
    await running(store)
    clock.advance(LEASE)
    assert [await store.take_over() for _ in range(3)] == [1, 0, 0]
    assert (await (await hire(store)).claim_one()).attempt == 2


async def test_a_session_without_runs_is_forgotten_too(store: Store, clock: VirtualClock) -> None:
    await hire(store)
    clock.advance(LEASE)
    assert await store.take_over() == 0
    assert await store.sessions() == ()


async def test_a_task_that_has_no_attempt_left_fails_and_says_so(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(max_attempts=2))
    clock.advance(LEASE)
    assert await store.take_over() == 1
    assert (await (await hire(store)).claim_one()).attempt == 2
    clock.advance(LEASE)
    assert await store.take_over() == 1
    task = await store.get(ADA, claim.task.id)
    assert (task.status, task.updated_at) == (Status.FAILED, NOW + 2 * LEASE)
    assert task.error is not None
    assert (task.error.code, task.error.message) == (INTERNAL_ERROR, task.message)
    assert "died or went silent 2 times" in task.error.message
    assert await (await hire(store)).claim() == ()


async def test_each_death_is_an_event_and_so_is_the_last_one(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(max_attempts=2))
    clock.advance(LEASE)
    await store.take_over()
    await (await hire(store)).claim_one()
    clock.advance(LEASE)
    await store.take_over()
    events = (await store.inspect(claim.task.id)).events
    assert events == (timeline.died(NOW + LEASE, 1, 2), timeline.died(NOW + 2 * LEASE, 2, 2))


async def test_a_death_counts_as_such_and_not_as_a_failure(store: Store, clock: VirtualClock) -> None:
    await running(store)
    clock.advance(LEASE)
    await store.take_over()
    again = await (await hire(store)).claim_one()
    assert (again.attempt, again.failures, again.deaths) == (2, 0, 1)


async def test_a_run_that_was_freed_has_no_deadline(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=5_000))
    clock.advance(LEASE)
    await store.take_over()
    run = (await store.inspect(claim.task.id)).run
    assert run is not None
    assert (run.session, run.deadline_at) == (None, None)


async def test_coming_back_from_waiting_counts_no_attempt(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(max_attempts=2))
    clock.advance(LEASE)
    await store.take_over()
    again = await (await hire(store)).claim_one()
    await store.park(again, asks(name=NAME))
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    assert (await (await hire(store)).claim_one()).attempt == 2


async def test_a_run_that_was_to_stop_ends_cancelled_when_its_worker_dies(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(LEASE)
    assert await store.take_over() == 1
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED
    assert await (await hire(store)).claim() == ()


async def test_a_run_that_was_to_stop_ends_cancelled_though_it_has_no_attempt_left(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(max_attempts=1))
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(LEASE)
    await store.take_over()
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_cancel_that_comes_after_the_takeover_finds_nobody_running(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(LEASE)
    await store.take_over()
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED
    with pytest.raises(LeaseLost):
        await store.finish(claim, DONE)
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_worker_whose_lease_lapsed_still_completes_if_nobody_took_over(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    clock.advance(2 * LEASE)
    assert (await store.finish(claim, DONE)).status is Status.COMPLETED
    assert await store.take_over() == 0


async def test_takeover_leaves_waiting_tasks_and_their_questions_alone(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store)
    before = await store.get(ADA, claim.task.id)
    clock.advance(LEASE)
    await store.take_over()
    assert await store.get(ADA, claim.task.id) == before


async def test_several_sessions_may_be_left_alone(store: Store, clock: VirtualClock) -> None:
    sessions = [(await store.open_session(10, {})).id for _ in range(3)]
    clock.advance(10)
    await store.take_over([sessions[2]], keep=sessions[:2])
    assert sorted(session.id for session, _ in await store.sessions()) == sorted(sessions[:2])


async def test_the_callers_own_session_is_never_taken_over(store: Store, clock: VirtualClock) -> None:
    own, other = await store.open_session(10, {}), await store.open_session(10, {})
    clock.advance(10)
    await store.take_over([own.id], keep=[own.id])
    assert [session.id for session, _ in await store.sessions()] == [own.id]
    assert other.id != own.id


async def test_what_may_run_at_once_may_do_so_also_where_the_clock_was_wrong_before(
    store: Store, clock: VirtualClock
) -> None:
    """A machine that starts with a clock that is a day ahead, until it is set right."""
    clock.advance(86_400_000)
    created = await store.create(new_task())
    clock.advance(-86_400_000)
    session = await store.open_session(10_000, {})
    (claim,) = await store.claim(session.id, [Demand(HANDLER, 5)], 5)
    assert claim.task.id == created.id
