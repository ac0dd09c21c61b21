"""What may be large is read when a reader comes for it: once for all who do, and held no longer than they hold it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from perdure.domain.model import Failure, InputRequest, JSONObject, Owner, Status, Task
from perdure.engine.news import News, Reading, Snapshot
from perdure.engine.snapshots import Snapshots
from perdure.engine.subscription import Subscription
from tests.engine.rigged import Gate, Rigged
from tests.engine.subscribing import Hands, listening, now, rest, seen
from tests.store.support import ADA, DONE, NAME, VirtualClock, asks, new_task, running
from tests.support import PATIENCE, eventually

TASK = Task(1, "tsk_x", ADA, Status.WORKING, created_at=0, updated_at=0, version=1)


@pytest.fixture
async def snapshots(gated: Rigged) -> AsyncIterator[Snapshots]:
    async with listening(gated, clock=Hands()) as snapshots:
        yield snapshots


async def finished(rigged: Rigged, count: int = 1) -> list[str]:
    """Tasks that are over, with results."""
    claims = [await running(rigged) for _ in range(count)]
    for claim in claims:
        await rigged.finish(claim, DONE)
    return [claim.task.id for claim in claims]


def held() -> int:
    """How many snapshots there are in memory."""
    gc.collect()
    return sum(type(each) is Snapshot for each in gc.get_objects())


# -- when it is read ---------------------------------------------------------------------------------------------------


async def test_nobody_reads_a_result_before_its_turn_and_nobody_holds_it_after(
    snapshots: Snapshots, gated: Rigged
) -> None:
    ids = await finished(gated, 6)
    before = held()
    subscription = await snapshots.subscribe(ADA, ids)
    assert (gated.calls.count("get"), held()) == (0, before)
    for count in range(1, 7):
        assert (await seen(subscription)).result == DONE.result
        assert (gated.calls.count("get"), held()) == (count, before)
    assert await now(subscription.next()) is None


async def test_what_says_no_more_than_how_it_stands_is_not_read_again(snapshots: Snapshots, gated: Rigged) -> None:
    claim, ended = await running(gated), await gated.create(new_task())
    await gated.request_cancel(ADA, ended.id)
    subscription = await snapshots.subscribe(ADA, [claim.task.id, ended.id])
    assert [(await seen(subscription)).status for _ in range(2)] == [Status.WORKING, Status.CANCELLED]
    await gated.report(claim, "halfway")
    assert (await seen(subscription)).message == "halfway"
    assert "get" not in gated.calls


async def test_all_who_wait_for_a_result_share_one_read(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscriptions = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(50)]
    for subscription in subscriptions:
        await seen(subscription)
    readers = [asyncio.create_task(subscription.next()) for subscription in subscriptions]
    await asyncio.sleep(0)
    await gated.finish(claim, DONE)
    handed = await now(asyncio.gather(*readers))
    assert (len({id(snapshot) for snapshot in handed}), gated.calls.count("get")) == (1, 1)
    first = handed[0]
    assert first is not None
    late = await snapshots.subscribe(ADA, [claim.task.id])
    assert (await seen(late)) == first.task


async def test_whoever_comes_while_another_holds_it_gets_that_one(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    first, second = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(2)]
    for each in (first, second):
        await seen(each)
    await gated.finish(claim, DONE)
    one = await now(first.next())
    assert await now(second.next()) is one
    assert gated.calls.count("get") == 1


async def test_so_many_are_read_at_the_same_time_and_no_more(snapshots: Snapshots, gated: Rigged) -> None:
    subscriptions = [await snapshots.subscribe(ADA, [task_id]) for task_id in await finished(gated, 10)]
    gates = [gated.gate_before("get") for _ in range(10)]
    readers = [asyncio.create_task(subscription.next()) for subscription in subscriptions]
    for count, gate in enumerate(gates):
        await gate.reached()
        at_once = min(count + 2, 10)
        await eventually(lambda most=at_once: gated.calls.count("get") >= most, "the next one is read beside it")
        await asyncio.sleep(0.001)
        assert gated.calls.count("get") == at_once
        gate.open()
    assert all(await now(asyncio.gather(*readers)))


# -- what is large -----------------------------------------------------------------------------------------------------


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.news._LARGE", 10)


@pytest.mark.parametrize(
    ("result", "large"),
    [
        ({"content": []}, False),
        ({"content": [{"type": "text", "text": "x" * 70_000}]}, True),
        ({"content": [{"type": "text", "text": "x" * 60_000}]}, False),
        ({"structuredContent": {"numbers": [0] * 9_000}}, True),
        ({"structuredContent": {"n" * 70_000: None}}, True),
    ],
)
def test_a_result_of_so_many_characters_is_large(result: JSONObject, large: bool) -> None:
    assert Snapshot(replace(TASK, status=Status.COMPLETED, result=result)).large is large


def test_an_error_and_a_question_may_be_large_too() -> None:
    much: JSONObject = {"much": "x" * 70_000}
    assert Snapshot(replace(TASK, status=Status.FAILED, error=Failure(-32000, "broken", much))).large
    question = InputRequest("key", {"method": "elicitation/create", "params": much}, issued_at=0, place="0")
    assert Snapshot(replace(TASK, status=Status.INPUT_REQUIRED, inputs=(question,))).large
    assert not Snapshot(replace(TASK, status=Status.FAILED, error=Failure(-32000, "broken"))).large


async def passes_of(subscriptions: list[Subscription], step: Callable[[], None]) -> list[int]:
    """In which passes of the event loop they are handed something; each does `step` with it at once."""
    passes, seen_in = 0, list[int]()

    async def count() -> None:
        nonlocal passes
        while len(seen_in) < len(subscriptions):
            passes += 1
            await asyncio.sleep(0)

    async def read(subscription: Subscription) -> None:
        assert await subscription.next() is not None
        seen_in.append(passes)
        step()

    await now(asyncio.gather(count(), *map(read, subscriptions)))
    return seen_in


async def test_who_waits_for_something_small_goes_on_with_all_others(snapshots: Snapshots, gated: Rigged) -> None:
    (task_id,) = await finished(gated)
    subscriptions = [await snapshots.subscribe(ADA, [task_id]) for _ in range(20)]
    assert len(set(await passes_of(subscriptions, lambda: None))) <= 2


@pytest.mark.usefixtures("everything_is_large")
async def test_who_waits_for_something_large_goes_on_alone_and_it_is_read_once(
    snapshots: Snapshots, gated: Rigged
) -> None:
    (task_id,) = await finished(gated)
    subscriptions = [await snapshots.subscribe(ADA, [task_id]) for _ in range(20)]
    assert len(set(await passes_of(subscriptions, lambda: None))) == 20
    assert gated.calls.count("get") == 1


@pytest.mark.usefixtures("everything_is_large")
async def test_after_a_turn_the_loop_is_everybodys_for_as_long_as_it_took(
    gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands, loop = Hands(), asyncio.get_running_loop()
    async with listening(gated, clock=hands) as snapshots:
        for step, rest_of_one in ((0.02, 0.02), (3600.0, 0.01)):
            monkeypatch.setattr("perdure.engine.news._LONGEST_REST", min(0.02, rest_of_one))
            (task_id,) = await finished(gated)
            subscriptions = [await snapshots.subscribe(ADA, [task_id]) for _ in range(5)]
            begun = loop.time()
            await passes_of(subscriptions, lambda step=step: hands.advance(step))
            assert 4 * rest_of_one <= loop.time() - begun < PATIENCE


@pytest.mark.usefixtures("everything_is_large")
async def test_who_waits_for_a_turn_holds_nothing(snapshots: Snapshots, gated: Rigged) -> None:
    subscriptions = [await snapshots.subscribe(ADA, [task_id]) for task_id in await finished(gated, 8)]
    before, most = held(), list[int]()
    await passes_of(subscriptions, lambda: most.append(held() - before))
    assert max(most) <= 4, "two that are read, the one whose turn it is, and the one before"
    await eventually(lambda: held() == before, "somebody still holds one")


@pytest.mark.usefixtures("everything_is_large")
async def test_who_gives_up_in_its_turn_or_before_leaves_it_to_the_next(gated: Rigged) -> None:
    hands = Hands()
    async with listening(gated, clock=hands) as snapshots:
        first, second, third = [await snapshots.subscribe(ADA, [task_id]) for task_id in await finished(gated, 3)]
        await first.next()
        hands.advance(0.2)
        # Its turn is not over for a while.
        in_its_turn = asyncio.create_task(second.next())
        await eventually(lambda: gated.calls.count("get") == 2, "it was not looked at")
        gate = gated.gate_before("get")
        await gate.reached()
        before_it = asyncio.create_task(third.next())
        await eventually(lambda: gated.calls.count("get") == 4, "it was not looked at")
        for giving_up in (before_it, in_its_turn):
            giving_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await giving_up
        assert [(await seen(each)).result for each in (second, third)] == [DONE.result] * 2


# -- what may happen meanwhile -----------------------------------------------------------------------------------------


async def told(rigged: Rigged) -> News:
    """The news of a task that is over."""
    (task_id,) = await finished(rigged)
    task = (await rigged.changed({task_id: 0}))[task_id]
    assert task is not None
    return News(task, Reading(_read_from(rigged), Hands()))


async def two_readers(news: News, gate: Gate) -> tuple[asyncio.Task[Snapshot | None], asyncio.Task[Snapshot | None]]:
    """One that reads, and is held up, and one that waits for the same."""
    first = asyncio.create_task(news.snapshot())
    await gate.reached()
    second = asyncio.create_task(news.snapshot())
    await asyncio.sleep(0)
    return first, second


async def test_a_reader_that_gives_up_loses_nothing_and_those_who_wait_with_it_read(
    snapshots: Snapshots, gated: Rigged
) -> None:
    news = await told(gated)
    gate = gated.gate_before("get")
    first, second = await two_readers(news, gate)
    first.cancel()
    snapshot = await now(second)
    assert snapshot is not None
    assert snapshot.task.result == DONE.result

    subscription = await snapshots.subscribe(ADA, [news.task.id])
    gate = gated.gate_before("get")
    reader = asyncio.create_task(subscription.next())
    await gate.reached()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert (await seen(subscription)).result == DONE.result


async def test_one_that_waits_with_others_and_gives_up_leaves_them_waiting(gated: Rigged) -> None:
    news = await told(gated)
    gate = gated.gate_before("get")
    first, second = await two_readers(news, gate)
    second.cancel()
    gate.open()
    assert await now(first) is not None
    assert gated.calls.count("get") == 1


def _read_from(rigged: Rigged) -> Callable[[Task], Awaitable[Task | None]]:
    async def read(task: Task) -> Task | None:
        return await rigged.get(task.owner, task.id)

    return read


async def test_a_read_that_shows_more_than_was_told_is_not_shown_twice(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await seen(subscription)
    await gated.park(claim, asks(name=NAME))
    await eventually(lambda: bool(subscription.pending), "nothing came of it")
    gate = gated.gate_before("changed")
    await gated.answer(ADA, claim.task.id, {"name": "Ada"})
    await gate.reached()
    ahead = await seen(subscription)
    assert (ahead.status, ahead) == (Status.WORKING, await gated.get(ADA, claim.task.id))
    gate.open()
    await gated.request_cancel(ADA, claim.task.id)
    assert [task.status for task in await rest(subscription)] == [Status.CANCELLED]


async def test_a_reader_that_is_ahead_of_the_end_hears_that_it_is_over(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await seen(subscription)
    await gated.park(claim, asks(name=NAME))
    await eventually(lambda: bool(subscription.pending), "nothing came of it")
    gate = gated.gate_before("changed")
    await gated.request_cancel(ADA, claim.task.id)
    await gate.reached()
    assert (await seen(subscription)).status is Status.CANCELLED
    ending = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    gate.open()
    assert await now(ending) is None


async def test_what_comes_during_a_read_is_handed_out_after_it(snapshots: Snapshots, gated: Rigged) -> None:
    claim = await running(gated)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    await seen(subscription)
    await gated.park(claim, asks(name=NAME))
    gate = gated.gate_after("get")
    reader = asyncio.create_task(subscription.next())
    await gate.reached()
    await gated.answer(ADA, claim.task.id, {"name": "Ada"})
    await eventually(lambda: _version(subscription) == 3, "it was not heard of")
    gate.open()
    first = await now(reader)
    assert first is not None
    assert [first.task.status, (await seen(subscription)).status] == [Status.INPUT_REQUIRED, Status.WORKING]


def _version(subscription: Subscription) -> int:
    return max(news.task.version for news in subscription.pending.values())


async def test_a_task_that_is_gone_when_it_is_read_is_not_shown(
    snapshots: Snapshots, gated: Rigged, clock: VirtualClock
) -> None:
    claim = await running(gated, new_task(ttl_ms=1000))
    await gated.finish(claim, DONE)
    subscription = await snapshots.subscribe(ADA, [claim.task.id])
    clock.advance(1000)
    assert await gated.purge(10, linger_ms=0, tombstone_ms=60_000) == 1
    assert await now(subscription.next()) is None


async def test_what_a_database_that_was_set_back_has_lost_is_not_shown(
    snapshots: Snapshots, gated: Rigged, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task_id,) = await finished(gated)
    subscription = await snapshots.subscribe(ADA, [task_id])
    whole = await gated.get(ADA, task_id)

    async def older(owner: Owner, task_id: str) -> Task:
        return replace(whole, version=whole.version - 1)

    monkeypatch.setattr(gated, "get", older)
    assert await now(subscription.next()) is None


# -- a store that is away ----------------------------------------------------------------------------------------------


async def test_all_who_wait_for_a_read_hear_that_it_failed(
    snapshots: Snapshots, gated: Rigged, impatient: Callable[[float], None]
) -> None:
    impatient(PATIENCE)
    (task_id,) = await finished(gated)
    subscriptions = [await snapshots.subscribe(ADA, [task_id]) for _ in range(50)]
    gated.fail("get", 1)
    handed = await now(asyncio.gather(*(subscription.next() for subscription in subscriptions)))
    assert all(handed)
    assert gated.calls.count("get") < 10


async def test_what_can_not_be_read_lets_others_go_first_and_comes_later(
    snapshots: Snapshots, gated: Rigged, impatient: Callable[[float], None]
) -> None:
    impatient(0.01)
    first, second = await finished(gated, 2)
    subscription = await snapshots.subscribe(ADA, [first, second])
    gated.fail("get", 1)
    assert [task.id for task in await rest(subscription)] == [second, first]


async def test_who_waits_for_a_store_that_is_away_hears_of_the_end(
    snapshots: Snapshots, gated: Rigged, impatient: Callable[[float], None]
) -> None:
    impatient(PATIENCE)
    subscription = await snapshots.subscribe(ADA, await finished(gated))
    gated.fail("get", 1000)
    reader = asyncio.create_task(subscription.next())
    await eventually(lambda: gated.calls.count("get") > 2, "nobody tries again")
    snapshots.close()
    assert await now(reader) is None
