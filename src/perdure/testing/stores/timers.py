"""Runs that wait for a time: when they may be claimed, and in which order."""

import asyncio

import pytest

from perdure.domain.journal import EntryState, Waits
from perdure.domain.model import Claim, Demand, Status
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    HANDLER,
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
    waiting,
)

THREE_DAYS = 3 * 86_400_000


async def test_a_timer_is_claimed_at_its_instant_and_never_before(store: Store, clock: VirtualClock) -> None:
    claim = await waiting(store, sleep(THREE_DAYS))
    clock.advance(THREE_DAYS - 1)
    assert await take(store) is None
    clock.advance(1)
    again = await take(store)
    assert again is not None
    assert (again.seq, again.at, again.attempt) == (claim.seq, NOW + THREE_DAYS, 1)
    assert again.fence > claim.fence


async def test_a_task_that_sleeps_is_working_and_shows_no_change(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    assert await store.park(claim, sleep(1_000)) == claim.task == await store.get(ADA, claim.task.id)
    assert claim.task.status is Status.WORKING
    assert changes == []
    run = (await store.inspect(claim.task.id)).run
    assert run is not None
    assert (run.session, run.due_at) == (None, NOW + 1_000)


async def test_the_journal_knows_until_when_a_task_sleeps(store: Store) -> None:
    claim = await waiting(store, sleep(1_000, "3.0/1"))
    entry = (await store.journal(claim)).entries["3.0/1"]
    assert entry.wake_at == NOW + 1_000


async def test_the_earliest_of_several_timers_counts(store: Store, clock: VirtualClock) -> None:
    await waiting(store, both(sleep(3_000, "0.0/0"), sleep(1_000, "0.1/0"), elsewhere("0.2/0", 2_000)))
    clock.advance(999)
    assert await take(store) is None
    clock.advance(1)
    assert await take(store) is not None


async def test_only_the_entries_that_are_waited_for_wake_the_run(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step("0"), wake_in_ms=1_000)
    await store.park(claim, sleep(5_000, "1"))
    clock.advance(4_999)
    assert await take(store) is None


async def test_a_step_that_is_to_be_tried_again_wakes_the_run_at_its_time(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step(state=EntryState.RETRYING), wake_in_ms=1_000)
    clock.advance(400)
    await store.park(claim, both(sleep(5_000, "1"), Waits(places=frozenset({"0"}))))
    clock.advance(599)
    assert await take(store) is None
    clock.advance(1)
    assert await take(store) is not None


async def test_timers_and_what_is_due_at_once_are_claimed_in_the_order_in_which_they_fell_due(
    store: Store, clock: VirtualClock
) -> None:
    sleepers = [await waiting(store, sleep(ms)) for ms in (2_000, 4_000)]
    clock.advance(1_000)
    first = await store.create(new_task())
    clock.advance(2_000)
    third = await store.create(new_task())
    clock.advance(2_000)
    claims = await (await hire(store)).claim()
    assert [claim.seq for claim in claims] == [first.seq, sleepers[0].seq, third.seq, sleepers[1].seq]


async def test_a_timer_that_came_due_counts_as_due_since_then_also_when_it_is_claimed_much_later(
    store: Store, clock: VirtualClock
) -> None:
    """Its turn is kept by a worker that has no use for it."""
    sleeper = await waiting(store, sleep(1_000))
    clock.advance(2_000)
    assert await take(store, "tools/call:other") is None
    created = await store.create(new_task())
    clock.advance(60_000)
    claims = await (await hire(store)).claim()
    assert [claim.seq for claim in claims] == [sleeper.seq, created.seq]


async def test_timers_of_handlers_that_nobody_demands_are_left_where_they_are(
    store: Store, clock: VirtualClock
) -> None:
    claim = await waiting(store, sleep(1_000))
    await store.create(new_task("other"))
    (other,) = await (await hire(store)).claim(1, "tools/call:other")
    await store.park(other, sleep(500))
    clock.advance(1_000)
    mine = await take(store)
    theirs = await take(store, "tools/call:other")
    assert mine is not None
    assert theirs is not None
    assert (mine.seq, theirs.seq) == (claim.seq, other.seq)


async def asleep(store: Store, count: int, ms: int) -> tuple[Claim, ...]:
    """So many tasks that sleep, each a millisecond shorter than the one before."""
    await asyncio.gather(*(store.create(new_task()) for _ in range(count)))
    claims = await (await hire(store)).claim(count)
    await asyncio.gather(*(store.park(claim, sleep(ms - number)) for number, claim in enumerate(claims)))
    return claims


async def test_five_hundred_timers_come_due_a_call_the_longest_due_first(store: Store, clock: VirtualClock) -> None:
    claims = (await asleep(store, 502, 1_000))[::-1]
    clock.advance(10_000)
    worker = await hire(store)
    first = await worker.claim(1_000)
    assert [claim.seq for claim in first] == [claim.seq for claim in claims[:500]]
    assert [claim.seq for claim in await worker.claim(1_000)] == [claim.seq for claim in claims[500:]]


async def test_a_timer_that_waits_behind_five_hundred_others_is_due_at_the_next_call(
    store: Store, clock: VirtualClock
) -> None:
    await asleep(store, 500, 1_000)
    mine = await store.create(new_task("mine"))
    (claim,) = await (await hire(store)).claim(1, "tools/call:mine")
    await store.park(claim, sleep(5_000))
    clock.advance(10_000)
    worker = await hire(store)
    assert await worker.claim(10, "tools/call:mine") == ()
    assert [claim.seq for claim in await worker.claim(10, "tools/call:mine")] == [mine.seq]


async def test_a_timer_that_has_come_may_be_cancelled_like_any_task_that_nobody_runs(
    store: Store, clock: VirtualClock
) -> None:
    claim = await waiting(store, sleep(1_000))
    clock.advance(1_000)
    assert (await store.request_cancel(ADA, claim.task.id)).status is Status.CANCELLED
    assert await take(store) is None


async def test_a_worker_that_claims_nothing_still_finds_that_timers_came_due(store: Store, clock: VirtualClock) -> None:
    await waiting(store, sleep(1_000))
    clock.advance(1_000)
    worker = await hire(store)
    assert await store.claim(worker.session, [Demand(HANDLER, 0)], 10) == ()
    assert len(await store.claim(worker.session, [Demand(HANDLER, 1)], 10)) == 1


@pytest.mark.parametrize("ms", [0, 1_000])
async def test_a_claim_says_when_it_was_made(store: Store, clock: VirtualClock, ms: int) -> None:
    clock.advance(ms)
    assert (await running(store)).at == NOW + ms


async def test_a_timer_wakes_a_task_that_asks_as_well_and_its_questions_stay_open(
    store: Store, clock: VirtualClock
) -> None:
    claim = await waiting(store, both(asks(name=NAME), sleep(1_000)))
    before = await store.get(ADA, claim.task.id)
    assert before.status is Status.INPUT_REQUIRED
    clock.advance(1_000)
    again = await take(store)
    assert again is not None
    assert (again.task.status, again.task.inputs, again.task.version) == (Status.WORKING, (), before.version + 1)
    assert await store.get(ADA, claim.task.id) == again.task
    assert (await store.journal(again)).questions == {question.key: question for question in before.inputs}
    parked = await store.park(again, asks(name=NAME))
    assert (parked.status, parked.inputs, parked.version) == (before.status, before.inputs, before.version + 2)
