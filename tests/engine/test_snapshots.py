"""Who listens to tasks: what they are handed, in which order, how often the store is read, and when it is over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from perdure.domain.errors import LimitExceeded, StoreUnavailable, SubscriptionsFull
from perdure.domain.limits import Limits
from perdure.domain.model import Change, Claim, Status, Task
from perdure.engine.snapshots import Snapshots, Subscription
from perdure.store.base import Store
from tests.engine.listeners import Bounds, listening, now, pending, rest, seen, several
from tests.engine.rigged import Rigged
from tests.store.support import ADA, BOB, DONE, ELSEWHERE, NAME, VirtualClock, asks, new_task, running
from tests.support import PATIENCE, eventually

NOBODYS = "tsk_" + "a" * 32


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read again when somebody tells of a change, and never just in case."""
    monkeypatch.setattr("perdure.engine.snapshots._BACKSTOP", 3600.0)


@pytest.fixture
async def desk(gated: Rigged) -> AsyncIterator[Snapshots]:
    async with listening(gated) as snapshots:
        yield snapshots


async def settled(desk: Snapshots, rigged: Rigged) -> None:
    """Once everything was read that is read because somebody has begun to listen."""
    await eventually(lambda: "changed" in rigged.calls, "nothing was read at the beginning")
    rigged.calls.clear()


# -- how it begins -----------------------------------------------------------------------------------------------------


async def test_it_begins_with_each_task_as_it_stands_in_the_order_asked(desk: Snapshots, gated: Rigged) -> None:
    tasks = [await gated.create(new_task()) for _ in range(3)]
    asked = [tasks[index].id for index in (2, 0, 1)]
    listener = await desk.subscribe(ADA, asked)
    assert listener.accepted == tuple(asked)
    assert [(await seen(listener)).id for _ in asked] == asked


async def test_what_is_not_the_owners_is_left_out(desk: Snapshots, gated: Rigged) -> None:
    mine, foreign = await gated.create(new_task()), await gated.create(new_task(owner=BOB))
    listener = await desk.subscribe(ADA, [foreign.id, NOBODYS, mine.id])
    assert listener.accepted == (mine.id,)
    assert await seen(listener) == mine


async def test_an_expired_task_is_left_out(desk: Snapshots, gated: Rigged, clock: VirtualClock) -> None:
    task = await gated.create(new_task(ttl_ms=1000))
    clock.advance(1000)
    await gated.expire(10)
    await gated.purge(10, linger_ms=0, tombstone_ms=60_000)
    assert (await desk.subscribe(ADA, [task.id])).accepted == ()


