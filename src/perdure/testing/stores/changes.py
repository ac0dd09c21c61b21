"""What a store announces, and that nobody can reach into it."""

from copy import deepcopy

import pytest

from perdure.domain.errors import InputKeyReused, LeaseLost, NotStorable, TaskNotFound
from perdure.domain.model import JSON, Asked, Cancelled, Change, Completed, Demand, Failed, Failure, JSONObject, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    AGE,
    BOB,
    DONE,
    LEASE,
    NAME,
    Changes,
    MakeStore,
    asks,
    hire,
    new_task,
    parked,
    running,
)


async def test_a_new_task_is_announced_as_runnable(store: Store, changes: Changes) -> None:
    task = await store.create(new_task())
    assert changes == [Change(task.id, task.seq, Status.WORKING, runnable=True)]


async def test_sessions_claims_and_reads_announce_nothing(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    worker = await hire(store)
    await store.renew(worker.session, LEASE)
    await store.sessions()
    await store.get(ADA, claim.task.id)
    await store.journal(claim)
    await store.close_session(worker.session)
    assert changes == []


async def test_a_report_is_announced(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    await store.report(claim, "halfway")
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING)]


async def test_waiting_and_a_partial_answer_are_announced_and_the_last_answer_as_runnable(
    store: Store, changes: Changes
) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    task_id, seq = claim.task.id, claim.seq
    assert changes.take()[-1] == Change(task_id, seq, Status.INPUT_REQUIRED)
    await store.answer(ADA, task_id, {"name": "Ada"})
    assert changes.take() == [Change(task_id, seq, Status.INPUT_REQUIRED)]
    await store.answer(ADA, task_id, {"age": 7})
    assert changes.take() == [Change(task_id, seq, Status.WORKING, runnable=True)]


async def test_parking_on_what_is_answered_already_is_announced_as_runnable(store: Store, changes: Changes) -> None:
    claim = await parked(store)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    changes.clear()
    await store.park(again, asks(name=NAME))
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]


async def test_what_one_claim_changes_is_announced_in_the_order_in_which_it_was_taken(
    store: Store, changes: Changes, clock: VirtualClock
) -> None:
    """Both have asked something that nobody answered in time, and the younger one is due first."""
    older, younger = [await parked(store, name=Asked(NAME, "0", timeout_ms=ms)) for ms in (2_000, 1_000)]
    clock.advance(3_000)
    worker = await hire(store)
    changes.clear()
    taken = [claim.seq for claim in await worker.claim(2)]
    assert taken == [change.seq for change in changes] == [younger.seq, older.seq]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DONE, Status.COMPLETED),
        (Failed(Failure(-32000, "Broken")), Status.FAILED),
        (Cancelled(), Status.CANCELLED),
    ],
)
async def test_the_end_is_announced(
    store: Store, changes: Changes, outcome: Completed | Failed | Cancelled, status: Status
) -> None:
    claim = await running(store)
    changes.clear()
    await store.finish(claim, outcome)
    assert changes == [Change(claim.task.id, claim.seq, status)]


