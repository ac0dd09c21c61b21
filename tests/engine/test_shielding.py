"""Shielded blocks, and the time for cleaning up: a cancellation waits, and nobody waits for ever."""

import asyncio
from collections.abc import Callable

import pytest

from perdure.domain.model import JSONObject, Outcome, Status
from perdure.engine.run import Run, Stop
from perdure.store.base import Store
from tests.engine.support import OVERRUN, Stage, Thread, done, ended, handlers, serving, value
from tests.store.support import ADA, new_task
from tests.support import eventually


async def _stop(store: Store, stage: Stage, why: Stop) -> None:
    if why is Stop.CANCEL:
        await store.request_cancel(ADA, stage.task.id)


@pytest.mark.parametrize("why", [Stop.CANCEL, Stop.SHUTDOWN, Stop.TIMEOUT])
async def test_a_shield_holds_a_cancellation_back_until_its_block_ends(store: Store, why: Stop) -> None:
    shielded, let_go = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        with run.shield():
            shielded.set()
            await let_go.wait()
            await value(run, "the rest of it")
            heard.append("block ended")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise
        raise AssertionError

    stage = Stage(store, work)
    execution = await stage.begin()
    await shielded.wait()
    await _stop(store, stage, why)
    execution.tell(why)
    let_go.set()
    await execution.see_through()
    assert heard == ["block ended", "cancelled"]
    assert list(await stage.entries()) == ["0"]


async def test_shields_may_be_nested_and_held_by_several_branches(store: Store) -> None:
    shielded, let_go = list[str](), asyncio.Event()
    ended_well: list[str] = []

    async def branch(run: Run, name: str) -> None:
        with run.shield(), run.shield():
            shielded.append(name)
            await let_go.wait()
            ended_well.append(name)

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([branch(run, "a"), branch(run, "b")])
        await asyncio.Event().wait()
        raise AssertionError

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(lambda: len(shielded) == 2, "they did not begin")
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    let_go.set()
    await execution.see_through()
    assert sorted(ended_well) == ["a", "b"]
    assert (await stage.now()).status is Status.CANCELLED


async def test_a_cancellation_is_delivered_once_though_another_shield_ends_later(store: Store) -> None:
    shielded, let_go = asyncio.Event(), asyncio.Event()
    cancellations: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        with run.shield():
            shielded.set()
            await let_go.wait()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancellations.append(1)
        with run.shield():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return done("cleaned up")

    stage = Stage(store, work)
    execution = await stage.begin()
    await shielded.wait()
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    let_go.set()
    await execution.see_through()
    assert ((await stage.now()).result, cancellations) == (done("cleaned up").result, [1])


async def test_a_shield_that_nobody_disturbs_does_nothing(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        with run.shield():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return done()

    assert (await Stage(store, work).run()).status is Status.COMPLETED


async def test_a_lost_run_is_stopped_in_spite_of_its_shield(store: Store) -> None:
    shielded, heard = asyncio.Event(), list[Stop | None]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        with run.shield():
            shielded.set()
            try:
                await asyncio.Event().wait()
            finally:
                heard.append(run.stop)
        raise AssertionError

    stage = Stage(store, work)
    execution = await stage.begin()
    await shielded.wait()
    execution.tell(Stop.CANCEL)  # which is held back
    execution.tell(Stop.LOST)
    assert not await execution.see_through()
    assert heard == [Stop.LOST]


async def _forever_shielded(run: Run) -> None:
    with run.shield():
        await asyncio.Event().wait()


async def _forever_cleaning(run: Run) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.Event().wait()


@pytest.mark.parametrize("hangs", [_forever_shielded, _forever_cleaning])
@pytest.mark.parametrize(
    ("why", "status", "result"),
    [(Stop.CANCEL, Status.CANCELLED, None), (Stop.TIMEOUT, Status.COMPLETED, OVERRUN.result)],
)
async def test_what_does_not_end_within_its_cleanup_is_ended_all_the_same(
    store: Store, hangs: Callable[[Run], object], why: Stop, status: Status, result: JSONObject | None
) -> None:
    began = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        began.set()
        await hangs(run)  # pyright: ignore[reportGeneralTypeIssues] - a coroutine function
        raise AssertionError

    stage = Stage(store, work, cleanup=0.01)
    execution = await stage.begin()
    await began.wait()
    await _stop(store, stage, why)
    execution.tell(why)
    assert await execution.see_through()
    await execution.gone()
    over = await stage.now()
    assert (over.status, over.result) == (status, result)


async def test_a_worker_bounds_the_cleanup_of_what_it_runs(store: Store) -> None:
    began = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        began.set()
        await _forever_cleaning(run)
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), cleanup_ms=10):
        await began.wait()
        await store.request_cancel(ADA, task.id)
        assert (await ended(store, task)).status is Status.CANCELLED


async def test_a_thread_that_does_not_mind_is_ended_after_its_cleanup(store: Store) -> None:
    loop, let_go, began = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def work(run: Run) -> Outcome:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result()
        return done("too late")

    stage = Stage(store, Thread(work), cleanup=0.01)
    execution = await stage.begin()
    await began.wait()
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert (await stage.now()).status is Status.CANCELLED
    gone = asyncio.create_task(execution.gone())
    await asyncio.sleep(0)
    assert not gone.done()
    let_go.set()
    await gone
