"""What operators ask: one task in full, the queues, the backlog; and the timeline that they read."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import TaskNotFound
from perdure.domain.journal import EntryState, Journal, Waits
from perdure.domain.model import Owner
from perdure.domain.operating import Which
from perdure.domain.timeline import KEPT, Event, EventKind, Inspection, Load, RunState
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    BOB,
    DONE,
    HANDLER,
    LEASE,
    NAME,
    NOW,
    TOKEN,
    Changes,
    asks,
    elsewhere,
    external,
    hire,
    new_task,
    parked,
    running,
    sleep,
    step,
    waiting,
)

# -- inspect -----------------------------------------------------------------------------------------------------------


async def test_a_new_task_is_ready_and_nothing_has_happened_to_it(store: Store) -> None:
    new = new_task()
    task = await store.create(new)
    inspection = await store.inspect(task.id)
    run = inspection.run
    assert run is not None
    assert run.due_at is not None
    assert run.due_at < 0
    state = RunState(HANDLER, run.due_at, None, 0, 0, 0, None)
    assert inspection == Inspection(task, new.operation, state, Journal(), ())


async def test_everything_about_a_task_is_shown_whoever_owns_it(store: Store, clock: VirtualClock) -> None:
    await store.create(new_task(owner=BOB, timeout_ms=5_000))
    worker = await hire(store)
    first = await worker.claim_one()
    await store.retry(first, 10, "no")
    clock.advance(10)
    claim = await worker.claim_one()
    await store.record(claim, step())
    inspection = await store.inspect(claim.task.id)
    run = inspection.run
    assert run is not None
    assert run == RunState(HANDLER, run.due_at, worker.session, claim.fence, 1, 0, NOW + 5_010)
    assert (inspection.task, inspection.operation) == (claim.task, claim.operation)
    assert inspection.journal == await store.journal(claim) == Journal({"0": step()})
    assert inspection.events == (Event(NOW, EventKind.RETRY, "no"),)


async def test_a_waiting_task_is_shown_with_its_questions(store: Store) -> None:
    claim = await parked(store)
    inspection = await store.inspect(claim.task.id)
    assert inspection.task == await store.get(ADA, claim.task.id)
    assert inspection.journal.questions == {question.key: question for question in inspection.task.inputs}


async def test_a_task_that_is_over_has_no_run_and_keeps_its_story(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step(), note="again")
    over = await store.finish(claim, DONE)
    inspection = await store.inspect(over.id)
    assert (inspection.task, inspection.run) == (over, None)
    assert inspection.journal.entries == {"0": step()}
    assert len(inspection.events) == 1


async def test_what_was_inspected_is_the_operators_own(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step("0", [1]))
    inspection = await store.inspect(claim.task.id)
    inspection.operation.params["spoilt"] = True
    value = inspection.journal.entries["0"].value
    assert isinstance(value, list)
    value.append("spoilt")
    again = await store.inspect(claim.task.id)
    assert "spoilt" not in again.operation.params
    assert again.journal.entries["0"].value == [1]


@pytest.mark.parametrize("task_id", ["tsk_nobody", "", "\ud800", "\0"])
async def test_what_is_unknown_can_not_be_inspected(store: Store, task_id: str) -> None:
    with pytest.raises(TaskNotFound):
        await store.inspect(task_id)


# -- the timeline ------------------------------------------------------------------------------------------------------


async def test_a_task_that_simply_runs_has_no_events(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step())
    await store.report(claim, "halfway")
    await store.park(claim, asks(name=NAME))
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    await store.release(again)
    await store.finish(await (await hire(store)).claim_one(), DONE)
    assert (await store.inspect(claim.task.id)).events == ()


async def test_events_stand_in_the_order_in_which_they_happened(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step(), note="one")
    clock.advance(LEASE)
    await store.take_over()
    again = await (await hire(store)).claim_one()
    await store.retry(again, 0, "three")
    third = await (await hire(store)).claim_one()
    await store.request_cancel(ADA, third.task.id)
    assert (await store.inspect(claim.task.id)).events == (
        Event(NOW, EventKind.STEP_RETRY, "one"),
        timeline.died(NOW + LEASE, 1, 10),
        Event(NOW + LEASE, EventKind.RETRY, "three"),
        timeline.cancelled(NOW + LEASE),
    )


async def test_events_of_one_moment_keep_their_order_though_the_clock_runs_backwards(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    for number in range(12):
        clock.advance(-1)
        await store.record(claim, step(), note=str(number))
    events = (await store.inspect(claim.task.id)).events
    assert [event.detail for event in events] == [str(number) for number in range(12)]


async def test_the_newest_events_are_kept_and_no_more(store: Store) -> None:
    claim = await running(store)
    for number in range(KEPT + 5):
        await store.record(claim, step(), note=str(number))
    other = await store.create(new_task())
    await store.request_cancel(ADA, other.id)
    events = (await store.inspect(claim.task.id)).events
    assert [event.detail for event in events] == [str(number) for number in range(5, KEPT + 5)]
    assert len((await store.inspect(other.id)).events) == 1


# -- queues ------------------------------------------------------------------------------------------------------------


async def test_an_empty_store_has_no_queues(store: Store) -> None:
    assert await store.loads() == ()
    await store.finish(await running(store), DONE)
    assert await store.loads() == ()


async def test_queues_say_what_is_ready_held_and_waiting_of_each_handler(store: Store, clock: VirtualClock) -> None:
    await store.create(new_task("b"))
    clock.advance(10)
    await store.create(new_task("b"))
    await store.create(new_task("a"))
    clock.advance(5)
    (held,) = await (await hire(store)).claim(1, "tools/call:a")
    assert await store.loads() == (
        Load("tools/call:a", ready=0, held=1, waiting=0, oldest_ms=None),
        Load("tools/call:b", ready=2, held=0, waiting=0, oldest_ms=15),
    )
    await store.finish(held, DONE)
    assert [queue.handler for queue in await store.loads()] == ["tools/call:b"]


@pytest.mark.parametrize("waits", [asks(name=NAME), sleep(60_000), elsewhere()], ids=["answer", "time", "elsewhere"])
async def test_a_parked_run_is_waiting(store: Store, waits: Waits) -> None:
    await waiting(store, waits)
    assert await store.loads() == (Load(HANDLER, ready=0, held=0, waiting=1, oldest_ms=None),)


async def test_a_run_that_waits_for_its_next_attempt_is_waiting(store: Store) -> None:
    await store.retry(await running(store), 1_000, "no")
    assert await store.loads() == (Load(HANDLER, ready=0, held=0, waiting=1, oldest_ms=None),)


async def test_a_timer_whose_instant_has_come_is_ready_since_then(store: Store, clock: VirtualClock) -> None:
    await waiting(store, sleep(1_000))
    clock.advance(1_007)
    queue = Load(HANDLER, ready=1, held=0, waiting=0, oldest_ms=7)
    assert await store.loads() == (queue,)
    worker = await hire(store)
    assert await worker.claim(1, "tools/call:other") == ()
    assert await store.loads() == (queue,)


async def test_a_run_is_ready_since_it_was_woken(store: Store, clock: VirtualClock) -> None:
    claim = await waiting(store, elsewhere())
    clock.advance(1_000)
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)
    clock.advance(3)
    assert await store.loads() == (Load(HANDLER, ready=1, held=0, waiting=0, oldest_ms=3),)


async def test_nothing_has_been_ready_for_less_than_no_time(store: Store, clock: VirtualClock) -> None:
    """The clock was a day ahead, and has been set right."""
    await store.create(new_task())
    clock.advance(-86_400_000)
    assert await store.loads() == (Load(HANDLER, ready=1, held=0, waiting=0, oldest_ms=0),)


# -- backlog -----------------------------------------------------------------------------------------------------------


async def fill(store: Store, **counts: int) -> None:
    for tenant, count in counts.items():
        for _ in range(count):
            await store.create(new_task(owner=Owner(tenant, "ada")))


async def test_the_backlog_counts_what_could_be_claimed_by_tenant(store: Store) -> None:
    assert await store.backlog(100) == {}
    await fill(store, b=2, a=3)
    await store.create(new_task("other", owner=Owner("a", "bob")))
    assert await store.backlog(100) == {"a": 4, "b": 2}


async def test_runs_that_are_held_or_parked_or_over_are_no_backlog(store: Store, clock: VirtualClock) -> None:
    await running(store)
    await parked(store)
    await waiting(store, sleep(1_000))
    await store.finish(await running(store), DONE)
    assert await store.backlog(100) == {}
    clock.advance(1_000)
    assert await store.backlog(100) == {"acme": 1}


@pytest.mark.parametrize("most", [0, 1, 4, 6])
async def test_no_more_are_counted_in_all_than_is_asked_for(store: Store, most: int) -> None:
    await fill(store, a=3, b=1, c=2)
    counted = await store.backlog(most)
    assert sum(counted.values()) == most
    assert all(0 < count <= {"a": 3, "b": 1, "c": 2}[tenant] for tenant, count in counted.items())


async def test_the_backlog_of_one_tenant_counts_no_other_tenants(store: Store, clock: VirtualClock) -> None:
    await waiting(store, sleep(1_000), new_task(owner=Owner("b", "ada")))
    await fill(store, a=3, b=2, c=1)
    await store.create(new_task("other", owner=Owner("b", "bob")))
    await store.create(new_task("third", owner=Owner("c", "bob")))
    assert [await store.backlog(100, tenant) for tenant in ("a", "b", "z")] == [{"a": 3}, {"b": 3}, {}]
    clock.advance(1_000)
    assert [await store.backlog(most, "b") for most in (0, 1, 3, 100)] == [{}, {"b": 1}, {"b": 3}, {"b": 4}]
    assert [await store.backlog(100, tenant) for tenant in ("\ud800", "\0")] == [{}, {}]


async def test_what_an_owner_has_unfinished_counts_up_to_what_is_asked_for(store: Store, clock: VirtualClock) -> None:
    ann, bob = Owner("a", "ann"), Owner("a", "bob")
    assert await store.unfinished(ann, 100) == 0
    for _ in range(3):
        await store.create(new_task(owner=ann))
    await store.create(new_task(owner=bob))
    await store.create(new_task(owner=Owner("b", "ann")))
    assert [await store.unfinished(ann, most) for most in (0, 2, 3, 100)] == [0, 2, 3, 3]
    assert await store.unfinished(bob, 100) == 1
    assert [await store.unfinished(Owner("a", name), 100) for name in ("\ud800", "\0")] == [0, 0]


async def test_tasks_that_are_held_or_parked_are_unfinished_and_those_that_are_over_are_not(store: Store) -> None:
    held = await running(store)
    owner = held.task.owner
    await parked(store)
    await waiting(store, sleep(1_000))
    assert await store.unfinished(owner, 100) == 3
    await store.finish(held, DONE)
    assert await store.unfinished(owner, 100) == 2


async def test_looking_changes_nothing(store: Store, clock: VirtualClock, changes: Changes) -> None:
    claim = await running(store)
    await store.record(claim, external())
    await store.park(claim, sleep(1_000, "1"))
    clock.advance(1_000)
    changes.clear()
    before = await store.inspect(claim.task.id)
    await store.loads()
    await store.backlog(10)
    await store.unfinished(claim.task.owner, 10)
    await store.browse(Which(), None, 10)
    await store.find_by_prefix("", 10)
    await store.tally(None, 10)
    assert await store.inspect(claim.task.id) == before
    assert changes == []
