"""What clients ask: create, get, answer, cancel, list."""

from dataclasses import replace

import pytest

from perdure.domain import timeline
from perdure.domain.errors import LeaseLost, NotStorable, TaskNotFound
from perdure.domain.journal import Journal
from perdure.domain.model import (
    JSON,
    Cancelled,
    Demand,
    Failed,
    Failure,
    InputRequest,
    InputState,
    Outcome,
    Owner,
    Status,
    Task,
)
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    BOB,
    DONE,
    ELSEWHERE,
    NAME,
    NOW,
    Changes,
    hire,
    new_task,
    parked,
    running,
    standing,
)

OUTCOMES: list[Outcome] = [DONE, Failed(Failure(-32000, "Broken")), Cancelled()]

# -- create and get ----------------------------------------------------------------------------------------------------


async def test_a_created_task_is_working_and_get_resolves_it_at_once(store: Store) -> None:
    new = new_task(ttl_ms=60_000, keep_ms=5_000)
    created = await store.create(new)
    assert created == Task(
        seq=created.seq,
        id=new.id,
        owner=ADA,
        status=Status.WORKING,
        created_at=NOW,
        updated_at=NOW,
        ttl_ms=60_000,
        keep_ms=5_000,
        poll_ms=500,
    )
    assert await store.get(ADA, new.id) == created


async def test_each_task_has_a_number_of_its_own(store: Store) -> None:
    seqs = [(await store.create(new_task())).seq for _ in range(5)]
    assert len(set(seqs)) == 5


async def test_a_task_that_never_expires_comes_back_as_it_is(store: Store) -> None:
    new = replace(new_task(), poll_ms=None)
    created = await store.create(new)
    assert (created.poll_ms, created.ttl_ms, created.keep_ms) == (None, None, None)
    assert await store.get(ADA, new.id) == created


@pytest.mark.parametrize("accepts", [frozenset[str](), frozenset({"roots"}), frozenset({"elicitation", "sampling"})])
async def test_what_the_client_accepts_comes_back_as_it_is(store: Store, accepts: frozenset[str]) -> None:
    new = new_task()
    new = replace(new, operation=replace(new.operation, accepts=accepts))
    assert (await running(store, new)).operation == new.operation


async def test_parameters_come_back_equal(store: Store) -> None:
    params: dict[str, JSON] = {
        "none": None,
        "truth": [True, False],
        "numbers": [0, -1, 2**53 + 1, 0.1, 1e300],
        "text": "ünï\0cödé 🦊 'quotes\" \\",
        "deep": {"": [[], {}, {"a": [None]}]},
    }
    new = new_task(params=params)
    assert (await running(store, new)).operation.params == params


NOBODIES = [Owner("\ud800", "ada"), Owner("acme", "ada\ud800"), Owner("acme\0", "ada"), Owner("acme", "ada\0")]
"""Owners that can't be stored, so that nothing is theirs."""


@pytest.mark.parametrize("owner", [BOB, ELSEWHERE, Owner("acme", ""), Owner("acme ada", ""), *NOBODIES], ids=repr)
async def test_a_foreign_owner_and_an_unknown_id_hear_the_same(store: Store, owner: Owner) -> None:
    created = await store.create(new_task())
    with pytest.raises(TaskNotFound) as foreign:
        await store.get(owner, created.id)
    with pytest.raises(TaskNotFound) as unknown:
        await store.get(ADA, "tsk_nobody")
    assert str(foreign.value) == str(unknown.value)


async def test_a_foreign_owner_can_neither_answer_nor_cancel(store: Store) -> None:
    claim = await parked(store)
    before = await store.get(ADA, claim.task.id)
    strangers = [(owner, before.id) for owner in (BOB, ELSEWHERE, *NOBODIES)]
    for owner, task_id in [*strangers, (ADA, "tsk_nobody")]:
        with pytest.raises(TaskNotFound):
            await store.open_questions(owner, task_id)
        with pytest.raises(TaskNotFound):
            await store.answer(owner, task_id, {"name": "Mallory"})
        with pytest.raises(TaskNotFound):
            await store.request_cancel(owner, task_id)
    assert await store.get(ADA, before.id) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}, b"bytes"])
