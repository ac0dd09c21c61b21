"""Attempts that failed: counted, waited for, and begun again without what is to be done again."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import NotStorable
from perdure.domain.journal import Journal
from perdure.domain.model import Asked, InputState, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    LEASE,
    NAME,
    NOW,
    Changes,
    asks,
    both,
    elsewhere,
    hire,
    new_task,
    running,
    sleep,
    step,
    take,
)


async def test_a_failed_attempt_comes_back_after_its_delay_and_never_before(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await running(store)
    changes.clear()
    assert await store.retry(claim, 2_000, "ValueError: no") == claim.task == await store.get(ADA, claim.task.id)
    assert changes == []
    run = (await store.inspect(claim.task.id)).run
    assert run is not None
    assert (run.due_at, run.session, run.failures, run.deaths) == (NOW + 2_000, None, 1, 0)
    clock.advance(1_999)
    assert await take(store) is None
    clock.advance(1)
    again = await take(store)
    assert again is not None
    assert (again.attempt, again.failures, again.deaths) == (2, 1, 0)


async def test_failures_and_deaths_are_counted_apart(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(max_attempts=2))
    for _ in range(3):
        await store.retry(claim, 0, "no")
        claim = await (await hire(store)).claim_one()
    clock.advance(LEASE)
    assert await store.take_over() == 1
    again = await (await hire(store)).claim_one()
    assert (again.attempt, again.failures, again.deaths) == (5, 3, 1)
    await store.retry(again, 0, "no")
    last = await (await hire(store)).claim_one()
    assert (last.attempt, last.failures, last.deaths) == (6, 4, 1)
    clock.advance(LEASE)
    await store.take_over()
    assert (await store.get(ADA, claim.task.id)).status is Status.FAILED


async def test_one_that_is_no_failure_comes_back_after_its_delay_and_is_not_counted(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    await store.record(claim, step("0", "done"))
    await store.retry(claim, 2_000, "it could not be read", counted=False)
    clock.advance(1_999)
    assert await take(store) is None
    clock.advance(1)
    again = await take(store)
    assert again is not None
    assert (again.attempt, again.failures, again.deaths) == (1, 0, 0)
    inspected = await store.inspect(claim.task.id)
    assert [event.detail for event in inspected.events] == ["it could not be read"]
    assert list(inspected.journal.entries) == ["0"]


async def test_the_note_becomes_an_event(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    await store.retry(claim, 2_000, "ValueError: no")
    events = (await store.inspect(claim.task.id)).events
    assert events == (timeline.Event(NOW + 10, timeline.EventKind.RETRY, "ValueError: no"),)


async def test_without_a_step_to_blame_the_journal_stays_as_it_is(store: Store) -> None:
    claim = await running(store)
    for place in ("0", "1"):
        await store.record(claim, step(place))
    before = await store.journal(claim)
    await store.retry(claim, 0, "no")
    assert await store.journal(claim) == before


async def test_the_step_that_failed_and_what_came_after_it_leave_the_journal(store: Store) -> None:
    claim = await running(store)
    for place in ("0", "9", "10", "10.0/0", "10.1/3.0/0", "11"):
        await store.record(claim, step(place))
    await store.retry(claim, 0, "no", failed=["10"])
    assert (await store.journal(claim)).entries == {"0": step("0"), "9": step("9")}


async def test_a_step_that_failed_in_a_branch_takes_only_that_branch_along(store: Store) -> None:
    claim = await running(store)
    for place in ("0", "1.0/0", "1.0/1", "1.0/2.0/0", "1.1/0", "1.1/1"):
        await store.record(claim, step(place))
    await store.retry(claim, 0, "no", failed=["1.0/1"])
    assert set((await store.journal(claim)).entries) == {"0", "1.0/0", "1.1/0", "1.1/1"}


async def test_several_steps_may_have_failed_side_by_side(store: Store) -> None:
    claim = await running(store)
    for place in ("0", "1.0/0", "1.0/1", "1.1/0", "1.1/1", "1.2/0"):
        await store.record(claim, step(place))
    await store.retry(claim, 0, "no", failed=["1.0/1", "1.1/0"])
    assert set((await store.journal(claim)).entries) == {"0", "1.0/0", "1.2/0"}


async def test_questions_that_came_after_the_step_lose_their_place_and_keep_their_answers(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    await store.park(claim, both(asks(name=Asked(NAME, "1"), age=Asked(AGE, "4.0/0"), size=Asked(AGE, "5")), sleep(10)))
    await store.answer(ADA, claim.task.id, {"age": 7})
    clock.advance(10)
    again = await (await hire(store)).claim_one()
    await store.retry(again, 0, "no", failed=["3"])
    questions = (await store.journal(again)).questions
    assert [(question.key, question.place, question.state, question.response) for question in questions.values()] == [
        ("name", "1", InputState.OUTSTANDING, None),
        ("age", None, InputState.ANSWERED, 7),
        ("size", None, InputState.OUTSTANDING, None),
    ]
    third = await (await hire(store)).claim_one()
    assert (await store.park(third, asks(age=Asked(AGE, "3")))).status is Status.WORKING
    assert await take(store) is not None


async def test_an_answer_that_comes_while_the_task_waits_for_its_next_attempt_is_kept(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    await store.park(claim, both(asks(name=NAME), sleep(10)))
    clock.advance(10)
    again = await (await hire(store)).claim_one()
    await store.retry(again, 1_000, "no")
    assert (await store.answer(ADA, claim.task.id, {"name": "Ada"})).status is Status.WORKING
    assert await take(store) is None
    assert (await store.journal(again)).questions["name"].response == "Ada"


async def test_a_task_that_was_asked_to_cancel_meanwhile_is_cancelled_instead(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step())
    await store.request_cancel(ADA, claim.task.id)
    task = await store.retry(claim, 1_000, "no", failed=["0"])
    assert task.status is Status.CANCELLED
    assert await take(store) is None
    assert [event.kind for event in (await store.inspect(task.id)).events] == [timeline.EventKind.CANCEL]


async def test_a_task_that_waits_for_its_next_attempt_is_cancelled_at_once(store: Store) -> None:
    claim = await running(store)
    await store.park(claim, elsewhere(ms=0))
    again = await (await hire(store)).claim_one()
    await store.retry(again, 1_000, "no")
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_run_that_waits_for_its_next_attempt_has_no_deadline(store: Store) -> None:
    claim = await running(store, new_task(timeout_ms=5_000))
    await store.retry(claim, 1_000, "no")
    run = (await store.inspect(claim.task.id)).run
    assert run is not None
    assert run.deadline_at is None


@pytest.mark.parametrize("note", ["\ud800", "\0"])
async def test_a_note_that_can_not_be_stored_is_refused_and_the_run_is_still_held(store: Store, note: str) -> None:
    claim = await running(store)
    await store.record(claim, step())
    with pytest.raises(NotStorable):
        await store.retry(claim, 1_000, note, failed=["0"])
    assert await store.journal(claim) == Journal({"0": step()})
    await store.release(claim)
    assert await take(store) is not None
