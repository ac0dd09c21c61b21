"""What a batch writes, where the suite for stores does not reach: many verbs in one transaction."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.domain.errors import IllegalTransition, LeaseLost, NotStorable, TaskNotFound
from perdure.domain.journal import EntryState
from perdure.domain.model import Completed, Status
from perdure.domain.timeline import EventKind
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.url import parse
from perdure.testing import VirtualClock
from perdure.testing.stores.support import (
    ADA,
    BOB,
    DONE,
    NAME,
    TOKEN,
    Changes,
    asks,
    both,
    elsewhere,
    hire,
    new_task,
    parked,
    running,
    step,
    waiting,
)
from tests.support import PATIENCE


@pytest.fixture
async def store(emptied_database: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    """One connection, so that whatever is asked at once waits for it, and is one batch."""
    store = PostgresStore(emptied_database, clock, lanes=1)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def changes(store: PostgresStore) -> Changes:
    changes = Changes()
    store.subscribe(changes)
    return changes


async def test_verbs_on_one_task_in_one_batch_see_each_others_work(store: PostgresStore, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    await asyncio.gather(
        store.report(claim, "one"),
        store.record(claim, step("0", 1)),
        store.record(claim, step("0", 2)),
        store.record(claim, step("1", 3), note="again"),
        store.report(claim, "two"),
    )
    seen = await store.inspect(claim.task.id)
    assert (seen.task.message, seen.task.version) == ("two", claim.task.version + 2)
    assert {place: entry.value for place, entry in seen.journal.entries.items()} == {"0": 2, "1": 3}
    assert [event.kind for event in seen.events] == [EventKind.STEP_RETRY]
    assert len(changes) == 2


async def test_what_comes_after_the_end_in_the_same_batch_is_refused_and_changes_nothing(store: PostgresStore) -> None:
    claim = await running(store)
    finished, *late = await asyncio.gather(
        store.finish(claim, DONE),
        store.record(claim, step()),
        store.report(claim, "late"),
        store.finish(claim, Completed({"late": True})),
        return_exceptions=True,
    )
    assert not isinstance(finished, BaseException)
    assert [type(each) for each in late] == [LeaseLost] * 3
    seen = await store.inspect(claim.task.id)
    assert (seen.task, seen.run, dict(seen.journal.entries)) == (finished, None, {})


async def test_a_value_that_can_not_be_stored_takes_nothing_of_its_neighbours_with_it(store: PostgresStore) -> None:
    one, other = await running(store), await running(store)
    results = await asyncio.gather(
        store.finish(one, Completed({"x": float("nan")})), store.finish(other, DONE), return_exceptions=True
    )
    assert isinstance(results[0], NotStorable)
    assert (await store.get(ADA, other.task.id)).status is Status.COMPLETED
    assert (await store.finish(one, DONE)).status is Status.COMPLETED


async def test_clients_and_other_systems_may_all_want_something_of_one_task_at_once(store: PostgresStore) -> None:
    claim = await waiting(store, both(asks(name=NAME), elsewhere()))
    task_id = claim.task.id
    settled, answered, forged, strange, unknown, told = await asyncio.gather(
        store.settle(task_id, "0", TOKEN, EntryState.DONE, [1]),
        store.answer(ADA, task_id, {"name": "Ada"}),
        store.settle(task_id, "0", "forged", EntryState.DONE, None),
        store.answer(BOB, task_id, {"name": "Eve"}),
        store.answer(ADA, "tsk_nobody", {}),
        store.request_cancel(ADA, task_id),
        return_exceptions=True,
    )
    assert [type(each) for each in (forged, strange, unknown)] == [TaskNotFound] * 3
    assert not isinstance(settled, BaseException)
    assert not isinstance(answered, BaseException)
    assert not isinstance(told, BaseException)
    assert answered.version > settled.version
    assert told.status is Status.CANCELLED
    seen = await store.inspect(task_id)
    assert seen.task == told
    assert seen.journal.entries["0"].state is EntryState.DONE
    assert seen.journal.questions["name"].response == "Ada"


async def test_a_task_that_is_over_is_not_overwritten_though_its_run_is_still_there(
    store: PostgresStore, emptied_database: str
) -> None:
    """Nothing of ours leaves it so; somebody's hand in the database may."""
    one, other = await running(store), await running(store)
    outside = await parse(emptied_database).connect_directly(PATIENCE)
    await outside.execute("UPDATE perdure.task SET status = 'cancelled' WHERE seq = $1", one.seq)
    await outside.close()
    results = await asyncio.gather(store.finish(one, DONE), store.finish(other, DONE), return_exceptions=True)
    assert isinstance(results[0], IllegalTransition)
    assert (await store.get(ADA, other.task.id)).status is Status.COMPLETED
    seen = await store.get(ADA, one.task.id)
    assert (seen.status, seen.result) == (Status.CANCELLED, None)


async def test_questions_keep_their_order_when_several_tasks_ask_at_once(store: PostgresStore) -> None:
    worker = await hire(store)
    await asyncio.gather(*(store.create(new_task()) for _ in range(5)))
    keys = ["z", "a", "m"]
    claims = await worker.claim(5)
    tasks = await asyncio.gather(*(store.park(claim, asks(**dict.fromkeys(keys, NAME))) for claim in claims))
    assert [[question.key for question in task.inputs] for task in tasks] == [keys] * 5
    for task in tasks:
        assert [question.key for question in (await store.get(ADA, task.id)).inputs] == keys


async def test_answers_of_one_batch_to_one_question_have_a_first(store: PostgresStore) -> None:
    claim = await parked(store)
    answers = [store.answer(ADA, claim.task.id, {"name": str(number)}) for number in range(5)]
    assert len({task.version for task in await asyncio.gather(*answers)}) == 1
    assert (await store.journal(claim)).questions["name"].response == "0"
