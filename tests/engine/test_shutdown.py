"""A graceful shutdown: what is finished, what is handed over, and that it ends whatever the tools do."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.journal import Journal
from perdure.domain.model import Demand, JSONObject, Outcome, Status
from perdure.engine.run import Run, Stop
from perdure.engine.worker import Worker
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import (
    HOUR,
    Thread,
    ask,
    claim_as_another,
    done,
    ended,
    handlers,
    question,
    serving,
    status,
    worker_session,
)
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import PATIENCE, eventually

Unwind = Callable[[float], None]


async def test_tasks_are_finished_in_the_grace_period_and_none_is_begun(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure")
    started, let_go = list[str](), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.append(run.claim.task.id)
        await let_go.wait()
        return done()

    first = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=HOUR) as worker:
        await eventually(lambda: started == [first.id], "the task did not start")
        worker.stop()
        second = await store.create(new_task())
        let_go.set()
    assert (started, await status(store, first)) == ([first.id], Status.COMPLETED)
    claim = await claim_as_another(store)
    assert (claim.task.id, claim.attempt) == (second.id, 1)
    assert _said(caplog) == ["the worker stops: it waits up to 3600 s for what runs (tasks: 1)"]


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "perdure.engine.worker"]


async def test_an_idle_worker_stops_at_once_and_hears_and_says_nothing_more(
    rigged: Rigged, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure")
    async with serving(rigged, handlers(report=_never), grace_ms=HOUR, poll_ms=HOUR):
        await worker_session(rigged)
        await eventually(lambda: "claim" in rigged.calls, "it did not look for work")
        assert rigged.listeners == 1
    assert (rigged.listeners, rigged.calls[-1]) == (0, "close_session")
    assert _said(caplog) == []


async def test_what_does_not_end_in_time_is_cancelled_and_handed_over_with_its_attempt_unchanged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure")
    stops: list[Stop | None] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        stops.append(run.stop)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            stops.append(run.stop)
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=1):
        await eventually(lambda: stops == [None], "the task did not start")
    assert (stops, await store.sessions()) == ([None, Stop.SHUTDOWN], ())
    claim = await claim_as_another(store)
    assert (claim.task.id, claim.attempt) == (task.id, 1)
    assert _said(caplog) == [
        "the worker stops: it waits up to 0.001 s for what runs (tasks: 1)",
        "the grace period is over; what runs is stopped and handed over (tasks: 1)",
    ]


async def test_what_cancelled_work_returns_at_a_shutdown_is_no_result_and_the_run_goes_to_another(store: Store) -> None:
    """Nobody asked the task to stop, so half a result must not become its end."""
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return done("as far as I got")
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=1):
        await started.wait()
    assert (await store.get(ADA, task.id)).result is None
    claim = await claim_as_another(store)
    assert (claim.task.id, claim.attempt) == (task.id, 1)


async def test_a_thread_that_ends_by_itself_during_a_shutdown_has_a_result(store: Store) -> None:
    """It was not interrupted: it knows nothing of the shutdown unless it asks."""
    started, runs = threading.Event(), list[Run]()

    def work(run: Run) -> Outcome:
        runs.append(run)
        started.set()
        while not run.stopping:
            threading.Event().wait(0.01)
        return done("to the end")

    task = await store.create(new_task())
    async with serving(store, {"tools/call:report": Thread(work)}, grace_ms=1):
        await eventually(started.is_set, "the task did not start")
    assert (await store.get(ADA, task.id)).result == done("to the end").result
    assert not runs[0].cancelled


async def test_a_run_that_makes_way_begins_nothing_more_whatever_its_clean_up_tries(store: Store) -> None:
    """Whatever it recorded would stand where the next run comes by with something else."""
    started = asyncio.Event()
    tried: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            verbs: list[Callable[[], Awaitable[object]]] = [
                lambda: ask(run, name=question("Your name?")),
                lambda: run.sleep(1),
                lambda: run.gather(list[Awaitable[object]]()),
            ]
            for verb in verbs:
                try:
                    await verb()
                except asyncio.CancelledError:
                    tried.append("cancelled")
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=1):
        await started.wait()
    inspection = await store.inspect(task.id)
    assert (inspection.task.status, inspection.journal, tried) == (Status.WORKING, Journal(), ["cancelled"] * 3)


async def test_a_cancellation_that_came_before_the_shutdown_stays_one(store: Store, impatient: Unwind) -> None:
    impatient(0.05)
    cancelled = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.Event().wait()
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=1):
        await worker_session(store)
        await eventually(lambda: _held(store, task.id), "the task did not start")
        await store.request_cancel(ADA, task.id)
        await cancelled.wait()
    assert await status(store, task) is Status.CANCELLED


async def _held(store: Store, task_id: str) -> bool:
    """Whether somebody runs the task. Asked without disturbing it: what is held can't be claimed."""
    session = await store.open_session(HOUR, {"host": "elsewhere"})
    claims = await store.claim(session.id, [Demand("tools/call:report", 1)], 1)
    await store.close_session(session.id)
    return claims == ()


async def test_cleanup_that_never_ends_does_not_hold_up_the_shutdown(store: Store, impatient: Unwind) -> None:
    impatient(0.05)
    started, deaf = asyncio.Event(), list[int]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                deaf.append(1)
                if len(deaf) == 3:
                    return done("far too late")

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), grace_ms=1):
        await started.wait()
    # Cancelled once to shut down, and once more when it is abandoned. It is still there, but it has no say.
    assert len(deaf) == 2
    claim = await claim_as_another(store)
    assert (claim.task.id, claim.attempt) == (task.id, 1)


