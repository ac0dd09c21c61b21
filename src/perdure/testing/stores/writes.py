"""What workers write, and the fence that guards it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from perdure.domain.errors import InputKeyReused, LeaseLost, NotStorable
from perdure.domain.journal import Journal, Waits
from perdure.domain.model import (
    JSON,
    Asked,
    Cancelled,
    Claim,
    Completed,
    Failed,
    Failure,
    InputRequest,
    Outcome,
    Status,
)
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    DONE,
    LEASE,
    NAME,
    NOW,
    Worker,
    asks,
    hire,
    new_task,
    parked,
    running,
    step,
)

# -- what is written ---------------------------------------------------------------------------------------------------


async def test_a_report_shows_as_the_status_message(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    await store.report(claim, "Outline ready 🦊")
    task = await store.get(ADA, claim.task.id)
    assert (task.message, task.version, task.updated_at) == ("Outline ready 🦊", 2, NOW + 10)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DONE, Status.COMPLETED),
        (Completed({}), Status.COMPLETED),
        (Failed(Failure(-32602, "Bad", {"why": [1, None]}), "It was bad"), Status.FAILED),
        (Failed(Failure(-32602, "Bad")), Status.FAILED),
        (Cancelled(), Status.CANCELLED),
    ],
)
async def test_finishing_writes_the_terminal_status_and_what_came_of_it(
    store: Store, clock: VirtualClock, outcome: Outcome, status: Status
) -> None:
    claim = await running(store)
    await store.report(claim, "halfway")
    clock.advance(10)
    over = await store.finish(claim, outcome)
    assert (over.status, over.version, over.updated_at) == (status, 3, NOW + 10)
    assert over.result == (outcome.result if isinstance(outcome, Completed) else None)
    assert over.error == (outcome.error if isinstance(outcome, Failed) else None)
    assert await store.get(ADA, over.id) == over
    assert await (await hire(store)).claim() == ()


async def test_a_released_run_is_runnable_at_once_and_has_lost_no_attempt(store: Store) -> None:
    claim = await running(store, new_task(max_attempts=1))
    await store.release(claim)
    again = await (await hire(store)).claim_one()
    assert (again.task, again.attempt) == (claim.task, 1)


async def test_releasing_a_run_that_is_to_stop_cancels_its_task(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    await store.release(claim)
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED
    assert await (await hire(store)).claim() == ()


async def test_parking_shows_the_questions_in_the_order_of_asking(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    task = await store.park(claim, asks(z=NAME, a=AGE, m=NAME))
    assert (task.status, task.version, task.updated_at) == (Status.INPUT_REQUIRED, 2, NOW + 10)
    assert task.inputs == tuple(
        InputRequest(key, request, NOW + 10) for key, request in [("z", NAME), ("a", AGE), ("m", NAME)]
    )
    assert await store.get(ADA, task.id) == task
    assert await store.journal(claim) == Journal(questions={entry.key: entry for entry in task.inputs})
    assert list((await store.journal(claim)).questions) == ["z", "a", "m"]


async def test_a_parked_task_is_held_by_nobody_and_offered_to_nobody(store: Store, clock: VirtualClock) -> None:
    await parked(store)
    assert await (await hire(store)).claim() == ()
    clock.advance(LEASE)
    assert await store.take_over() == 0


async def test_later_questions_stand_behind_the_earlier_ones_in_the_journal(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, z=NAME)
    await store.answer(ADA, claim.task.id, {"z": 1})
    again = await (await hire(store)).claim_one()
    clock.advance(10)
    task = await store.park(again, asks(z=NAME, a=AGE))
    assert task.inputs == (InputRequest("a", AGE, NOW + 10),)
    assert list((await store.journal(again)).questions) == ["z", "a"]


async def test_parking_on_questions_that_are_answered_already_is_runnable_at_once(
    store: Store, clock: VirtualClock
) -> None:
    """The wake-up that would be lost: the answer came between the look at the journal and the park."""
    claim = await parked(store)
    resumed = await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    clock.advance(10)
    assert await store.park(again, asks(name=NAME)) == resumed
    third = await (await hire(store)).claim_one()
    assert third.task == resumed
    assert third.fence > again.fence


async def test_parking_a_run_that_is_to_stop_cancels_its_task(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    task = await store.park(claim, asks(name=NAME))
    assert (task.status, task.inputs) == (Status.CANCELLED, ())
    assert await store.journal(claim) == Journal()


async def test_a_key_that_was_used_for_another_question_is_refused_and_the_run_goes_on(store: Store) -> None:
    claim = await parked(store)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    with pytest.raises(InputKeyReused, match="'name'"):
        await store.park(again, asks(age=AGE, name=AGE))
    assert list((await store.journal(again)).questions) == ["name"]
    await store.finish(again, DONE)


async def test_two_tasks_may_use_the_same_key(store: Store) -> None:
    one, other = await parked(store), await parked(store)
    await store.answer(ADA, one.task.id, {"name": "Ada"})
    assert (await store.get(ADA, other.task.id)).status is Status.INPUT_REQUIRED


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
async def test_what_has_no_json_form_is_refused_and_the_run_is_still_held(store: Store, value: JSON) -> None:
    claim = await running(store)
    with pytest.raises(NotStorable):
        await store.finish(claim, Completed({"x": value}))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, "Broken", value)))
    with pytest.raises(NotStorable):
        await store.park(claim, asks(x={"value": value}))
    assert await store.get(ADA, claim.task.id) == claim.task
    await store.finish(claim, DONE)


@pytest.mark.parametrize("text", ["\ud800", "\0"])
async def test_text_that_can_not_be_stored_is_refused_wherever_it_stands(store: Store, text: str) -> None:
    claim = await running(store)
    with pytest.raises(NotStorable):
        await store.report(claim, text)
    with pytest.raises(NotStorable):
        await store.park(claim, Waits(asked={text: Asked(NAME)}))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, text), "fine"))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, text)))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, "fine"), text))
    assert await store.get(ADA, claim.task.id) == claim.task


async def test_a_null_within_a_value_is_a_character_like_any_other(store: Store) -> None:
    claim = await running(store, new_task(params={"\0": "\0"}))
    assert claim.operation.params == {"\0": "\0"}
    await store.record(claim, step("0", "\0"))
    task = await store.park(claim, asks(name={"message": "\0?"}))
    assert [question.request for question in task.inputs] == [{"message": "\0?"}]
    assert await store.get(ADA, task.id) == task
    await store.answer(ADA, task.id, {"name": "\0"})
    again = await (await hire(store)).claim_one()
    journal = await store.journal(again)
    assert (journal.entries["0"].value, journal.questions["name"].response) == ("\0", "\0")
    over = await store.finish(again, Failed(Failure(-32000, "Broken", "\0")))
    assert over.error == Failure(-32000, "Broken", "\0")
    assert await store.get(ADA, task.id) == over


# -- fences ------------------------------------------------------------------------------------------------------------


async def _takeover(store: Store, _: VirtualClock, __: Claim) -> None:
    ((session, _lapsed),) = await store.sessions()
    await store.take_over([session.id])


async def _takeover_and_claim(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _takeover(store, clock, claim)
    await (await hire(store)).claim_one()


async def _close(store: Store, _: VirtualClock, __: Claim) -> None:
    ((session, _lapsed),) = await store.sessions()
    await store.close_session(session.id)


async def _release(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.release(claim)


async def _release_and_claim(store: Store, _: VirtualClock, claim: Claim) -> None:
    """By the same worker: its session is as it was, and the fence alone tells the two claims apart."""
    await store.release(claim)
    await Worker(store, claim.session).claim_one()


async def _park(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.park(claim, asks(name=NAME))


async def _park_and_answer(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _park(store, clock, claim)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})


async def _retry(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.retry(claim, 0, "no")


async def _overrun(store: Store, clock: VirtualClock, _: Claim) -> None:
    clock.advance(5_001)
    assert await store.free_overdue(10, late_ms=0) == 1


async def _finish(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.finish(claim, DONE)


async def _expire(store: Store, clock: VirtualClock, _: Claim) -> None:
    clock.advance(60_000)
    assert await store.expire(10) == 1


async def _purge(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _expire(store, clock, claim)
    assert await store.purge(10, linger_ms=0, tombstone_ms=0) == 1


LOSSES = [
    _takeover, _takeover_and_claim, _close, _release, _release_and_claim, _park, _park_and_answer, _retry,
    _overrun, _finish, _expire, _purge,
]  # fmt: skip

WRITES: dict[str, Callable[[Store, Claim], Awaitable[object]]] = {
    "report": lambda store, claim: store.report(claim, "late"),
    "record": lambda store, claim: store.record(claim, step()),
    "park": lambda store, claim: store.park(claim, asks(late=NAME)),
    "finish": lambda store, claim: store.finish(claim, Completed({"late": True})),
    "release": lambda store, claim: store.release(claim),
    "retry": lambda store, claim: store.retry(claim, 1_000, "late"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
async def test_a_fence_that_no_longer_holds_writes_nothing(
    store: Store,
    clock: VirtualClock,
    lose: Callable[[Store, VirtualClock, Claim], Awaitable[None]],
    write: str,
) -> None:
    claim = await running(store, new_task(ttl_ms=60_000, timeout_ms=5_000))
    bystander = await store.create(new_task("other"))
    await lose(store, clock, claim)
    before = [await state(store, task.id) for task in (claim.task, bystander)]
    with pytest.raises(LeaseLost):
        await WRITES[write](store, claim)
    assert [await state(store, task.id) for task in (claim.task, bystander)] == before


async def state(store: Store, task_id: str) -> object:
    """Everything about the task, or the error that stands for it."""
    try:
        return await store.inspect(task_id)
    except Exception as error:  # noqa: BLE001 - compared by its type
        return type(error)


async def test_a_fence_guards_its_own_task_only(store: Store) -> None:
    """Claims of one batch share a number; it opens no other task's run."""
    await store.create(new_task())
    worker = await hire(store)
    claim = await worker.claim_one()
    other = await store.create(new_task("other"))
    with pytest.raises(LeaseLost):
        await store.finish(replace(claim, task=other), DONE)


async def test_a_fence_that_was_drawn_twice_still_tells_two_claims_apart(store: Store) -> None:
    """A database that was set back has also forgotten which numbers it gave away."""
    claim = await running(store)
    other = await hire(store)
    with pytest.raises(LeaseLost):
        await store.finish(replace(claim, session=other.session), DONE)
    assert (await store.get(ADA, claim.task.id)).status is Status.WORKING


async def test_a_write_that_lost_its_fence_hears_of_that_before_anything_else(store: Store) -> None:
    claim = await parked(store)
    with pytest.raises(LeaseLost):
        await store.park(claim, asks(name=AGE))
    with pytest.raises(LeaseLost):
        await store.finish(claim, Completed({"x": float("nan")}))