async def test_duplicates_fold(desk: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    listener = await desk.subscribe(ADA, [task.id, task.id])
    assert listener.accepted == (task.id,)
    assert (await pending(listener)) == [task]


async def test_without_a_task_it_is_over_at_once(desk: Snapshots) -> None:
    assert await now((await desk.subscribe(ADA, [NOBODYS])).next()) is None


async def test_a_task_that_is_over_is_shown_and_then_it_is_over(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    await gated.finish(claim, DONE)
    listener = await desk.subscribe(ADA, [claim.task.id])
    assert (await seen(listener)).status is Status.COMPLETED
    assert await now(listener.next()) is None


async def test_a_change_between_the_first_look_and_the_answer_is_not_missed(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    gate = gated.gate_after("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.report(claim, "meanwhile")
    gate.open()
    listener = await subscribing
    await eventually(lambda: _says(listener, "meanwhile"), "it was missed")


async def test_a_first_look_that_comes_late_shows_nothing_older_than_others_have_seen(
    desk: Snapshots, gated: Rigged
) -> None:
    claim = await running(gated)
    early = await desk.subscribe(ADA, [claim.task.id])
    gate = gated.gate_after("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.report(claim, "meanwhile")
    await eventually(lambda: _says(early, "meanwhile"), "the early one heard nothing")
    gate.open()
    assert (await seen(await subscribing)).message == "meanwhile"


def _says(listener: Subscription, message: str) -> bool:
    return any(snapshot.task.message == message for snapshot in listener.pending.values())


async def test_a_task_that_ends_during_the_first_look_is_shown_as_it_ended(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    early = await desk.subscribe(ADA, [claim.task.id])
    gate = gated.gate_after("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.finish(claim, DONE)
    assert (await rest(early))[-1].status is Status.COMPLETED
    gate.open()
    late = await subscribing
    assert [task.status for task in await rest(late)] == [Status.COMPLETED]
    assert not desk.watched


# -- what it is handed -------------------------------------------------------------------------------------------------


async def test_each_change_is_handed_out_as_the_store_has_it(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id])
    await seen(listener)
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: gated.report(claim, "one"),
        lambda: gated.report(claim, "two"),
        lambda: gated.park(claim, asks(name=NAME)),
        lambda: gated.answer(ADA, claim.task.id, {"name": "Ada"}),
        lambda: gated.request_cancel(ADA, claim.task.id),
    ]
    for change in changes:
        await change()
        assert await seen(listener) == await gated.get(ADA, claim.task.id)
    assert await now(listener.next()) is None


async def test_what_a_slow_reader_missed_is_folded_into_the_newest(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id])
    for count in range(20):
        await gated.report(claim, f"{count}")
    await eventually(lambda: _says(listener, "19"), "the last one never came")
    assert [task.message for task in await pending(listener)] == ["19"]


async def test_whoever_waits_longest_is_next(desk: Snapshots, gated: Rigged) -> None:
    first, second = await running(gated), await running(gated)
    listener = await desk.subscribe(ADA, [first.task.id, second.task.id])
    await gated.report(first, "anew")
    await eventually(lambda: _says(listener, "anew"), "it never came")
    assert [task.id for task in await pending(listener)] == [first.task.id, second.task.id]


async def test_versions_only_grow_whatever_order_the_reads_come_back_in(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id])
    await settled(desk, gated)
    gate = gated.gate_after("changed")
    await gated.report(claim, "one")
    await gate.reached()
    await gated.report(claim, "two")
    fresh = await desk.subscribe(ADA, [claim.task.id])
    assert (await seen(fresh)).message == "two"
    gate.open()
    await gated.report(claim, "three")
    await eventually(lambda: _says(listener, "three"), "the last one never came")
    assert [task.message for task in await pending(fresh)] == ["three"]


async def test_all_readers_share_one_snapshot(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listeners = [await desk.subscribe(ADA, [claim.task.id]) for _ in range(3)]
    first = [await now(listener.next()) for listener in listeners]
    await gated.report(claim, "changed")
    second = [await now(listener.next()) for listener in listeners]
    assert [len({id(snapshot) for snapshot in shared}) for shared in (first, second)] == [1, 1]


async def test_whoever_comes_later_is_nothing_new_to_those_who_are_there(desk: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    early = await desk.subscribe(ADA, [task.id])
    first = await now(early.next())
    late = await desk.subscribe(ADA, [task.id])
    assert await now(late.next()) is first
    assert not early.pending


async def test_a_burst_wakes_a_waiting_reader_once_and_loses_nothing(desk: Snapshots, gated: Rigged) -> None:
    claims: list[Claim] = [await running(gated) for _ in range(5)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await several(listener, 5)
    waiting = asyncio.create_task(listener.next())
    await asyncio.sleep(0)
    await asyncio.gather(*(gated.report(claim, "burst") for claim in claims))
    first = await now(waiting)
    assert first is not None
    rest = [await seen(listener) for _ in claims[1:]]
    assert {first.task.id, *(task.id for task in rest)} == {claim.task.id for claim in claims}


# -- how often the store is read ---------------------------------------------------------------------------------------


async def test_a_change_is_read_once_however_many_listen(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listeners = [await desk.subscribe(ADA, [claim.task.id]) for _ in range(50)]
    await settled(desk, gated)
    for listener in listeners:
        await seen(listener)
    await gated.report(claim, "once")
    for listener in listeners:
        assert (await seen(listener)).message == "once"
    assert (gated.calls.count("changed"), gated.calls.count("get")) == (1, 0)


async def test_what_changes_during_a_read_is_in_the_next_all_of_it(desk: Snapshots, gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(10)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(desk, gated)
    gate = gated.gate_before("changed")
    await gated.report(claims[0], "new")
    await gate.reached()
    for claim in claims[1:]:
        await gated.report(claim, "new")
    gate.open()
    await eventually(lambda: all(each.task.message == "new" for each in listener.pending.values()), "some are old")
    assert gated.calls.count("changed") == 2


async def test_nobody_listens_nothing_is_read(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    watched = await running(gated)
    (await desk.subscribe(ADA, [claim.task.id])).close()
    listener = await desk.subscribe(ADA, [watched.task.id])
    await settled(desk, gated)
    await gated.report(claim, "unheard")
    await gated.report(watched, "heard")
    await eventually(lambda: _says(listener, "heard"), "it never came")
    assert gated.calls.count("changed") == 1
    listener.close()
    gated.calls.clear()
    await gated.report(watched, "unheard")
    gated.miss()
    await gated.finish(watched, DONE)
    assert "changed" not in gated.calls


async def test_many_are_read_in_batches(desk: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [await running(gated) for _ in range(5)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(desk, gated)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 2)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "new")
    gated.miss()
    await eventually(lambda: all(each.task.message == "new" for each in listener.pending.values()), "some are old")
    assert gated.calls.count("changed") == 3


async def test_many_are_looked_up_some_at_a_time(
    desk: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.snapshots._AT_ONCE", 2)
    tasks = [await gated.create(new_task()) for _ in range(5)]
    listener = await desk.subscribe(ADA, [task.id for task in tasks])
    assert await pending(listener) == tasks


async def test_a_change_that_somebody_tells_of_does_not_wait_for_a_sweep(
    desk: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [await running(gated) for _ in range(6)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(desk, gated)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 2)
    gates = [gated.gate_before("changed") for _ in range(3)]
    gated.miss()
    await gates[0].reached()
    await gated.report(claims[-1], "told of")
    gates[0].open()
    await gates[1].reached()
    gates[1].open()
    await gates[2].reached()
    assert _says(listener, "told of")
    gates[2].open()


async def test_while_changes_come_without_a_pause_those_that_nobody_tells_of_are_found_too(
    desk: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud, quiet = await running(gated), await running(gated)
    listener = await desk.subscribe(ADA, [loud.task.id, quiet.task.id])
    await settled(desk, gated)
    change = Change(loud.task.id, loud.seq, Status.WORKING)

    async def again() -> None:
        desk.notify(change)
        gated.before["changed"].append(again)

    gated.before["changed"].append(again)
    desk.notify(change)
    await eventually(lambda: gated.calls.count("changed") > 2, "there is a pause")
    gated.silent = True
    await gated.report(quiet, "unheard")
    monkeypatch.setattr(desk, "_all_at", 0.0)
    monkeypatch.setattr(desk, "_look_at", 0.0)
    await eventually(lambda: _says(listener, "unheard"), "it was drowned out")


# -- hints that are lost -----------------------------------------------------------------------------------------------


async def test_where_changes_may_have_been_missed_all_are_read(desk: Snapshots, gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(2)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(desk, gated)
    await pending(listener)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "unheard")
    gated.miss()
    assert {(await seen(listener)).message for _ in claims} == {"unheard"}
    assert gated.calls.count("changed") == 1


async def test_what_has_changed_is_read_before_what_may_have(
    desk: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [await running(gated) for _ in range(3)]
    listener = await desk.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(desk, gated)
    await pending(listener)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 1)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "unheard")
    last = claims[-1].task
    desk.notify(None)
    desk.notify(Change(last.id, last.seq, last.status))
    assert [(await seen(listener)).id for _ in claims] == [claims[index].task.id for index in (2, 0, 1)]


async def test_what_nobody_told_of_is_found_after_a_while(gated: Rigged, monkeypatch: pytest.MonkeyPatch) -> None:
    gated.silent = True
    async with listening(gated) as desk:
        monkeypatch.setattr("perdure.engine.snapshots._BACKSTOP", 0.02)
        claim = await running(gated)
        listener = await desk.subscribe(ADA, [claim.task.id])
        for count in range(3):
            await seen(listener)
            await gated.report(claim, f"{count}")
        assert (await seen(listener)).message == "2"


async def test_what_another_process_commits_is_found(two_processes: tuple[Store, Store]) -> None:
    ours, theirs = two_processes
    claim = await running(theirs)
    async with listening(ours) as desk:
        listener = await desk.subscribe(ADA, [claim.task.id])
        await seen(listener)
        for count in range(3):
            await theirs.report(claim, f"{count}")
            assert (await seen(listener)).message == f"{count}"
        await theirs.finish(claim, DONE)
        assert [task.status for task in await rest(listener)] == [Status.COMPLETED]


async def test_a_store_that_is_away_costs_time_only(
    desk: Snapshots, gated: Rigged, impatient: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(PATIENCE)
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id])
    await settled(desk, gated)
    await seen(listener)
    gated.fail("changed", 3)
    monkeypatch.setattr(gated, "commits_by_others", _away)
    monkeypatch.setattr(desk, "_look_at", 0.0)
    await gated.report(claim, "at last")
    assert (await seen(listener)).message == "at last"


def _away() -> int | None:
    raise StoreUnavailable


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_it_is_over_once_all_of_its_tasks_are(desk: Snapshots, gated: Rigged) -> None:
    first, second = await running(gated), await running(gated)
    listener = await desk.subscribe(ADA, [first.task.id, second.task.id])
    await several(listener, 2)
    await gated.finish(first, DONE)
    assert (await seen(listener)).id == first.task.id
    await gated.report(second, "still here")
    assert (await seen(listener)).message == "still here"
    await gated.finish(second, DONE)
    assert (await seen(listener)).status is Status.COMPLETED
    assert await now(listener.next()) is None
    assert not desk.watched


async def test_one_that_stays_goes_on_until_the_engine_ends(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id], stays=True)
    await seen(listener)
    await gated.finish(claim, DONE)
    assert (await seen(listener)).status is Status.COMPLETED
    waiting = asyncio.create_task(listener.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.close()
    assert await now(waiting) is None


@pytest.mark.parametrize("also", [False, True])
async def test_a_task_that_is_deleted_counts_as_over(
    desk: Snapshots, gated: Rigged, clock: VirtualClock, also: bool
) -> None:
    deleted = await running(gated, new_task(ttl_ms=1000))
    others = [await running(gated)] if also else []
    listener = await desk.subscribe(ADA, [claim.task.id for claim in (deleted, *others)])
    await settled(desk, gated)
    await several(listener, 1 + len(others))
    gated.silent = True
    await _deleted(gated, clock)
    gated.miss()
    await eventually(lambda: deleted.task.id not in listener.open, "nobody noticed")
    assert deleted.task.id not in desk.watched
    gated.silent = False
    for claim in others:
        await gated.finish(claim, DONE)
        assert (await seen(listener)).id == claim.task.id
    assert await now(listener.next()) is None


async def test_whoever_waits_for_a_task_that_is_deleted_hears_that_it_is_over(
    desk: Snapshots, gated: Rigged, clock: VirtualClock
) -> None:
    claim = await running(gated, new_task(ttl_ms=1000))
    listener = await desk.subscribe(ADA, [claim.task.id])
    await settled(desk, gated)
    await seen(listener)
    waiting = asyncio.create_task(listener.next())
    gated.silent = True
    await _deleted(gated, clock)
    gated.miss()
    assert await now(waiting) is None


async def test_a_task_that_is_deleted_while_somebody_comes_is_left_out(
    desk: Snapshots, gated: Rigged, clock: VirtualClock
) -> None:
    claim = await running(gated, new_task(ttl_ms=1000))
    gate = gated.gate_before("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await _deleted(gated, clock)
    gated.calls.clear()
    gated.miss()
    await eventually(lambda: "changed" in gated.calls, "it was not asked for")
    gate.open()
    assert (await subscribing).accepted == ()
    assert not desk.watched


async def _deleted(store: Rigged, clock: VirtualClock) -> None:
    clock.advance(1000)
    assert await store.expire(10) == 1
    assert await store.purge(10, linger_ms=0, tombstone_ms=60_000) == 1


async def test_closing_one_leaves_the_others_alone_and_the_last_one_leaves_nothing(
    desk: Snapshots, gated: Rigged
) -> None:
    claim = await running(gated)
    first, second = [await desk.subscribe(ADA, [claim.task.id]) for _ in range(2)]
    first.close()
    first.close()
    await seen(second)
    await gated.report(claim, "heard")
    assert (await seen(second)).message == "heard"
    assert [task.message for task in await pending(first)] == [None]
    assert await now(first.next()) is None
    assert len(desk) == 1
    second.close()
    assert (len(desk), len(desk.watched)) == (0, 0)


async def test_whoever_waits_for_one_that_is_closed_hears_that_it_is_over(desk: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    listener = await desk.subscribe(ADA, [task.id])
    await seen(listener)
    waiting = asyncio.create_task(listener.next())
    await asyncio.sleep(0)
    listener.close()
    assert await now(waiting) is None


async def test_what_was_read_for_one_that_has_gone_is_dropped(desk: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    listener = await desk.subscribe(ADA, [claim.task.id])
    await settled(desk, gated)
    gate = gated.gate_before("changed")
    await gated.report(claim, "too late")
    await gate.reached()
    listener.close()
    gate.open()
    other = await running(gated)
    again = await desk.subscribe(ADA, [other.task.id])
    await seen(again)
    await gated.report(other, "heard")
    assert (await seen(again)).message == "heard"


async def test_the_engines_end_is_the_end_of_all_once_they_have_read_what_was_there(
    desk: Snapshots, gated: Rigged
) -> None:
    tasks: list[Task] = [await gated.create(new_task()) for _ in range(2)]
    listener = await desk.subscribe(ADA, [task.id for task in tasks])
    desk.close()
    assert await pending(listener) == tasks
    assert await now(listener.next()) is None
    with pytest.raises(StoreUnavailable, match="shutting down"):
        await desk.subscribe(ADA, [tasks[0].id])
    desk.open()
    assert (await desk.subscribe(ADA, [tasks[0].id])).accepted == (tasks[0].id,)


async def test_whoever_comes_while_the_engine_ends_is_ended_too(desk: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    gate = gated.gate_before("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [task.id]))
    await gate.reached()
    desk.close()
    gate.open()
    listener = await subscribing
    assert await pending(listener) == [task]
    assert await now(listener.next()) is None


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_past_the_bound_of_all_nobody_is_taken_until_somebody_goes(gated: Rigged) -> None:
    async with listening(gated, Bounds(subscriptions=2)) as desk:
        first = await desk.subscribe(ADA, [])
        await desk.subscribe(BOB, [], alone=False)
        with pytest.raises(SubscriptionsFull) as refused:
            await desk.subscribe(ELSEWHERE, [])
        assert refused.value.retry_after_ms > 0
        first.close()
        await desk.subscribe(ELSEWHERE, [])


async def test_an_owner_has_a_bound_of_its_own_and_a_crowd_of_one_name_has_none(gated: Rigged) -> None:
    async with listening(gated, Bounds(owner_subscriptions=2)) as desk:
        first, second = await desk.subscribe(ADA, []), await desk.subscribe(ADA, [])
        with pytest.raises(SubscriptionsFull):
            await desk.subscribe(ADA, [])
        crowd = [await desk.subscribe(ADA, [], alone=False) for _ in range(3)]
        crowd[0].close()
        await desk.subscribe(BOB, [])
        first.close()
        second.close()
        await desk.subscribe(ADA, [])


async def test_one_subscription_may_ask_for_so_many_tasks_and_no_more(gated: Rigged) -> None:
    async with listening(gated, Bounds(limits=Limits(subscribed_tasks=2))) as desk:
        await desk.subscribe(ADA, ["a", "b", "a", "b"])
        with pytest.raises(LimitExceeded, match="2 tasks"):
            await desk.subscribe(ADA, ["a", "b", "c"])
        assert len(desk) == 1


async def test_one_that_could_not_begin_takes_no_place(desk: Snapshots, gated: Rigged) -> None:
    tasks = [await gated.create(new_task()) for _ in range(2)]
    gated.fail("get", 1)
    with pytest.raises(StoreUnavailable):
        await desk.subscribe(ADA, [task.id for task in tasks])
    gate = gated.gate_before("get")
    subscribing = asyncio.create_task(desk.subscribe(ADA, [task.id for task in tasks]))
    await gate.reached()
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    assert (len(desk), len(desk.watched)) == (0, 0)