async def test_a_thread_that_never_ends_does_not_hold_up_the_shutdown(store: Store, impatient: Unwind) -> None:
    impatient(0.05)
    started, let_go, ran = threading.Event(), threading.Event(), list[Stop | None]()

    def work(run: Run) -> Outcome:
        started.set()
        let_go.wait(PATIENCE)
        ran.append(run.stop)
        return done("far too late")

    task = await store.create(new_task())
    async with serving(store, handlers(report=Thread(work)), grace_ms=1):
        await eventually(started.is_set, "the thread did not start")
    claim = await claim_as_another(store)
    assert (claim.task.id, claim.attempt, ran) == (task.id, 1, [])
    let_go.set()
    await eventually(lambda: ran == [Stop.LOST], "the thread did not end")
    assert await status(store, task) is Status.WORKING


async def test_a_lost_run_has_no_grace_period(store: Store, impatient: Unwind) -> None:
    impatient(0.05)
    started, let_go = threading.Event(), threading.Event()

    def work(run: Run) -> Outcome:
        if run.claim.attempt == 1:
            started.set()
            let_go.wait(PATIENCE)
        return done()

    task = await store.create(new_task())
    async with serving(store, handlers(report=Thread(work)), grace_ms=HOUR):
        await eventually(started.is_set, "the thread did not start")
        await store.take_over([await worker_session(store)])
        await ended(store, task)
    let_go.set()


@pytest.mark.parametrize("how", ["taken over", "expired"])
async def test_a_run_that_is_lost_during_the_grace_period_ends_it(
    store: Store, clock: VirtualClock, impatient: Unwind, how: str
) -> None:
    impatient(0.05)
    started, let_go = threading.Event(), threading.Event()

    def work(run: Run) -> Outcome:
        started.set()
        let_go.wait(PATIENCE)
        return done()

    task = await store.create(new_task(ttl_ms=1000))
    async with serving(store, handlers(report=Thread(work)), grace_ms=HOUR, lease_ms=60) as worker:
        await eventually(started.is_set, "the thread did not start")
        session = await worker_session(store)
        worker.stop()
        if how == "taken over":
            await store.take_over([session])
        else:
            for _ in range(50):  # turns of the event loop, in which the grace period begins
                await asyncio.sleep(0)
            clock.advance(1000)
            await store.expire(10)

        async def over() -> bool:
            return await store.sessions() == ()

        await eventually(over, "the shutdown waits for a run that no longer counts")
    let_go.set()
    assert await status(store, task) is (Status.WORKING if how == "taken over" else Status.FAILED)


async def test_what_was_being_claimed_when_the_shutdown_came_is_run(rigged: Rigged) -> None:
    task = await rigged.create(new_task())
    workers: list[Worker] = []

    async def stop() -> None:
        workers[0].stop()
        await asyncio.sleep(0.01)

    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    rigged.after["claim"].append(stop)
    async with serving(rigged, handlers(report=work)) as worker:
        workers.append(worker)
        await eventually(lambda: "claim" in rigged.calls, "nothing was claimed")
    assert (await status(rigged, task), rigged.calls.count("claim")) == (Status.COMPLETED, 1)


async def test_a_claim_that_hangs_does_not_hold_up_the_shutdown_and_what_it_took_is_handed_over(
    rigged: Rigged,
) -> None:
    await rigged.create(new_task())
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.Event().wait()

    rigged.after["claim"].append(hang)
    async with serving(rigged, handlers(report=_never), grace_ms=1):
        await hanging.wait()
    assert (await claim_as_another(rigged)).attempt == 1


async def _never(run: Run, params: JSONObject) -> Outcome:
    raise AssertionError


async def test_a_worker_whose_loop_breaks_abandons_its_work_and_leaves_the_rest_to_the_lease(rigged: Rigged) -> None:
    """A defect of the store ends the worker. Its tasks are stopped, and count as those of one that died."""
    stops: list[Stop | None] = []
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stops.append(run.stop)
        raise AssertionError

    async def scene() -> None:
        async with serving(rigged, handlers(report=work)):
            await started.wait()
            rigged.fail("claim", 1, ZeroDivisionError())
            await eventually(lambda: stops == [Stop.LOST], "the work went on")

    await rigged.create(new_task())
    with pytest.raises(ExceptionGroup) as broken:
        await scene()
    assert broken.group_contains(ZeroDivisionError)
    assert len(await rigged.sessions()) == 1


async def test_work_that_was_claimed_while_the_worker_broke_is_not_left_running(rigged: Rigged) -> None:
    """The group breaks in the very moment in which a claim has returned: what watches over the work never begins to."""
    task = await rigged.create(new_task())
    claimed, began = asyncio.Event(), list[int]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        began.append(run.claim.attempt)
        return await asyncio.Future[Outcome]()

    async def break_after_the_claim() -> None:
        await claimed.wait()
        raise ZeroDivisionError

    async def tell() -> None:
        claimed.set()
        # One turn of the event loop: the group is about to hear of the error when the work is started.
        await asyncio.sleep(0)

    async def scene() -> None:
        async with serving(rigged, handlers(report=work)):
            await claimed.wait()

    rigged.before["sessions"].append(break_after_the_claim)
    rigged.after["claim"].append(tell)
    before = asyncio.all_tasks()
    with pytest.raises(ExceptionGroup) as broken:
        await scene()
    assert broken.group_contains(ZeroDivisionError)
    await eventually(lambda: asyncio.all_tasks() <= before, "something was left running")
    assert await status(rigged, task) is Status.WORKING