async def test_a_run_that_is_to_stop_is_announced_as_such_once(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    await store.request_cancel(ADA, claim.task.id)
    await store.request_cancel(ADA, claim.task.id)
    assert changes == [Change(claim.task.id, claim.seq, Status.WORKING, cancel=True)]


async def test_a_cancellation_at_once_is_announced_as_the_end(store: Store, changes: Changes) -> None:
    task = await store.create(new_task())
    changes.clear()
    await store.request_cancel(ADA, task.id)
    await store.request_cancel(ADA, task.id)
    assert changes == [Change(task.id, task.seq, Status.CANCELLED)]


async def test_runs_that_become_free_are_announced_as_runnable(
    store: Store, changes: Changes, clock: VirtualClock
) -> None:
    claim = await running(store)
    free = [Change(claim.task.id, claim.seq, Status.WORKING, runnable=True)]
    changes.clear()
    await store.release(claim)
    assert changes.take() == free
    worker = await hire(store)
    await worker.claim_one()
    await store.close_session(worker.session)
    assert changes.take() == free
    await (await hire(store)).claim_one()
    clock.advance(LEASE)
    await store.take_over()
    assert changes.take() == free


async def test_exhausted_attempts_and_expiry_are_announced_as_the_end(
    store: Store, changes: Changes, clock: VirtualClock
) -> None:
    dying = await running(store, new_task(max_attempts=1))
    ageing = await store.create(new_task("other", ttl_ms=LEASE))
    changes.clear()
    clock.advance(LEASE)
    await store.take_over()
    assert changes.take() == [Change(dying.task.id, dying.seq, Status.FAILED)]
    await store.expire(10)
    assert changes.take() == [Change(ageing.id, ageing.seq, Status.FAILED)]


async def test_what_changes_nothing_announces_nothing(store: Store, changes: Changes, clock: VirtualClock) -> None:
    claim = await parked(store, new_task(ttl_ms=LEASE))
    changes.clear()
    await store.answer(ADA, claim.task.id, {"nobody": 1})
    await store.expire(10)
    await store.take_over()
    with pytest.raises(TaskNotFound):
        await store.request_cancel(BOB, claim.task.id)
    with pytest.raises(LeaseLost):
        await store.finish(claim, DONE)
    with pytest.raises(NotStorable):
        await store.answer(ADA, claim.task.id, {"name": float("nan")})
    await store.request_cancel(ADA, claim.task.id)
    changes.clear()
    await store.request_cancel(ADA, claim.task.id)
    await store.answer(ADA, claim.task.id, {"name": "late"})
    clock.advance(LEASE)
    await store.purge(10, linger_ms=0, tombstone_ms=10)
    assert changes == []


async def test_a_verb_that_fails_announces_nothing_of_what_it_began(store: Store, changes: Changes) -> None:
    claim = await parked(store)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    changes.clear()
    with pytest.raises(InputKeyReused):
        await store.park(again, asks(age=AGE, name=AGE))
    assert changes == []


async def test_a_listener_hears_of_a_change_before_its_caller_returns_and_until_it_unsubscribes(store: Store) -> None:
    one, other = Changes(), Changes()
    stop = store.subscribe(one)
    store.subscribe(other)
    await store.create(new_task())
    assert (len(one), len(other)) == (1, 1)
    stop()
    await store.create(new_task())
    assert (len(one), len(other)) == (1, 2)


async def test_a_listener_may_unsubscribe_while_it_is_told(store: Store) -> None:
    heard: list[Change | None] = []

    def once(change: Change | None) -> None:
        heard.append(change)
        stop()

    stop = store.subscribe(once)
    other = Changes()
    store.subscribe(other)
    for _ in range(2):
        await store.create(new_task())
    assert (len(heard), len(other)) == (1, 2)


# -- nobody holds a part of the store ----------------------------------------------------------------------------------


def spoil(value: JSON) -> None:
    """Change every mutable thing in a JSON value."""
    if isinstance(value, dict):
        for part in value.values():
            spoil(part)
        value["spoilt"] = True
    elif isinstance(value, list):
        for part in value:
            spoil(part)
        value.append("spoilt")


async def test_what_a_caller_handed_over_is_no_longer_his_to_change(store: Store) -> None:
    params: JSONObject = {"list": [1]}
    asked: JSONObject = {"message": {"text": ["name?"]}}
    answer: JSONObject = {"content": {"name": ["Ada"]}}
    result: JSONObject = {"content": [{"text": "done"}]}
    wanted = deepcopy((params, asked, answer, result))
    claim = await running(store, new_task(params=params))
    spoil(params)
    await store.park(claim, asks(name=asked))
    spoil(asked)
    await store.answer(ADA, claim.task.id, {"name": answer})
    spoil(answer)
    again = await (await hire(store)).claim_one()
    entry = (await store.journal(again)).questions["name"]
    await store.finish(again, Completed(result))
    spoil(result)
    task = await store.get(ADA, claim.task.id)
    assert (again.operation.params, entry.request, entry.response, task.result) == wanted


async def test_what_a_failure_carries_is_no_longer_the_workers_to_change(store: Store) -> None:
    data: JSONObject = {"why": ["because"]}
    claim = await running(store)
    await store.finish(claim, Failed(Failure(-32000, "Broken", data)))
    spoil(data)
    error = (await store.get(ADA, claim.task.id)).error
    assert error is not None
    assert error.data == {"why": ["because"]}
    spoil(error.data)
    assert (await store.get(ADA, claim.task.id)).error == Failure(-32000, "Broken", {"why": ["because"]})


async def test_what_a_verb_returned_is_the_callers_own(store: Store) -> None:
    created = await store.create(new_task(params={"list": [1]}))
    session = await store.open_session(LEASE, {"pids": [7]})
    spoil(session.info)
    spoil((await store.sessions())[0][0].info)
    assert [session.info for session, _ in await store.sessions()] == [{"pids": [7]}]
    (claim,) = await store.claim(session.id, [Demand("tools/call:report", 1)], 1)
    spoil(claim.operation.params)
    spoil((await store.inspect(created.id)).operation.params)
    waiting = await store.park(claim, asks(name={"message": ["name?"]}, age=AGE))
    spoil(waiting.inputs[0].request)
    spoil((await store.journal(claim)).questions["name"].request)
    spoil((await store.get(ADA, created.id)).inputs[0].request)
    partial = await store.answer(ADA, created.id, {"age": [7]})
    spoil(partial.inputs[0].request)
    spoil((await store.journal(claim)).questions["age"].response)
    task = await store.get(ADA, created.id)
    questions = (await store.journal(claim)).questions
    assert (await store.inspect(created.id)).operation.params == {"list": [1]}
    assert task.inputs[0].request == questions["name"].request == {"message": ["name?"]}
    assert questions["age"].response == [7]


async def test_a_result_that_was_read_is_the_readers_own(store: Store) -> None:
    claim = await running(store)
    spoil((await store.finish(claim, Completed({"list": [1]}))).result)
    spoil((await store.get(ADA, claim.task.id)).result)
    spoil((await store.request_cancel(ADA, claim.task.id)).result)
    assert (await store.get(ADA, claim.task.id)).result == {"list": [1]}


async def test_a_store_may_be_closed_twice(make_store: MakeStore, clock: VirtualClock) -> None:
    store = make_store(clock)
    await store.open()
    await store.create(new_task())
    await store.close()
    await store.close()
