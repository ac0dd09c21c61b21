"""Waits that are over by the time the run is put aside, in both orders: whatever comes is never slept through.

What is asked of questions alone is in `writes.py`; timers are in `timers.py`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from perdure.domain.errors import InputKeyReused, NotStorable
from perdure.domain.journal import Entry, EntryState, Journal, Verb, Waits
from perdure.domain.model import JSON, Asked, Change, Claim, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    NAME,
    NOW,
    TOKEN,
    Changes,
    asks,
    both,
    elsewhere,
    external,
    hire,
    new_task,
    running,
    sleep,
    step,
    take,
)


@dataclass(frozen=True)
class Wait:
    """Something to wait for: how it is begun, what the park says of it, and how it comes."""

    begin: Callable[[Store, Claim], Awaitable[object]]
    waits: Waits
    come: Callable[[Store, VirtualClock, Claim], Awaitable[object]]


async def _asked_before(store: Store, claim: Claim) -> None:
    """A question can only be open while the run is held if something else woke that."""
    await store.park(claim, both(asks(name=NAME), sleep(0, "9")))


async def _answer(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.answer(ADA, claim.task.id, {"name": "Ada"})


async def _settle(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.settle(claim.task.id, "0", TOKEN, EntryState.FAILED, "no paper")


async def _time(_: Store, clock: VirtualClock, __: Claim) -> None:
    clock.advance(1_000)


AT_0 = Waits(places=frozenset({"0"}))
WAITS = {
    "an answer": Wait(_asked_before, asks(name=NAME), _answer),
    "a settlement": Wait(lambda store, claim: store.record(claim, external()), AT_0, _settle),
    "a time": Wait(
        lambda store, claim: store.record(claim, step(state=EntryState.RETRYING), wake_in_ms=1_000), AT_0, _time
    ),
    "the bound of work elsewhere": Wait(
        lambda store, claim: store.record(claim, external(), wake_in_ms=1_000), AT_0, _time
    ),
    "the bound of a question": Wait(_asked_before, asks(name=Asked(NAME, timeout_ms=1_000)), _time),
}


async def begun(store: Store, wait: Wait) -> Claim:
    """A run that is held, with the wait on record already."""
    claim = await running(store)
    if wait.begin is _asked_before:
        await store.park(claim, both(wait.waits, sleep(0, "9")))
        return await (await hire(store)).claim_one()
    await wait.begin(store, claim)
    return claim


@pytest.mark.parametrize("wait", WAITS.values(), ids=[*WAITS])
async def test_what_comes_after_the_park_makes_the_run_due(store: Store, clock: VirtualClock, wait: Wait) -> None:
    claim = await begun(store, wait)
    await store.park(claim, wait.waits)
    assert await take(store) is None
    await wait.come(store, clock, claim)
    again = await take(store)
    assert again is not None
    assert (again.seq, again.task.status) == (claim.seq, Status.WORKING)


@pytest.mark.parametrize("wait", WAITS.values(), ids=[*WAITS])
async def test_what_has_come_before_the_park_makes_the_run_due_at_once(
    store: Store, clock: VirtualClock, changes: Changes, wait: Wait
) -> None:
    claim = await begun(store, wait)
    await wait.come(store, clock, claim)
    changes.clear()
    task = await store.park(claim, wait.waits)
    assert (task.status, task.version) == (Status.WORKING, claim.task.version)
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True)]
    again = await take(store)
    assert again is not None
    assert (again.seq, again.attempt) == (claim.seq, 1)


@pytest.mark.parametrize("order", ["before", "after"])
async def test_one_thing_of_several_is_enough(store: Store, order: str) -> None:
    claim = await running(store)
    await store.record(claim, external("0"))
    if order == "before":
        await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, 7)
    await store.park(claim, both(asks(name=NAME), sleep(60_000, "1"), elsewhere("2"), AT_0))
    if order == "after":
        assert await take(store) is None
        await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, 7)
    assert await take(store) is not None


async def test_a_task_that_something_has_come_for_is_not_shown_as_waiting_for_answers(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, external())
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, 7)
    task = await store.park(claim, both(asks(name=NAME), AT_0))
    assert (task.status, task.inputs) == (Status.WORKING, ())
    assert list((await store.journal(claim)).questions) == ["name"]


@pytest.mark.parametrize("order", ["before", "after"])
async def test_answers_are_enough_though_a_time_or_work_elsewhere_has_not_come(store: Store, order: str) -> None:
    claim = await running(store)
    await store.park(claim, both(asks(name=NAME), sleep(0, "9")))
    again = await (await hire(store)).claim_one()
    if order == "before":
        await store.answer(ADA, claim.task.id, {"name": "Ada"})
    await store.park(again, both(asks(name=NAME), sleep(60_000, "1"), elsewhere("2")))
    if order == "after":
        assert await take(store) is None
        await store.answer(ADA, claim.task.id, {"name": "Ada"})
    assert await take(store) is not None


async def test_questions_count_together(store: Store) -> None:
    claim = await running(store)
    await store.park(claim, asks(name=NAME, age=AGE))
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    assert await take(store) is None
    await store.answer(ADA, claim.task.id, {"age": 7})
    assert await take(store) is not None


async def test_a_run_that_waits_for_nothing_is_due_at_once(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    assert await store.park(claim, Waits()) == claim.task
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]
    assert await take(store) is not None


async def test_a_run_that_waits_for_an_entry_that_is_not_there_is_due_at_once(store: Store) -> None:
    await store.park(await running(store), Waits(places=frozenset({"7"})))
    assert await take(store) is not None


async def test_what_begins_with_the_wait_enters_the_journal(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    for_ever, bounded = external("0"), external("1", token="another")
    await store.park(claim, Waits(begun=((for_ever, None), (bounded, 500)), places=frozenset({"0", "1"})))
    entries = (await store.journal(claim)).entries
    assert entries == {
        "0": for_ever,
        "1": Entry("1", Verb.EXTERNAL, "render", EntryState.STARTED, {"token": "another"}, wake_at=NOW + 510),
    }


async def test_a_run_that_waits_for_work_elsewhere_only_is_working_and_waits_for_ever(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    task = await store.park(claim, elsewhere())
    assert task == claim.task
    run = (await store.inspect(task.id)).run
    assert run is not None
    assert (run.due_at, run.session) == (None, None)
    clock.advance(10**12)
    assert await take(store) is None


async def test_parking_a_run_that_is_to_stop_writes_nothing_of_what_it_would_have_begun(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    task = await store.park(claim, both(asks(name=NAME), sleep(1_000)))
    assert task.status is Status.CANCELLED
    assert await store.journal(claim) == Journal()


async def test_a_key_that_is_refused_leaves_nothing_of_the_wait_behind(store: Store) -> None:
    claim = await running(store)
    await store.park(claim, asks(name=NAME))
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    before = await store.inspect(claim.task.id)
    with pytest.raises(InputKeyReused):
        await store.park(again, both(asks(age=AGE, name=AGE), sleep(1_000)))
    assert await store.inspect(claim.task.id) == before


async def test_a_question_knows_where_it_was_asked(store: Store) -> None:
    claim = await running(store)
    task = await store.park(claim, asks(name=Asked(NAME, "3.0/1"), age=Asked(AGE)))
    assert [question.place for question in task.inputs] == ["3.0/1", None]
    assert (await store.get(ADA, task.id)).inputs == task.inputs


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
async def test_a_wait_that_can_not_be_stored_is_refused_and_the_run_is_still_held(store: Store, value: JSON) -> None:
    claim = await running(store)
    before = await store.inspect(claim.task.id)
    broken = Entry("1", Verb.EXTERNAL, "render", EntryState.STARTED, value)
    with pytest.raises(NotStorable):
        await store.park(claim, both(asks(name=NAME), Waits(begun=((broken, None),))))
    with pytest.raises(NotStorable):
        await store.park(claim, both(sleep(1_000), asks(name={"message": value})))
    for place in ("\ud800", "\0"):
        with pytest.raises(NotStorable):
            await store.park(claim, asks(name=Asked(NAME, place)))
    assert await store.inspect(claim.task.id) == before


async def test_a_parked_run_has_no_deadline(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(timeout_ms=5_000))
    assert claim.deadline_at == NOW + 5_000
    await store.park(claim, sleep(60_000))
    run = (await store.inspect(claim.task.id)).run
    assert run is not None
    assert run.deadline_at is None
    clock.advance(60_000)
    again = await take(store)
    assert again is not None
    assert again.deadline_at == NOW + 65_000