async def test_parameters_that_have_no_json_form_are_refused_and_nothing_is_stored(store: Store, value: JSON) -> None:
    new = new_task(params={"x": value})
    with pytest.raises(NotStorable):
        await store.create(new)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, new.id)
    assert await (await hire(store)).claim() == ()


async def test_reading_changes_nothing(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task(ttl_ms=1))
    clock.advance(5_000)
    assert await store.get(ADA, created.id) == await store.get(ADA, created.id) == created


# -- answer ------------------------------------------------------------------------------------------------------------


async def test_a_partial_answer_leaves_the_task_waiting_for_the_rest(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    clock.advance(10)
    task = await store.answer(ADA, claim.task.id, {"age": 7})
    assert (task.status, task.version, task.updated_at) == (Status.INPUT_REQUIRED, 3, NOW + 10)
    assert task.inputs == (InputRequest("name", NAME, NOW),)
    assert await store.get(ADA, task.id) == task
    assert await (await hire(store)).claim() == ()


async def test_the_last_answer_makes_the_task_work_and_a_worker_find_all_answers(store: Store) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    await store.answer(ADA, claim.task.id, {"age": 7})
    task = await store.answer(ADA, claim.task.id, {"name": {"action": "accept"}})
    assert (task.status, task.version, task.inputs) == (Status.WORKING, 4, ())
    again = await (await hire(store)).claim_one()
    assert again.task == task
    assert (await store.journal(again)).questions == {
        "name": InputRequest("name", NAME, NOW, InputState.ANSWERED, {"action": "accept"}),
        "age": InputRequest("age", AGE, NOW, InputState.ANSWERED, 7),
    }


async def test_the_first_answer_to_a_key_wins(store: Store) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    once = await store.answer(ADA, claim.task.id, {"name": "first"})
    assert await store.answer(ADA, claim.task.id, {"name": "second"}) == once
    await store.answer(ADA, claim.task.id, {"age": 7, "name": "third"})
    questions = (await store.journal(claim)).questions
    assert questions["name"].response == "first"


async def test_unknown_keys_are_ignored_and_change_nothing(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store)
    before = await store.get(ADA, claim.task.id)
    clock.advance(10)
    assert await store.answer(ADA, before.id, {"nobody": 1, "": 2}) == before
    assert await store.answer(ADA, before.id, {}) == before
    assert list((await store.journal(claim)).questions) == ["name"]


async def test_ignored_answers_are_ignored_whatever_their_value_is(store: Store) -> None:
    """Contract 4: unknown, answered and superseded keys are ignored, whatever their value is."""
    claim = await parked(store, name=NAME, age=AGE)
    before = await store.answer(ADA, claim.task.id, {"age": 7})
    assert await store.answer(ADA, before.id, {"nobody": "\ud800", "age": float("nan"), "\udfff": 1}) == before


async def test_an_accepted_answer_that_can_not_be_stored_is_refused_and_nothing_of_the_update_is_kept(
    store: Store,
) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    before = await store.get(ADA, claim.task.id)
    with pytest.raises(NotStorable):
        await store.answer(ADA, before.id, {"name": "Ada", "age": float("nan")})
    assert await store.get(ADA, before.id) == before
    assert (await store.journal(claim)).questions["name"].state is InputState.OUTSTANDING


async def test_null_is_an_answer(store: Store) -> None:
    claim = await parked(store)
    assert (await store.answer(ADA, claim.task.id, {"name": None})).status is Status.WORKING
    assert (await store.journal(claim)).questions["name"] == InputRequest("name", NAME, NOW, InputState.ANSWERED, None)


async def test_answers_to_a_task_that_works_are_ignored(store: Store) -> None:
    claim = await running(store)
    assert await store.answer(ADA, claim.task.id, {"name": "Ada"}) == claim.task
    assert await store.journal(claim) == Journal()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["completed", "failed", "cancelled"])
