"""Who listens to tasks: what they are handed, in which order, how often the store is read, and when it is over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

import pytest

from perdure.domain.errors import LimitExceeded, StoreUnavailable, SubscriptionsFull
from perdure.domain.limits import Limits
from perdure.domain.model import Change, Claim, Status, Task
from perdure.engine.snapshots import Snapshots
from perdure.engine.subscription import Subscription
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.subscribing import Bounds, Hands, listening, now, pending, rest, seen, several
from tests.store.support import ADA, BOB, DONE, ELSEWHERE, NAME, VirtualClock, asks, new_task, running
from tests.support import PATIENCE, eventually

NOBODYS = "tsk_" + "a" * 32
HOUR = 3600.0


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
async def snapshots(gated: Rigged, hands: Hands) -> AsyncIterator[Snapshots]:
    async with listening(gated, clock=hands) as snapshots:
        yield snapshots


async def settled(rigged: Rigged) -> None:
    """Once everything was read that is read because somebody has begun to listen."""
    rigged.calls.clear()
    rigged.miss()
    await eventually(lambda: "changed" in rigged.calls, "nothing was read")
    rigged.calls.clear()


async def watching_another(snapshots: Snapshots, rigged: Rigged) -> None:
    """Somebody listens to another task, so that the next who reads is who begins to."""
    await snapshots.subscribe(ADA, [(await rigged.create(new_task())).id])
    await settled(rigged)


# -- how it begins -----------------------------------------------------------------------------------------------------


async def test_it_begins_with_each_task_as_it_stands_in_the_order_asked(snapshots: Snapshots, gated: Rigged) -> None:
    tasks = [await gated.create(new_task()) for _ in range(3)]
    asked = [tasks[index].id for index in (2, 0, 1)]
    subscription = await snapshots.subscribe(ADA, asked)
    assert subscription.accepted == tuple(asked)
    assert [(await seen(subscription)).id for _ in asked] == asked


async def test_what_is_not_the_owners_is_left_out(snapshots: Snapshots, gated: Rigged) -> None:
    mine, foreign = await gated.create(new_task()), await gated.create(new_task(owner=BOB))
    subscription = await snapshots.subscribe(ADA, [foreign.id, NOBODYS, mine.id])
    assert subscription.accepted == (mine.id,)
    assert await seen(subscription) == mine


async def test_an_expired_task_is_left_out(snapshots: Snapshots, gated: Rigged, clock: VirtualClock) -> None:
    task = await gated.create(new_task(ttl_ms=1000))
    clock.advance(1000)
    await gated.expire(10)
    await gated.purge(10, linger_ms=0, tombstone_ms=60_000)
    assert (await snapshots.subscribe(ADA, [task.id])).accepted == ()


async def test_duplicates_fold(snapshots: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    subscription = await snapshots.subscribe(ADA, [task.id, task.id])
    assert subscription.accepted == (task.id,)
    assert (await pending(subscription)) == [task]


async def test_without_a_task_it_is_over_at_once(snapshots: Snapshots) -> None:
    assert await now((await snapshots.subscribe(ADA, [NOBODYS])).next()) is None


async def test_a_task_that_is_over_is_shown_and_then_it_is_over(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    await gated.finish(claim, DONE)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    assert (await seen(subscription)).status is Status.COMPLETED
    assert await now(subscription.next()) is None


async def test_a_change_between_the_first_look_and_the_answer_is_not_missed(
    snapshots: Snapshots, gated: Rigged
) -> None:
    claim = await running(gated)
    await watching_another(snapshots, gated)
    gate = gated.gate_after("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.report(claim, "meanwhile")
    gate.open()
    subscription = await subscribing
    await eventually(lambda: _says(subscription, "meanwhile"), "it was missed")


async def test_a_first_look_that_comes_late_shows_nothing_older_than_others_have_seen(
    snapshots: Snapshots, gated: Rigged
) -> None:
    claim = await running(gated)
    early = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    gate = gated.gate_after("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.report(claim, "meanwhile")
    await eventually(lambda: _says(early, "meanwhile"), "the early one heard nothing")
    gate.open()
    assert (await seen(await subscribing)).message == "meanwhile"


def _says(subscription: Subscription, message: str) -> bool:
    return any(news.task.message == message for news in subscription.pending.values())


async def test_a_task_that_ends_during_the_first_look_is_shown_as_it_ended(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    early = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    gate = gated.gate_after("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await gated.finish(claim, DONE)
    assert (await rest(early))[-1].status is Status.COMPLETED
    gate.open()
    late = await subscribing
    assert [task.status for task in await rest(late)] == [Status.COMPLETED]
    assert not snapshots.watched


# -- what it is handed -------------------------------------------------------------------------------------------------


async def test_each_change_is_handed_out_as_the_store_has_it(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await seen(subscription)
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: gated.report(claim, "one"),
        lambda: gated.report(claim, "two"),
        lambda: gated.park(claim, asks(name=NAME)),
        lambda: gated.answer(ADA, claim.task.id, {"name": "Ada"}),
        lambda: gated.request_cancel(ADA, claim.task.id),
    ]
    for change in changes:
        await change()
        assert await seen(subscription) == await gated.get(ADA, claim.task.id)
    assert await now(subscription.next()) is None


async def test_what_a_slow_reader_missed_is_folded_into_the_newest(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    for count in range(20):
        await gated.report(claim, f"{count}")
    await eventually(lambda: _says(subscription, "19"), "the last one never came")
    assert [task.message for task in await pending(subscription)] == ["19"]


async def test_whoever_waits_longest_is_next(snapshots: Snapshots, gated: Rigged) -> None:
    first, second = await running(gated), await running(gated)
    subscription = await snapshots.subscribe(ADA, [first.task.id, second.task.id])
    await gated.report(first, "anew")
    await eventually(lambda: _says(subscription, "anew"), "it never came")
    assert [task.id for task in await pending(subscription)] == [first.task.id, second.task.id]


async def test_versions_only_grow_whatever_order_the_reads_come_back_in(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    gate = gated.gate_after("changed")
    await gated.report(claim, "one")
    await gate.reached()
    await gated.report(claim, "two")
    fresh = await snapshots.subscribe(ADA, [claim.task.id])
    assert (await seen(fresh)).message == "two"
    gate.open()
    await gated.report(claim, "three")
    await eventually(lambda: _says(subscription, "three"), "the last one never came")
    assert [task.message for task in await pending(fresh)] == ["three"]


async def test_all_readers_share_one_snapshot(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscriptions = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(3)]
    first = [await now(subscription.next()) for subscription in subscriptions]
    await gated.report(claim, "changed")
    second = [await now(subscription.next()) for subscription in subscriptions]
    assert [len({id(snapshot) for snapshot in shared}) for shared in (first, second)] == [1, 1]


async def test_whoever_comes_later_is_nothing_new_to_those_who_are_there(snapshots: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    early = await snapshots.subscribe(ADA, [task.id])
    first = await now(early.next())
    late = await snapshots.subscribe(ADA, [task.id])
    assert await now(late.next()) is first
    assert not early.pending


async def test_a_burst_wakes_a_waiting_reader_once_and_loses_nothing(snapshots: Snapshots, gated: Rigged) -> None:
    claims: list[Claim] = [await running(gated) for _ in range(5)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await several(subscription, 5)
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    await asyncio.gather(*(gated.report(claim, "burst") for claim in claims))
    first = await now(waiting)
    assert first is not None
    rest = [await seen(subscription) for _ in claims[1:]]
    assert {first.task.id, *(task.id for task in rest)} == {claim.task.id for claim in claims}


# -- how often the store is read ---------------------------------------------------------------------------------------


async def test_a_change_is_read_once_however_many_listen(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscriptions = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(50)]
    await settled(gated)
    for subscription in subscriptions:
        await seen(subscription)
    await gated.report(claim, "once")
    for subscription in subscriptions:
        assert (await seen(subscription)).message == "once"
    assert (gated.calls.count("changed"), gated.calls.count("get")) == (1, 0)


async def test_what_changes_during_a_read_is_in_the_next_all_of_it(snapshots: Snapshots, gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(10)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(gated)
    gate = gated.gate_before("changed")
    await gated.report(claims[0], "new")
    await gate.reached()
    for claim in claims[1:]:
        await gated.report(claim, "new")
    gate.open()
    await eventually(lambda: all(each.task.message == "new" for each in subscription.pending.values()), "some are old")
    assert gated.calls.count("changed") == 2


async def test_nobody_listens_nothing_is_read(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    watched = await running(gated)
    (await snapshots.subscribe(ADA, [claim.task.id])).close()
    subscription = await snapshots.subscribe(ADA, [watched.task.id])
    await settled(gated)
    await gated.report(claim, "unheard")
    await gated.report(watched, "heard")
    await eventually(lambda: _says(subscription, "heard"), "it never came")
    assert gated.calls.count("changed") == 1
    subscription.close()
    assert not snapshots.watched
    await gated.report(watched, "unheard")
    gated.miss()
    await gated.finish(watched, DONE)
    again = await snapshots.subscribe(ADA, [claim.task.id])
    await gated.report(claim, "heard")
    await eventually(lambda: _says(again, "heard"), "it never came")
    assert gated.calls.count("changed") == 3, "one for the change, one to begin, one for the next"


async def test_many_are_read_in_batches(snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [await running(gated) for _ in range(5)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(gated)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 2)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "new")
    gated.miss()
    await eventually(lambda: all(each.task.message == "new" for each in subscription.pending.values()), "some are old")
    assert gated.calls.count("changed") == 3


async def test_many_are_looked_up_some_at_a_time(
    snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 2)
    tasks = [await gated.create(new_task()) for _ in range(5)]
    subscription = await snapshots.subscribe(ADA, [task.id for task in tasks])
    assert await pending(subscription) == tasks


async def test_a_change_that_somebody_tells_of_does_not_wait_for_a_sweep(
    snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [await running(gated) for _ in range(6)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(gated)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 2)
    gates = [gated.gate_before("changed") for _ in range(3)]
    gated.miss()
    await gates[0].reached()
    await gated.report(claims[-1], "told of")
    gates[0].open()
    await gates[1].reached()
    gates[1].open()
    await gates[2].reached()
    assert _says(subscription, "told of")
    gates[2].open()


async def test_while_changes_come_without_a_pause_those_that_nobody_tells_of_are_found_too(
    snapshots: Snapshots, gated: Rigged, hands: Hands
) -> None:
    loud, quiet = await running(gated), await running(gated)
    subscription = await snapshots.subscribe(ADA, [loud.task.id, quiet.task.id])
    await settled(gated)
    change = Change(loud.task.id, loud.seq, Status.WORKING)

    async def again() -> None:
        snapshots.notify(change)
        gated.before["changed"].append(again)

    gated.before["changed"].append(again)
    snapshots.notify(change)
    await eventually(lambda: gated.calls.count("changed") > 2, "there is a pause")
    gated.silent = True
    await gated.report(quiet, "unheard")
    hands.advance(HOUR)
    await eventually(lambda: _says(subscription, "unheard"), "it was drowned out")


# -- hints that are lost -----------------------------------------------------------------------------------------------


async def test_where_changes_may_have_been_missed_all_are_read(snapshots: Snapshots, gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(2)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(gated)
    await pending(subscription)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "unheard")
    gated.miss()
    assert {(await seen(subscription)).message for _ in claims} == {"unheard"}
    assert gated.calls.count("changed") == 1


async def test_what_has_changed_is_read_before_what_may_have(
    snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [await running(gated) for _ in range(3)]
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in claims])
    await settled(gated)
    await pending(subscription)
    monkeypatch.setattr("perdure.engine.snapshots._BATCH", 1)
    gated.silent = True
    for claim in claims:
        await gated.report(claim, "unheard")
    last = claims[-1].task
    snapshots.notify(None)
    snapshots.notify(Change(last.id, last.seq, last.status))
    assert [(await seen(subscription)).id for _ in claims] == [claims[index].task.id for index in (2, 0, 1)]


async def test_what_nobody_told_of_is_found_after_a_while(gated: Rigged, monkeypatch: pytest.MonkeyPatch) -> None:
    gated.silent = True
    async with listening(gated) as snapshots:
        monkeypatch.setattr("perdure.engine.snapshots._BACKSTOP", 0.02)
        claim = await running(gated)
        subscription = await snapshots.subscribe(ADA, [claim.task.id])
        for count in range(3):
            await seen(subscription)
            await gated.report(claim, f"{count}")
        assert (await seen(subscription)).message == "2"


async def test_what_another_process_commits_is_found(two_processes: tuple[Store, Store]) -> None:
    ours, theirs = two_processes
    claim = await running(theirs)
    async with listening(ours) as snapshots:
        subscription = await snapshots.subscribe(ADA, [claim.task.id])
        await seen(subscription)
        for count in range(3):
            await theirs.report(claim, f"{count}")
            assert (await seen(subscription)).message == f"{count}"
        await theirs.finish(claim, DONE)
        assert [task.status for task in await rest(subscription)] == [Status.COMPLETED]


async def test_a_store_that_is_away_costs_time_only(
    snapshots: Snapshots,
    gated: Rigged,
    hands: Hands,
    impatient: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient(PATIENCE)
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    await seen(subscription)
    gated.fail("changed", 3)
    monkeypatch.setattr(gated, "commits_by_others", _away)
    hands.advance(HOUR)
    await gated.report(claim, "at last")
    assert (await seen(subscription)).message == "at last"


def _away() -> int | None:
    raise StoreUnavailable


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_it_is_over_once_all_of_its_tasks_are(snapshots: Snapshots, gated: Rigged) -> None:
    first, second = await running(gated), await running(gated)
    subscription = await snapshots.subscribe(ADA, [first.task.id, second.task.id])
    await several(subscription, 2)
    await gated.finish(first, DONE)
    assert (await seen(subscription)).id == first.task.id
    await gated.report(second, "still here")
    assert (await seen(subscription)).message == "still here"
    await gated.finish(second, DONE)
    assert (await seen(subscription)).status is Status.COMPLETED
    assert await now(subscription.next()) is None
    assert not snapshots.watched


async def test_one_that_stays_goes_on_until_the_engine_ends(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id], stays=True)
    await seen(subscription)
    await gated.finish(claim, DONE)
    assert (await seen(subscription)).status is Status.COMPLETED
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    snapshots.close()
    assert await now(waiting) is None


@pytest.mark.parametrize("also", [False, True])
async def test_a_task_that_is_deleted_counts_as_over(
    snapshots: Snapshots, gated: Rigged, clock: VirtualClock, also: bool
) -> None:
    deleted = await running(gated, new_task(ttl_ms=1000))
    others = [await running(gated)] if also else []
    subscription = await snapshots.subscribe(ADA, [claim.task.id for claim in (deleted, *others)])
    await settled(gated)
    await several(subscription, 1 + len(others))
    gated.silent = True
    await _deleted(gated, clock)
    gated.miss()
    await eventually(lambda: deleted.task.id not in subscription.open, "nobody noticed")
    assert deleted.task.id not in snapshots.watched
    gated.silent = False
    for claim in others:
        await gated.finish(claim, DONE)
        assert (await seen(subscription)).id == claim.task.id
    assert await now(subscription.next()) is None


async def test_whoever_waits_for_a_task_that_is_deleted_hears_that_it_is_over(
    snapshots: Snapshots, gated: Rigged, clock: VirtualClock
) -> None:
    claim = await running(gated, new_task(ttl_ms=1000))
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    await seen(subscription)
    waiting = asyncio.create_task(subscription.next())
    gated.silent = True
    await _deleted(gated, clock)
    gated.miss()
    assert await now(waiting) is None


async def test_a_task_that_is_deleted_while_somebody_comes_is_left_out(
    snapshots: Snapshots, gated: Rigged, clock: VirtualClock
) -> None:
    claim = await running(gated, new_task(ttl_ms=1000))
    await watching_another(snapshots, gated)
    gate = gated.gate_before("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [claim.task.id]))
    await gate.reached()
    await _deleted(gated, clock)
    gated.calls.clear()
    gated.miss()
    await eventually(lambda: "changed" in gated.calls, "it was not asked for")
    gate.open()
    assert (await subscribing).accepted == ()
    assert claim.task.id not in snapshots.watched


async def test_whoever_has_seen_what_a_database_that_was_set_back_has_lost_hears_that_it_is_over(
    snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = await running(gated)
    stands = await gated.get(ADA, claim.task.id)
    lost = replace(stands, version=stands.version + 2, message="lost")

    async def before(*_: object) -> Mapping[str, Task]:
        return {lost.id: lost}

    await watching_another(snapshots, gated)
    with monkeypatch.context() as patched:
        patched.setattr(gated, "changed", before)
        early = await snapshots.subscribe(ADA, [lost.id])
    assert await seen(early) == lost
    gate = gated.gate_before("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [lost.id]))
    await gate.reached()
    await gated.finish(claim, DONE)
    assert await now(early.next()) is None
    gate.open()
    assert [task.status for task in await rest(await subscribing)] == [Status.COMPLETED]
    assert lost.id not in snapshots.watched


async def _deleted(store: Rigged, clock: VirtualClock) -> None:
    clock.advance(1000)
    assert await store.expire(10) == 1
    assert await store.purge(10, linger_ms=0, tombstone_ms=60_000) == 1


async def test_closing_one_leaves_the_others_alone_and_the_last_one_leaves_nothing(
    snapshots: Snapshots, gated: Rigged
) -> None:
    claim = await running(gated)
    first, second = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(2)]
    first.close()
    first.close()
    await seen(second)
    await gated.report(claim, "heard")
    assert (await seen(second)).message == "heard"
    assert [task.message for task in await pending(first)] == [None]
    assert await now(first.next()) is None
    assert snapshots.subscribed == 1
    second.close()
    assert (snapshots.subscribed, len(snapshots.watched)) == (0, 0)


async def test_whoever_waits_for_one_that_is_closed_hears_that_it_is_over(snapshots: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    subscription = await snapshots.subscribe(ADA, [task.id])
    await seen(subscription)
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    subscription.close()
    assert await now(waiting) is None


async def test_what_was_read_for_one_that_has_gone_is_dropped(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await settled(gated)
    gate = gated.gate_before("changed")
    await gated.report(claim, "too late")
    await gate.reached()
    subscription.close()
    gate.open()
    other = await running(gated)
    again = await snapshots.subscribe(ADA, [other.task.id])
    await seen(again)
    await gated.report(other, "heard")
    assert (await seen(again)).message == "heard"


async def test_the_engines_end_is_the_end_of_all_once_they_have_read_what_was_there(
    snapshots: Snapshots, gated: Rigged
) -> None:
    tasks: list[Task] = [await gated.create(new_task()) for _ in range(2)]
    subscription = await snapshots.subscribe(ADA, [task.id for task in tasks])
    snapshots.close()
    assert await pending(subscription) == tasks
    assert await now(subscription.next()) is None
    with pytest.raises(StoreUnavailable, match="shutting down"):
        await snapshots.subscribe(ADA, [tasks[0].id])
    snapshots.open()
    assert (await snapshots.subscribe(ADA, [tasks[0].id])).accepted == (tasks[0].id,)


async def test_whoever_comes_while_the_engine_ends_is_ended_too(snapshots: Snapshots, gated: Rigged) -> None:
    task = await gated.create(new_task())
    await watching_another(snapshots, gated)
    gate = gated.gate_before("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [task.id]))
    await gate.reached()
    snapshots.close()
    gate.open()
    subscription = await subscribing
    assert await pending(subscription) == [task]
    assert await now(subscription.next()) is None


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_past_the_bound_of_all_nobody_is_taken_until_somebody_goes(gated: Rigged) -> None:
    async with listening(gated, Bounds(subscriptions=2)) as snapshots:
        first = await snapshots.subscribe(ADA, [])
        await snapshots.subscribe(BOB, [], counted=False)
        with pytest.raises(SubscriptionsFull) as refused:
            await snapshots.subscribe(ELSEWHERE, [])
        assert refused.value.retry_after_ms > 0
        first.close()
        await snapshots.subscribe(ELSEWHERE, [])


async def test_an_owner_has_a_bound_of_its_own_and_a_crowd_of_one_name_has_none(gated: Rigged) -> None:
    async with listening(gated, Bounds(owner_subscriptions=2)) as snapshots:
        first, second = await snapshots.subscribe(ADA, []), await snapshots.subscribe(ADA, [])
        with pytest.raises(SubscriptionsFull):
            await snapshots.subscribe(ADA, [])
        crowd = [await snapshots.subscribe(ADA, [], counted=False) for _ in range(3)]
        crowd[0].close()
        await snapshots.subscribe(BOB, [])
        first.close()
        second.close()
        await snapshots.subscribe(ADA, [])


async def test_one_subscription_may_ask_for_so_many_tasks_and_no_more(gated: Rigged) -> None:
    async with listening(gated, Bounds(limits=Limits(tasks_per_subscription=2))) as snapshots:
        await snapshots.subscribe(ADA, ["a", "b", "a", "b"])
        with pytest.raises(LimitExceeded, match="2 tasks"):
            await snapshots.subscribe(ADA, ["a", "b", "c"])
        assert snapshots.subscribed == 1


async def test_past_the_bound_of_all_tasks_nobody_is_taken_and_those_that_are_over_do_not_count(gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(3)]
    first, second, third = (claim.task.id for claim in claims)
    async with listening(gated, Bounds(subscribed_tasks=3)) as snapshots:
        with pytest.raises(LimitExceeded, match="3 unfinished tasks"):
            await snapshots.subscribe(ADA, [first, second, third, (await gated.create(new_task())).id])
        both = await snapshots.subscribe(ADA, [first, second, NOBODYS])
        one = await snapshots.subscribe(ADA, [first])
        with pytest.raises(SubscriptionsFull, match="tasks"):
            await snapshots.subscribe(ADA, [third])
        assert snapshots.subscribed == 2
        one.close()
        again = await snapshots.subscribe(ADA, [first])
        await gated.finish(claims[0], DONE)
        await rest(again)
        assert (await snapshots.subscribe(ADA, [first])).accepted == (first,)
        await snapshots.subscribe(ADA, [second, third])
        with pytest.raises(SubscriptionsFull):
            await snapshots.subscribe(ADA, [third])
        await gated.finish(claims[1], DONE)
        assert {task.id for task in await rest(both)} == {first, second}
        await snapshots.subscribe(ADA, [third])
        await snapshots.subscribe(ADA, [third])
        with pytest.raises(SubscriptionsFull):
            await snapshots.subscribe(ADA, [third])


async def test_an_owner_listens_to_so_many_tasks_and_leaves_the_rest_to_others(gated: Rigged) -> None:
    claims = [await running(gated) for _ in range(2)]
    first, second = (claim.task.id for claim in claims)
    async with listening(gated, Bounds(subscribed_tasks=10, owner_subscribed_tasks=2)) as snapshots:
        with pytest.raises(LimitExceeded, match="2 unfinished tasks"):
            await snapshots.subscribe(ADA, [first, second, (await gated.create(new_task())).id])
        both = await snapshots.subscribe(ADA, [first, second])
        with pytest.raises(SubscriptionsFull, match="tasks"):
            await snapshots.subscribe(ADA, [first])
        his = (await gated.create(new_task(owner=BOB))).id
        assert (await snapshots.subscribe(BOB, [his])).accepted == (his,)
        for _ in range(3):
            await snapshots.subscribe(ADA, [first], counted=False)
        await gated.finish(claims[0], DONE)
        while (snapshot := await both.next()) is not None and not snapshot.task.status.terminal:
            pass
        one = await snapshots.subscribe(ADA, [second])
        with pytest.raises(SubscriptionsFull):
            await snapshots.subscribe(ADA, [second])
        one.close()
        both.close()
        await snapshots.subscribe(ADA, [second])


async def test_one_that_could_not_begin_takes_no_place(snapshots: Snapshots, gated: Rigged) -> None:
    await watching_another(snapshots, gated)
    tasks = [await gated.create(new_task()) for _ in range(2)]
    gated.fail("changed", 1)
    with pytest.raises(StoreUnavailable):
        await snapshots.subscribe(ADA, [task.id for task in tasks])
    gate = gated.gate_before("changed")
    subscribing = asyncio.create_task(snapshots.subscribe(ADA, [task.id for task in tasks]))
    await gate.reached()
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    assert (snapshots.subscribed, len(snapshots.watched)) == (1, 1)
