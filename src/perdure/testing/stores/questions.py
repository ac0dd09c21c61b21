"""Questions that are given up after a time."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import InputKeyReused, NotStorable, TaskNotFound
from perdure.domain.model import JSON, Asked, Change, Claim, InputState, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    BOB,
    DONE,
    NAME,
    NOW,
    Changes,
    asks,
    both,
    hire,
    parked,
    sleep,
    take,
    waiting,
)

SHORT = Asked(NAME, "0", timeout_ms=1_000)
LONG = Asked(AGE, "1", timeout_ms=5_000)


async def given_up(store: Store, clock: VirtualClock, **also: Asked) -> Claim:
    """A run that is held again, since the time of its question `name` has run out."""
    await waiting(store, asks(name=SHORT, **also))
    clock.advance(1_000)
    claim = await take(store)
    assert claim is not None
    return claim


async def states(store: Store, claim: Claim) -> dict[str, InputState]:
    return {key: question.state for key, question in (await store.journal(claim)).questions.items()}


async def test_a_question_knows_until_when_it_is_open(store: Store) -> None:
    claim = await parked(store, name=SHORT, age=AGE)
    assert [question.deadline for question in (await store.get(ADA, claim.task.id)).inputs] == [NOW + 1_000, None]


async def test_asking_again_does_not_prolong_a_question(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, name=SHORT, age=LONG)
    clock.advance(600)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    clock.advance(4_400)
    again = await take(store)
    assert again is not None
    assert (await store.journal(again)).questions["age"].deadline == NOW + 5_000


async def test_a_question_whose_time_has_run_out_is_given_up_when_a_worker_goes_on(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    parked_claim = await parked(store, name=SHORT)
    clock.advance(999)
    assert await take(store) is None
    clock.advance(1)
    before = await store.get(ADA, parked_claim.task.id)
    assert before.status is Status.INPUT_REQUIRED
    changes.clear()
    claim = await take(store)
    assert claim is not None
    assert (claim.task.status, claim.task.inputs, claim.task.version) == (Status.WORKING, (), before.version + 1)
    assert await states(store, claim) == {"name": InputState.SUPERSEDED}
    assert (await store.inspect(claim.task.id)).events == (
        timeline.Event(NOW + 1_000, timeline.EventKind.UNANSWERED, "name"),
    )
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING)]


async def test_only_the_questions_whose_time_has_run_out_are_given_up(store: Store, clock: VirtualClock) -> None:
    claim = await given_up(store, clock, age=LONG, size=Asked(AGE))
    assert await states(store, claim) == {
        "name": InputState.SUPERSEDED,
        "age": InputState.OUTSTANDING,
        "size": InputState.OUTSTANDING,
    }


async def test_several_questions_are_given_up_at_once_each_with_an_event(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, b=SHORT, a=Asked(AGE, "1", timeout_ms=900))
    clock.advance(1_000)
    again = await take(store)
    assert again is not None
    assert await states(store, again) == {"b": InputState.SUPERSEDED, "a": InputState.SUPERSEDED}
    assert [event.detail for event in (await store.inspect(claim.task.id)).events] == ["b", "a"]


async def test_an_answer_that_comes_too_late_is_ignored_whatever_its_value_is(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await given_up(store, clock)
    changes.clear()
    assert await store.answer(ADA, claim.task.id, {"name": "late"}) == claim.task
    assert await store.answer(ADA, claim.task.id, {"name": "\ud800"}) == claim.task
    question = (await store.journal(claim)).questions["name"]
    assert (question.state, question.response) == (InputState.SUPERSEDED, None)
    assert changes == []


async def test_an_answer_that_comes_before_a_worker_goes_on_is_not_too_late(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, name=SHORT)
    clock.advance(1_000)
    assert (await store.answer(ADA, claim.task.id, {"name": "Ada"})).status is Status.WORKING
    again = await take(store)
    assert again is not None
    question = (await store.journal(again)).questions["name"]
    assert (question.state, question.response) == (InputState.ANSWERED, "Ada")
    assert (await store.inspect(claim.task.id)).events == ()


async def test_the_key_of_a_question_that_was_given_up_stays_taken(store: Store, clock: VirtualClock) -> None:
    claim = await given_up(store, clock)
    with pytest.raises(InputKeyReused):
        await store.park(claim, asks(name=AGE))


async def test_waiting_again_for_what_was_given_up_is_over_at_once(store: Store, clock: VirtualClock) -> None:
    claim = await given_up(store, clock)
    task = await store.park(claim, asks(name=SHORT))
    assert (task.status, task.inputs) == (Status.WORKING, ())
    assert await take(store) is not None


async def test_answers_to_other_questions_are_kept_while_the_task_works(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await given_up(store, clock, age=Asked(AGE, "1"))
    changes.clear()
    assert await store.answer(ADA, claim.task.id, {"age": 7, "nobody": 1}) == claim.task
    assert changes == []
    question = (await store.journal(claim)).questions["age"]
    assert (question.state, question.response) == (InputState.ANSWERED, 7)
    assert (await store.park(claim, asks(age=Asked(AGE, "1")))).status is Status.WORKING
    assert await take(store) is not None


async def test_the_first_answer_wins_also_while_the_task_works(store: Store, clock: VirtualClock) -> None:
    claim = await given_up(store, clock, age=Asked(AGE, "1"))
    await store.answer(ADA, claim.task.id, {"age": 7})
    await store.answer(ADA, claim.task.id, {"age": 8})
    assert (await store.journal(claim)).questions["age"].response == 7


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
async def test_an_answer_to_a_task_that_works_is_refused_if_it_can_not_be_stored(
    store: Store, clock: VirtualClock, value: JSON
) -> None:
    claim = await given_up(store, clock, age=Asked(AGE, "1"))
    with pytest.raises(NotStorable):
        await store.answer(ADA, claim.task.id, {"age": value})
    assert (await states(store, claim))["age"] is InputState.OUTSTANDING


async def test_questions_that_are_still_open_are_shown_again_when_the_task_waits_again(
    store: Store, clock: VirtualClock
) -> None:
    claim = await given_up(store, clock, age=LONG)
    task = await store.park(claim, asks(age=LONG))
    assert task.status is Status.INPUT_REQUIRED
    assert [(question.key, question.issued_at, question.deadline) for question in task.inputs] == [
        ("age", NOW, NOW + 5_000)
    ]
    clock.advance(3_999)
    assert await take(store) is None
    clock.advance(1)
    assert await take(store) is not None


async def test_questions_are_given_up_also_when_something_else_woke_the_run(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, name=SHORT)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await take(store)
    assert again is not None
    await store.park(again, both(asks(age=LONG), sleep(500)))
    clock.advance(6_000)
    third = await take(store)
    assert third is not None
    assert await states(store, third) == {"name": InputState.ANSWERED, "age": InputState.SUPERSEDED}


async def test_a_task_that_is_over_gives_no_question_up(store: Store, clock: VirtualClock) -> None:
    claim = await given_up(store, clock, age=LONG)
    await store.finish(claim, DONE)
    clock.advance(60_000)
    assert await take(store) is None
    assert (await states(store, claim))["age"] is InputState.OUTSTANDING


async def test_what_may_be_answered_is_told_also_of_a_task_that_something_else_has_woken(
    store: Store, clock: VirtualClock
) -> None:
    claim = await given_up(store, clock, age=Asked(AGE, "1"))
    assert (await store.get(ADA, claim.task.id)).inputs == ()
    assert [question.key for question in await store.open_questions(ADA, claim.task.id)] == ["age"]
    await store.answer(ADA, claim.task.id, {"age": 36})
    assert await store.open_questions(ADA, claim.task.id) == ()


async def test_a_terminal_task_has_no_open_questions(store: Store) -> None:
    claim = await parked(store, name=NAME)
    assert [question.key for question in await store.open_questions(ADA, claim.task.id)] == ["name"]
    await store.request_cancel(ADA, claim.task.id)
    assert await store.open_questions(ADA, claim.task.id) == ()


async def test_open_questions_are_told_to_the_owner_only(store: Store) -> None:
    claim = await parked(store, name=NAME)
    with pytest.raises(TaskNotFound):
        await store.open_questions(BOB, claim.task.id)


# -- left behind -------------------------------------------------------------------------------------------------------


async def left_behind(store: Store, clock: VirtualClock) -> Claim:
    """A task that waits for the answer to `age`, and whose code asked for `name` before and went on without it."""
    claim = await waiting(store, both(asks(name=NAME), sleep(1_000)))
    clock.advance(1_000)
    await store.park(await (await hire(store)).claim_one(), asks(age=AGE))
    return claim


async def test_a_question_that_nobody_waits_for_any_more_is_not_shown_and_holds_nothing_up(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await left_behind(store, clock)
    task = await store.get(ADA, claim.task.id)
    assert (task.status, [question.key for question in task.inputs]) == (Status.INPUT_REQUIRED, ["age"])
    assert task == (await store.inspect(task.id)).task
    changes.clear()
    assert (await store.answer(ADA, task.id, {"age": 7})).status is Status.WORKING
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True)]
    assert await take(store) is not None


async def test_a_question_that_was_left_behind_stays_open_and_its_answer_is_kept(
    store: Store, clock: VirtualClock
) -> None:
    claim = await left_behind(store, clock)
    assert [each.key for each in await store.open_questions(ADA, claim.task.id)] == ["name", "age"]
    task = await store.answer(ADA, claim.task.id, {"name": "Ada"})
    assert (task.status, [question.key for question in task.inputs]) == (Status.INPUT_REQUIRED, ["age"])
    assert await take(store) is None
    questions = (await store.journal(claim)).questions
    assert [(each.key, each.awaited, each.response) for each in questions.values()] == [
        ("name", False, "Ada"),
        ("age", True, None),
    ]


async def test_a_question_that_the_code_comes_by_again_is_waited_for_again(store: Store, clock: VirtualClock) -> None:
    claim = await left_behind(store, clock)
    await store.answer(ADA, claim.task.id, {"age": 7})
    again = await (await hire(store)).claim_one()
    task = await store.park(again, asks(name=NAME))
    assert (task.status, [question.key for question in task.inputs]) == (Status.INPUT_REQUIRED, ["name"])
    assert await store.get(ADA, task.id) == task
    assert (await store.answer(ADA, task.id, {"name": "Ada"})).status is Status.WORKING


async def test_a_run_that_waits_for_no_answer_is_not_shown_as_waiting_for_one(
    store: Store, clock: VirtualClock
) -> None:
    claim = await waiting(store, both(asks(name=NAME), sleep(1_000)))
    clock.advance(1_000)
    task = await store.park(await (await hire(store)).claim_one(), sleep(1_000, "1"))
    assert (task.status, task.inputs) == (Status.WORKING, ())
    assert (await store.answer(ADA, claim.task.id, {"name": "Ada"})).status is Status.WORKING
    assert await take(store) is None