async def test_answers_to_a_task_that_is_over_are_ignored(store: Store, outcome: Outcome) -> None:
    claim = await running(store)
    over = await store.finish(claim, outcome)
    assert await store.answer(ADA, over.id, {"name": "late", "x": "\ud800"}) == over


async def test_answers_that_come_after_a_waiting_task_was_cancelled_are_ignored(store: Store) -> None:
    claim = await parked(store)
    over = await store.request_cancel(ADA, claim.task.id)
    assert await store.answer(ADA, over.id, {"name": "late"}) == over
    assert (await store.journal(claim)).questions["name"].state is InputState.OUTSTANDING
    assert await (await hire(store)).claim() == ()


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_task_that_nobody_runs_is_cancelled_at_once_and_never_claimed(store: Store) -> None:
    created = await store.create(new_task())
    task = await store.request_cancel(ADA, created.id)
    assert (task.status, task.version) == (Status.CANCELLED, 2)
    assert await store.get(ADA, task.id) == task
    assert await (await hire(store)).claim() == ()


async def test_a_waiting_task_is_cancelled_at_once_and_shows_no_questions(store: Store) -> None:
    claim = await parked(store)
    task = await store.request_cancel(ADA, claim.task.id)
    assert (task.status, task.inputs) == (Status.CANCELLED, ())
    assert await store.get(ADA, task.id) == task


async def test_a_task_that_came_back_from_waiting_and_was_not_claimed_yet_is_cancelled_at_once(store: Store) -> None:
    claim = await parked(store)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED
    assert await (await hire(store)).claim() == ()


async def test_a_running_task_keeps_working_and_carries_the_intent(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    task = await store.request_cancel(ADA, claim.task.id)
    assert (task.status, task.cancel_requested, task.version) == (Status.WORKING, True, 2)
    assert task.updated_at == NOW + 10
    assert await store.get(ADA, task.id) == task


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["completed", "failed", "cancelled"])
async def test_what_the_work_did_decides_where_a_cancelled_run_ends(store: Store, outcome: Outcome) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    over = await store.finish(claim, outcome)
    assert over.status.terminal
    assert (over.status is Status.CANCELLED) == isinstance(outcome, Cancelled)


async def test_cancelling_twice_is_cancelling_once(store: Store, clock: VirtualClock) -> None:
    running_claim, idle = await running(store), await store.create(new_task())
    for task_id in (running_claim.task.id, idle.id):
        once = await store.request_cancel(ADA, task_id)
        clock.advance(10)
        assert await store.request_cancel(ADA, task_id) == once


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["completed", "failed", "cancelled"])
async def test_cancelling_a_task_that_is_over_changes_nothing(
    store: Store, clock: VirtualClock, outcome: Outcome
) -> None:
    claim = await running(store)
    over = await store.finish(claim, outcome)
    clock.advance(10)
    assert await store.request_cancel(ADA, over.id) == over
    assert await store.get(ADA, over.id) == over


async def test_the_first_request_to_cancel_is_an_event_whoever_runs_the_task(store: Store, clock: VirtualClock) -> None:
    held, waits, idle = await running(store), await parked(store), await store.create(new_task())
    for task_id in (held.task.id, waits.task.id, idle.id):
        await store.request_cancel(ADA, task_id)
    clock.advance(10)
    for task_id in (held.task.id, waits.task.id, idle.id):
        await store.request_cancel(ADA, task_id)
        assert (await store.inspect(task_id)).events == (timeline.cancelled(NOW),)


async def test_asking_a_task_to_stop_that_is_over_is_no_event(store: Store) -> None:
    over = await store.finish(await running(store), DONE)
    await store.request_cancel(ADA, over.id)
    assert (await store.inspect(over.id)).events == ()


async def test_cancellation_makes_the_fence_of_a_waiting_task_worthless(store: Store) -> None:
    claim = await parked(store)
    await store.request_cancel(ADA, claim.task.id)
    with pytest.raises(LeaseLost):
        await store.finish(claim, DONE)


