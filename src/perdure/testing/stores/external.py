"""Work elsewhere: who knows its token may say how it ended, once, and what there is to say meanwhile."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain import timeline
from perdure.domain.errors import AlreadySettled, NotStorable, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import JSON, Change, Claim, Status, Task
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    DONE,
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
    step,
    take,
    waiting,
)

FINISHED: JSON = {"url": "https://example.org/film"}


async def settle(store: Store, claim: Claim, value: JSON = FINISHED, state: EntryState = EntryState.DONE) -> Task:
    return await store.settle(claim.task.id, "0", TOKEN, state, value)


async def tell(store: Store, claim: Claim, message: str = "half way") -> Task:
    return await store.tell(claim.task.id, "0", TOKEN, message)


# -- settle ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EntryState.DONE, EntryState.FAILED])
async def test_a_settlement_stands_in_the_journal_and_makes_the_run_due(
    store: Store, clock: VirtualClock, changes: Changes, state: EntryState
) -> None:
    claim = await waiting(store, elsewhere(ms=60_000))
    clock.advance(10)
    changes.clear()
    assert await settle(store, claim, state=state) == claim.task
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]
    again = await take(store)
    assert again is not None
    assert (await store.journal(again)).entries == {
        "0": Entry("0", Verb.EXTERNAL, "render", state, {"token": TOKEN, "value": FINISHED}, wake_at=NOW + 60_000)
    }


async def test_a_settlement_is_an_event(store: Store, clock: VirtualClock) -> None:
    claim = await waiting(store, elsewhere())
    clock.advance(10)
    await settle(store, claim, state=EntryState.FAILED)
    await settle(store, claim, state=EntryState.FAILED)
    (event,) = (await store.inspect(claim.task.id)).events
    assert (event.at, event.kind) == (NOW + 10, timeline.EventKind.SETTLED)
    assert event.detail == "render: failed"


async def test_a_settlement_makes_a_task_that_asks_as_well_due_and_it_works_once_it_is_claimed(
    store: Store, changes: Changes
) -> None:
    claim = await waiting(store, both(asks(name=NAME), elsewhere()))
    before = await store.get(ADA, claim.task.id)
    changes.clear()
    assert await settle(store, claim) == before
    assert changes == [Change(claim.task.id, claim.seq, Status.INPUT_REQUIRED, runnable=True)]
    again = await take(store)
    assert again is not None
    assert (again.task.status, again.task.inputs) == (Status.WORKING, ())


async def test_what_is_settled_while_the_run_is_held_is_found_by_the_next_park(store: Store, changes: Changes) -> None:
    claim = await running(store)
    await store.record(claim, external())
    changes.clear()
    assert await settle(store, claim) == claim.task
    assert changes == []
    await store.park(claim, Waits(places=frozenset({"0"})))
    assert await take(store) is not None


async def test_a_run_that_is_due_already_keeps_its_turn(store: Store, clock: VirtualClock, changes: Changes) -> None:
    claim = await running(store)
    await store.record(claim, external())
    await store.release(claim)
    clock.advance(1)
    later = await store.create(new_task())
    clock.advance(1)
    changes.clear()
    await settle(store, claim)
    assert changes == []
    assert [each.seq for each in await (await hire(store)).claim()] == [claim.seq, later.seq]


async def test_the_same_settlement_again_changes_nothing(store: Store, clock: VirtualClock, changes: Changes) -> None:
    claim = await waiting(store, elsewhere())
    await settle(store, claim)
    before = await store.inspect(claim.task.id)
    clock.advance(10)
    changes.clear()
    assert await settle(store, claim) == before.task
    assert await store.inspect(claim.task.id) == before
    assert changes == []


async def test_the_same_settlement_again_is_no_error_once_the_task_is_over(store: Store) -> None:
    """Whoever has not heard that the first call arrived makes it again, and the tool may have been quick meanwhile."""
    claim = await waiting(store, elsewhere())
    await settle(store, claim)
    again = await (await hire(store)).claim_one()
    over = await store.finish(again, DONE)
    assert await settle(store, claim) == over


@pytest.mark.parametrize(
    ("state", "value"), [(EntryState.DONE, None), (EntryState.FAILED, FINISHED), (EntryState.DONE, {"url": "other"})]
)
async def test_another_settlement_is_refused_and_changes_nothing(
    store: Store, changes: Changes, state: EntryState, value: JSON
) -> None:
    claim = await waiting(store, elsewhere())
    await settle(store, claim)
    before = await store.inspect(claim.task.id)
    changes.clear()
    with pytest.raises(AlreadySettled):
        await settle(store, claim, value, state)
    assert await store.inspect(claim.task.id) == before
    assert changes == []


async def _cancel(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.request_cancel(ADA, claim.task.id)


async def _expire(store: Store, clock: VirtualClock, _: Claim) -> None:
    clock.advance(60_000)
    assert await store.expire(10) == 1


async def _finish(store: Store, clock: VirtualClock, _: Claim) -> None:
    clock.advance(1_000)
    await store.finish(await (await hire(store)).claim_one(), DONE)


@pytest.mark.parametrize("end", [_cancel, _expire, _finish], ids=lambda end: end.__name__.strip("_"))
async def test_what_comes_after_the_end_of_the_task_is_refused_and_changes_nothing(
    store: Store, clock: VirtualClock, changes: Changes, end: Callable[[Store, VirtualClock, Claim], Awaitable[None]]
) -> None:
    claim = await waiting(store, elsewhere(ms=1_000), new_task(ttl_ms=60_000))
    await end(store, clock, claim)
    before = await store.inspect(claim.task.id)
    changes.clear()
    with pytest.raises(AlreadySettled):
        await settle(store, claim)
    with pytest.raises(AlreadySettled):
        await tell(store, claim)
    assert await store.inspect(claim.task.id) == before
    assert changes == []


async def test_work_whose_step_is_done_again_is_no_longer_known(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, external())
    await store.retry(claim, 0, "no", failed=["0"])
    with pytest.raises(TaskNotFound):
        await settle(store, claim)


async def test_the_settlement_is_no_longer_its_senders_to_change(store: Store) -> None:
    claim = await waiting(store, elsewhere())
    value: list[JSON] = [1]
    await settle(store, claim, value)
    value.append("spoilt")
    assert (await store.journal(claim)).entries["0"].value == {"token": TOKEN, "value": [1]}


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
async def test_a_settlement_that_can_not_be_stored_is_refused_and_nothing_is_changed(store: Store, value: JSON) -> None:
    claim = await waiting(store, elsewhere())
    before = await store.inspect(claim.task.id)
    with pytest.raises(NotStorable):
        await settle(store, claim, value)
    assert await store.inspect(claim.task.id) == before


# -- tell --------------------------------------------------------------------------------------------------------------


async def test_what_is_told_shows_as_the_status_message(store: Store, clock: VirtualClock, changes: Changes) -> None:
    claim = await waiting(store, elsewhere())
    clock.advance(10)
    changes.clear()
    task = await tell(store, claim)
    assert (task.message, task.version, task.updated_at) == ("half way", claim.task.version + 1, NOW + 10)
    assert await store.get(ADA, task.id) == task
    assert changes == [Change(task.id, task.seq, Status.WORKING)]
    assert await take(store) is None


async def test_what_is_told_while_the_task_asks_something_is_ignored(store: Store, changes: Changes) -> None:
    claim = await waiting(store, both(asks(name=NAME), elsewhere()))
    before = await store.get(ADA, claim.task.id)
    changes.clear()
    assert await tell(store, claim) == before == await store.get(ADA, claim.task.id)
    assert changes == []


@pytest.mark.parametrize("value", [FINISHED, None])
async def test_work_that_has_ended_has_nothing_more_to_tell(store: Store, value: JSON) -> None:
    claim = await waiting(store, elsewhere())
    await settle(store, claim, value)
    before = await store.inspect(claim.task.id)
    with pytest.raises(AlreadySettled):
        await tell(store, claim)
    assert await store.inspect(claim.task.id) == before


@pytest.mark.parametrize("message", ["\ud800", "\0"])
async def test_a_message_that_can_not_be_stored_is_refused_and_nothing_is_changed(store: Store, message: str) -> None:
    claim = await waiting(store, elsewhere())
    with pytest.raises(NotStorable):
        await tell(store, claim, message)
    assert await store.get(ADA, claim.task.id) == claim.task


# -- who may -----------------------------------------------------------------------------------------------------------

VERBS: dict[str, Callable[[Store, str, str, str], Awaitable[Task]]] = {
    "settle": lambda store, task_id, place, token: store.settle(task_id, place, token, EntryState.DONE, FINISHED),
    "tell": lambda store, task_id, place, token: store.tell(task_id, place, token, "half way"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("settled", [False, True])
async def test_a_forged_token_and_what_is_unknown_are_one_answer_and_change_nothing(
    store: Store, verb: str, settled: bool
) -> None:
    claim = await running(store)
    await store.record(claim, step("1", {"token": TOKEN}))
    await store.record(claim, Entry("2", Verb.EXTERNAL, "no token", EntryState.STARTED))
    await store.park(claim, elsewhere())
    if settled:
        await settle(store, claim)
    task_id = claim.task.id
    before = await store.inspect(task_id)
    forged = [
        (task_id, "0", "forged"),
        (task_id, "0", ""),
        (task_id, "0", TOKEN + " "),
        (task_id, "0", "\ud800"),
        (task_id, "7", TOKEN),
        (task_id, "", TOKEN),
        (task_id, "\ud800", TOKEN),
        (task_id, "\0", TOKEN),
        (task_id, "0", "\0"),
        (task_id, "1", TOKEN),
        (task_id, "2", ""),
        ("tsk_nobody", "0", TOKEN),
        ("\ud800", "0", TOKEN),
        ("\0", "0", TOKEN),
    ]
    answers: set[str] = set()
    for each in forged:
        with pytest.raises(TaskNotFound) as refused:
            await VERBS[verb](store, *each)
        answers.add(str(refused.value))
    assert answers == {"Task not found"}
    assert await store.inspect(task_id) == before


@pytest.mark.parametrize("verb", VERBS)
async def test_what_was_purged_is_not_found_either(store: Store, clock: VirtualClock, verb: str) -> None:
    claim = await waiting(store, elsewhere(), new_task(ttl_ms=1_000))
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(1_000)
    await store.purge(10, linger_ms=0, tombstone_ms=60_000)
    with pytest.raises(TaskNotFound):
        await VERBS[verb](store, claim.task.id, "0", TOKEN)
