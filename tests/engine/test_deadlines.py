"""Runs that are bounded in time: what becomes of them, whatever their work does, and of the work that does not end."""

import asyncio
import threading

import pytest

from perdure.domain.model import Completed, JSONObject, Outcome, Status
from perdure.engine.run import Run, Stop
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import (
    OVERRUN,
    Coroutine,
    Stage,
    Thread,
    Work,
    ask,
    done,
    ended,
    handlers,
    question,
    serving,
    status,
)
from tests.store.support import ADA, new_task
from tests.support import PATIENCE, eventually

SOON = 20
"""Milliseconds, of real time: deadlines are kept by the worker's event loop."""


async def _hangs(run: Run, params: JSONObject) -> Outcome:
    return await asyncio.Future[Outcome]()


async def test_a_coroutine_that_hangs_is_cancelled_and_the_handler_says_what_it_came_to(store: Store) -> None:
    stops: list[Stop | None] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            return await _hangs(run, params)
        finally:
            stops.append(run.stop)

    stage = Stage(store, work)
    await stage.create(timeout_ms=SOON)
    over = await stage.run()
    assert (over.status, over.result, stops) == (Status.COMPLETED, OVERRUN.result, [Stop.TIMEOUT])


async def test_a_worker_ends_it_and_goes_on_with_others(store: Store) -> None:
    task, other = await store.create(new_task(timeout_ms=SOON)), await store.create(new_task("other"))

    async def fine(run: Run, params: JSONObject) -> Outcome:
        return done()

    async with serving(store, handlers(report=_hangs, other=fine), concurrency=1):
        assert (await ended(store, task)).result == OVERRUN.result
        assert (await ended(store, other)).result == done().result


async def _returns(run: Run, params: JSONObject) -> Outcome:
    try:
        return await _hangs(run, params)
    except asyncio.CancelledError:
        return done("half of it")


async def _asks(run: Run, params: JSONObject) -> Outcome:
    try:
        return await _hangs(run, params)
    except asyncio.CancelledError:
        return Completed(await ask(run, name=question("More time?")))


async def _raises(run: Run, params: JSONObject) -> Outcome:
    try:
        return await _hangs(run, params)
    except asyncio.CancelledError:
        raise ValueError from None


@pytest.mark.parametrize("work", [_returns, _asks, _raises])
async def test_whatever_the_work_makes_of_it_the_handler_decides(store: Store, work: Work) -> None:
    stage = Stage(store, Coroutine(work))
    await stage.create(timeout_ms=SOON)
    assert (await stage.run()).result == OVERRUN.result


async def test_a_coroutine_that_does_not_hear_of_it_is_left_to_itself_after_its_cleanup_and_keeps_its_slot(
    store: Store,
) -> None:
    told, let_go = list[int](), asyncio.Event()

    async def deaf(run: Run, params: JSONObject) -> Outcome:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                told.append(1)
        return done()

    async def fine(run: Run, params: JSONObject) -> Outcome:
        return done()

    task = await store.create(new_task(timeout_ms=SOON))
    async with serving(store, handlers(report=deaf, other=fine), concurrency=1, cleanup_ms=10):
        assert (await ended(store, task)).result == OVERRUN.result
        other = await store.create(new_task("other"))
        await eventually(lambda: len(told) == 2, "it was not told again when it was abandoned")
        for _ in range(50):  # turns of the event loop, in which it would be claimed
            await asyncio.sleep(0)
            assert await status(store, other) is Status.WORKING
        let_go.set()
        await ended(store, other)


async def test_a_thread_that_hangs_is_left_behind_while_others_go_on_and_what_it_returns_is_dropped(
    store: Store,
) -> None:
    let_go, seen = threading.Event(), list[Stop | None]()

    def hangs(run: Run) -> Outcome:
        let_go.wait(PATIENCE)
        seen.append(run.stop)
        return done("far too late")

    async def fine(run: Run, params: JSONObject) -> Outcome:
        return done()

    task = await store.create(new_task(timeout_ms=SOON))
    async with serving(store, handlers(report=Thread(hangs), other=fine), concurrency=2, cleanup_ms=10):
        over = await ended(store, task)
        assert over.result == OVERRUN.result
        for _ in range(3):
            await ended(store, await store.create(new_task("other")))
        let_go.set()
        await eventually(lambda: seen == [Stop.LOST], "the thread did not end")
    assert (await store.get(ADA, task.id)).version == over.version