async def test_creating_with_the_same_id_again_returns_the_task_as_it_is_and_makes_no_second_one(store: Store) -> None:
    """A caller that heard that the store was unavailable may call again, though the first call was committed."""
    new = new_task()
    first = await store.create(new)
    session = await store.open_session(3_600_000, {})
    (claim,) = await store.claim(session.id, [Demand(new.operation.handler, 5)], 5)
    await store.report(claim, "half way")
    again = await store.create(new)
    assert (again.seq, again.message) == (first.seq, "half way")
    assert await store.claim(session.id, [Demand(new.operation.handler, 5)], 5) == ()


async def test_an_id_of_somebody_else_is_not_given_out(store: Store) -> None:
    new = new_task()
    await store.create(new)
    with pytest.raises(TaskNotFound):
        await store.create(replace(new, owner=Owner("elsewhere", "mallory")))


# -- which tasks an owner has ------------------------------------------------------------------------------------------


async def numbers(store: Store, owner: Owner, after: int | None, limit: int) -> list[int]:
    return [task.seq for task in await store.page(owner, after, limit)]


async def test_an_owners_tasks_come_newest_first_page_after_page(store: Store) -> None:
    made = [(await store.create(new_task())).seq for _ in range(5)]
    newest = sorted(made, reverse=True)
    assert await numbers(store, ADA, None, 10) == newest
    assert await numbers(store, ADA, None, 2) == newest[:2]
    assert await numbers(store, ADA, newest[1], 2) == newest[2:4]
    assert await numbers(store, ADA, newest[3], 2) == newest[4:]
    assert await numbers(store, ADA, newest[4], 2) == []


async def test_a_page_has_the_tasks_of_its_owner_and_no_others(store: Store) -> None:
    mine = await store.create(new_task())
    for owner in (BOB, ELSEWHERE):
        await store.create(new_task(owner=owner))
    theirs = await numbers(store, BOB, None, 10)
    assert await numbers(store, ADA, None, 10) == [mine.seq]
    assert await numbers(store, ADA, max(theirs) + 1, 10) == [mine.seq]
    for nobody in (Owner("acme", ""), Owner("", "ada"), Owner("acmeada", ""), Owner("\ud800", "ada"), Owner("a\0", "")):
        assert await numbers(store, nobody, None, 10) == []


async def test_a_page_goes_on_where_it_was_though_tasks_are_made_and_purged_meanwhile(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(ttl_ms=1_000))
    oldest, middle, newest = claim.seq, await store.create(new_task()), await store.create(new_task())
    assert await numbers(store, ADA, None, 1) == [newest.seq]
    await store.create(new_task())
    assert await numbers(store, ADA, newest.seq, 10) == [middle.seq, oldest]
    await store.finish(claim, DONE)
    clock.advance(1_000)
    await store.purge(10, linger_ms=0, tombstone_ms=60_000)
    assert await numbers(store, ADA, newest.seq, 10) == [middle.seq]
    assert await numbers(store, ADA, oldest, 10) == []


async def test_listing_tasks_changes_nothing(store: Store, changes: Changes) -> None:
    claim = await parked(store)
    before = await store.inspect(claim.task.id)
    changes.clear()
    await store.page(ADA, None, 10)
    assert await store.inspect(claim.task.id) == before
    assert changes == []


async def test_a_page_says_how_tasks_stand_and_nothing_of_what_they_ask_or_came_to(
    store: Store, clock: VirtualClock
) -> None:
    asking = await parked(store)
    idle = await store.create(new_task(ttl_ms=60_000, keep_ms=5_000))
    worker = await hire(store)
    for name, outcome in (("good", DONE), ("bad", Failed(Failure(-32000, "Broken", {"a": [1]}), "It broke"))):
        clock.advance(10)
        await store.create(new_task(name))
        (claim,) = await worker.claim(1, f"tools/call:{name}")
        await store.finish(claim, outcome)
    await store.request_cancel(ADA, idle.id)
    page = await store.page(ADA, None, 10)
    assert page == tuple([standing(await store.get(ADA, task.id)) for task in page])
    assert [task.status for task in page] == [
        Status.FAILED,
        Status.COMPLETED,
        Status.CANCELLED,
        Status.INPUT_REQUIRED,
    ]
    assert (page[0].message, page[3].id) == ("It broke", asking.task.id)