async def test_the_only_slot_is_not_free_while_a_thread_hangs_in_it(store: Store) -> None:
    let_go = threading.Event()

    def hangs(run: Run) -> Outcome:
        let_go.wait(PATIENCE)
        return done()

    began: list[bool] = []

    async def fine(run: Run, params: JSONObject) -> Outcome:
        began.append(let_go.is_set())
        return done()

    task = await store.create(new_task(timeout_ms=SOON))
    async with serving(store, handlers(report=Thread(hangs), other=fine), concurrency=1, cleanup_ms=10, poll_ms=10):
        await ended(store, task)
        other = await store.create(new_task("other"))
        for _ in range(50):  # turns of the event loop, in which it would be claimed
            await asyncio.sleep(0)
            assert await status(store, other) is Status.WORKING
        let_go.set()
        await ended(store, other)
    assert began == [True]


async def test_a_thread_sees_that_its_time_is_up_and_may_end(store: Store) -> None:
    def work(run: Run) -> Outcome:
        while not run.stopping:
            threading.Event().wait(0.005)
        return done("as far as I got")

    stage = Stage(store, Thread(work))
    await stage.create(timeout_ms=SOON)
    assert (await stage.run()).result == OVERRUN.result


async def test_each_run_has_the_whole_time_and_a_wait_between_them_counts_for_nothing(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed(await ask(run, name=question("Your name?")))

    stage = Stage(store, work)
    await stage.create(timeout_ms=60_000)
    await stage.run()
    first = stage.claim.deadline_at
    await store.answer(ADA, stage.task.id, {"name": "Ada"})
    assert await stage.result() == {"name": "Ada"}
    assert first == stage.claim.deadline_at == stage.claim.at + 60_000


# -- races -------------------------------------------------------------------------------------------------------------


async def test_work_that_ended_before_its_deadline_counts_though_its_result_is_stored_after_it(gated: Rigged) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return done("in time")

    gate = gated.gate_before("finish")
    stage = Stage(gated, work)
    await stage.create(timeout_ms=1)
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await asyncio.sleep(0.01)
    execution.tell(Stop.TIMEOUT)  # as if somebody still looked at the clock
    gate.open()
    assert await seeing
    assert (await stage.now()).result == done("in time").result


async def test_a_task_that_is_cancelled_before_its_deadline_is_cancelled(store: Store) -> None:
    cancelled = asyncio.Event()

    async def slow_cleanup(run: Run, params: JSONObject) -> Outcome:
        try:
            return await _hangs(run, params)
        finally:
            cancelled.set()
            await asyncio.sleep(4 * SOON / 1000)

    stage = Stage(store, slow_cleanup)
    await stage.create(timeout_ms=SOON)
    execution = await stage.begin()
    await asyncio.sleep(0)
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert cancelled.is_set()
    assert ((await stage.now()).status, execution.run.stop) == (Status.CANCELLED, Stop.LOST)


async def test_a_task_that_is_cancelled_after_its_deadline_ends_as_the_handler_said(store: Store) -> None:
    over = asyncio.Event()
    seen: list[tuple[Stop | None, bool]] = []

    async def slow_cleanup(run: Run, params: JSONObject) -> Outcome:
        try:
            return await _hangs(run, params)
        finally:
            over.set()
            await eventually(lambda: run.cancelled, "it did not hear of the cancellation")
            seen.append((run.stop, run.cancelled))

    stage = Stage(store, slow_cleanup)
    await stage.create(timeout_ms=SOON)
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await over.wait()
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await seeing
    assert seen == [(Stop.TIMEOUT, True)]
    assert (await stage.now()).result == OVERRUN.result
