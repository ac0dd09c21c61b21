"""The engine of a process as a whole: what comes up, what goes down, in which order, and what can't prevent it."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from perdure.domain.errors import StoreUnavailable, StoreUnusable
from perdure.domain.model import Change, JSONObject, Outcome, Status
from perdure.engine import runtime
from perdure.engine.run import Run, Stop
from perdure.engine.runtime import Options, Runtime
from perdure.engine.wake import Hub
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from tests.engine.rigged import Rigged
from tests.engine.subscribing import now, rest, seen
from tests.engine.support import claim_as_another, done, ended, handlers, status
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import PATIENCE, eventually

QUICK = Options(grace_ms=1, poll_ms=20)


async def at_once(run: Run, params: JSONObject) -> Outcome:
    return done()


class Endless:
    """Work that goes on until it is stopped."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stops: list[Stop | None] = []

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stops.append(run.stop)
        raise AssertionError


async def test_the_store_is_opened_first_and_closed_last_and_the_session_given_back_before(rigged: Rigged) -> None:
    task = await rigged.create(new_task())
    rigged.calls.clear()
    async with Runtime(rigged, handlers(report=at_once), QUICK).running():
        await ended(rigged, task)
    calls = rigged.calls
    assert (calls[0], calls[-2:]) == ("open", ["close_session", "close"])
    assert {"expire", "purge", "claim", "sessions"} <= set(calls)


async def test_a_runtime_can_be_entered_again_after_it_was_left(tmp_path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")
    runtime = Runtime(store, handlers(report=at_once), QUICK)
    for _ in range(2):
        async with runtime.running():
            await ended(store, await store.create(new_task()))
        with pytest.raises(StoreUnavailable):
            await store.sessions()
    await eventually(lambda: not _writers(), "the store's thread is still there")


async def test_a_runtime_without_a_worker_keeps_house_and_runs_nothing(rigged: Rigged, clock: VirtualClock) -> None:
    task = await rigged.create(new_task(ttl_ms=1000))
    clock.advance(1000)
    async with Runtime(rigged, handlers(report=at_once), Options(worker=False)).running():
        assert (await ended(rigged, task)).status is Status.FAILED
    assert not {"open_session", "claim"} & set(rigged.calls)


async def test_whoever_listens_is_kept_up_while_it_runs_and_ended_with_it(tmp_path: Path) -> None:
    runtime = Runtime(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"), handlers(report=at_once), QUICK)
    with pytest.raises(StoreUnavailable):
        await runtime.snapshots.subscribe(ADA, [])
    for _ in range(2):
        async with runtime.running():
            task = await runtime.store.create(new_task())
            subscription = await runtime.snapshots.subscribe(ADA, [task.id], stays=True)
            while (await seen(subscription)).status is not Status.COMPLETED:
                pass
        assert await now(subscription.next()) is None


async def test_whoever_listens_is_ended_as_soon_as_the_worker_is_told_to_stop(rigged: Rigged) -> None:
    runtime = Runtime(rigged, handlers(report=Endless()), QUICK)
    async with runtime.running():
        task = await rigged.create(new_task())
        subscription = await runtime.snapshots.subscribe(ADA, [task.id])
        runtime.stop_working()
        assert await now(rest(subscription))
        with pytest.raises(StoreUnavailable):
            await runtime.snapshots.subscribe(ADA, [task.id])


async def test_a_worker_may_be_told_to_stop_ahead_of_the_rest(rigged: Rigged) -> None:
    work = Endless()
    task = await rigged.create(new_task())
    runtime = Runtime(rigged, handlers(report=work), QUICK)
    async with runtime.running():
        await work.started.wait()
        runtime.stop_working()
        await eventually(lambda: "close_session" in rigged.calls, "the worker did not end")
        assert work.stops == [Stop.SHUTDOWN]
        assert (await claim_as_another(rigged)).attempt == 1
        assert await status(rigged, task) is Status.WORKING


async def test_a_store_that_can_not_be_used_starts_nothing(tmp_path: Path) -> None:
    runtime = Runtime(SQLiteStore(f"sqlite:///{tmp_path}"), handlers(report=at_once), QUICK)
    before = asyncio.all_tasks()
    with pytest.raises(StoreUnusable, match="is a folder"):
        async with runtime.running():
            pytest.fail("it is up")
    assert asyncio.all_tasks() == before
    await eventually(lambda: not _writers(), "the store's thread is still there")


def _writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "perdure-writer"]


async def test_a_start_that_is_cancelled_halfway_closes_the_store_again(rigged: Rigged) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def up() -> None:
        async with Runtime(rigged, handlers(report=at_once), QUICK).running():
            raise AssertionError

    rigged.after["open"].append(hang)
    starting = asyncio.create_task(up())
    await eventually(lambda: rigged.calls == ["open"], "it did not start")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert rigged.calls == ["open", "close"]


async def test_whoever_watches_a_task_is_woken_by_its_changes_while_the_runtime_is_up(rigged: Rigged) -> None:
    runtime = Runtime(rigged, handlers(), QUICK)
    async with runtime.running():
        task = await rigged.create(new_task())
        with runtime.hub.watch(task.id) as changed:
            await rigged.request_cancel(ADA, task.id)
            assert changed.is_set()
    other = await rigged.create(new_task())
    with runtime.hub.watch(other.id) as changed:
        await rigged.request_cancel(ADA, other.id)
        assert not changed.is_set()


def test_the_hub_wakes_everybody_who_watches_a_task_and_nobody_else() -> None:
    hub = Hub()
    change = Change("tsk_1", 1, Status.WORKING)
    with hub.watch("tsk_1") as first, hub.watch("tsk_2") as other:
        with hub.watch("tsk_1") as second:
            hub.notify(change)
            assert (first.is_set(), second.is_set(), other.is_set()) == (True, True, False)
            first.clear()
            second.clear()
        hub.notify(change)
        assert (first.is_set(), second.is_set()) == (True, False)
    hub.notify(change)  # nobody is left to hear it


def test_the_hub_wakes_everybody_when_nobody_knows_what_has_changed() -> None:
    hub = Hub()
    with hub.watch("tsk_1") as first, hub.watch("tsk_1") as second, hub.watch("tsk_2") as other:
        hub.notify(None)
        assert (first.is_set(), second.is_set(), other.is_set()) == (True, True, True)
    hub.notify(None)


@pytest.mark.parametrize(("verb", "part"), [("claim", "worker"), ("expire", "janitor")])
async def test_a_part_that_crashes_is_logged_and_begun_anew(
    rigged: Rigged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, verb: str, part: str
) -> None:
    monkeypatch.setattr(runtime, "_RESTART_AFTER", 0.01)
    rigged.fail(verb, 1, ZeroDivisionError())
    async with Runtime(rigged, handlers(report=at_once), QUICK).running():
        await eventually(lambda: bool(_crashes(caplog)), "nobody was told")
        again = rigged.calls.count(verb)
        await eventually(lambda: rigged.calls.count(verb) > again, f"the {part} did not begin anew")
        await ended(rigged, await rigged.create(new_task()))
    assert _crashes(caplog) == [f"the {part} crashed; beginning anew in 0.01 s"]
    assert rigged.calls[-1] == "close"


async def test_a_worker_that_crashed_is_not_begun_anew_once_the_shutdown_has_come(
    rigged: Rigged, caplog: pytest.LogCaptureFixture
) -> None:
    rigged.fail("claim", 1, ZeroDivisionError())
    async with Runtime(rigged, handlers(report=at_once), QUICK).running():
        await eventually(lambda: bool(_crashes(caplog)), "nobody was told")
    assert rigged.calls.count("open_session") == 1


def _crashes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def _by_cancelling_the_task(task: asyncio.Task[None], scope: anyio.CancelScope) -> None:
    task.cancel()


def _by_cancelling_the_scope(task: asyncio.Task[None], scope: anyio.CancelScope) -> None:
    scope.cancel()


@asynccontextmanager
async def caller(store: Store, work: Endless) -> AsyncGenerator[tuple[asyncio.Task[None], anyio.CancelScope]]:
    """Somebody's task inside a runtime that runs `work`, and the scope around it; both are over when this ends."""
    scope = anyio.CancelScope()

    async def up() -> None:
        with scope:
            async with Runtime(store, handlers(report=work), QUICK).running():
                await asyncio.Event().wait()

    task = asyncio.create_task(up())
    try:
        await work.started.wait()
        yield task, scope
    finally:
        await asyncio.wait({task})


@pytest.mark.parametrize("cancel", [_by_cancelling_the_task, _by_cancelling_the_scope])
async def test_a_caller_that_is_cancelled_still_hands_its_tasks_over(
    rigged: Rigged, cancel: Callable[[asyncio.Task[None], anyio.CancelScope], None]
) -> None:
    await rigged.create(new_task())
    work = Endless()
    async with caller(rigged, work) as (task, scope):
        cancel(task, scope)
    assert (work.stops, rigged.calls[-3:]) == ([Stop.SHUTDOWN], ["release", "close_session", "close"])
    assert (await claim_as_another(rigged)).attempt == 1


async def test_a_caller_that_is_cancelled_twice_closes_the_store_all_the_same(rigged: Rigged) -> None:
    """The second one cuts the shutdown short: the task is left to the lease."""
    await rigged.create(new_task())
    work, closing = Endless(), asyncio.Event()

    async def hang() -> None:
        closing.set()
        await asyncio.Event().wait()

    rigged.before["release"].append(hang)
    async with caller(rigged, work) as (task, _):
        task.cancel()
        await closing.wait()
        task.cancel()
    assert (task.cancelled(), rigged.calls[-1]) == (True, "close")
    assert len(await rigged.sessions()) == 1


async def test_a_shutdown_that_takes_too_long_is_given_up(rigged: Rigged, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it comes about: past the grace period and the margin, the store is closed and the lease does the rest."""
    monkeypatch.setattr("perdure.engine.runtime._MARGIN", 0.1)
    task = await rigged.create(new_task())

    async def hang() -> None:
        await asyncio.Event().wait()

    rigged.before["close_session"].append(hang)
    async with Runtime(rigged, handlers(report=at_once), QUICK).running():
        await ended(rigged, task)
    assert (rigged.calls[-2:], await status(rigged, task)) == (["close_session", "close"], Status.COMPLETED)


# -- the store without the engine --------------------------------------------------------------------------------------


async def test_the_store_is_open_for_as_long_as_anybody_uses_it(rigged: Rigged) -> None:
    runtime = Runtime(rigged, {}, Options(worker=False))
    async with runtime.connected() as store:
        assert store is rigged
        async with runtime.running():
            pass
        async with runtime.connected():
            pass
        assert rigged.calls.count("close") == 0
    assert (rigged.calls.count("open"), rigged.calls.count("close")) == (1, 1)


async def test_a_store_that_can_not_be_opened_is_closed_and_may_be_tried_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none' / 'tasks.db'}"
    runtime = Runtime(SQLiteStore(url), {}, Options(worker=False))
    with pytest.raises(StoreUnusable):
        async with runtime.connected():
            raise AssertionError
    (tmp_path / "none").mkdir()
    async with runtime.connected() as store:
        assert await store.sessions() == ()


# -- those who listen, when the input ends -----------------------------------------------------------------------------


async def test_another_thread_ends_those_who_listen_and_waits_until_they_are_through(rigged: Rigged) -> None:
    task = await rigged.create(new_task())
    engine = Runtime(rigged, {}, Options(worker=False))
    async with engine.running():
        subscription = await engine.snapshots.subscribe(ADA, [task.id])

        async def read() -> None:
            await rest(subscription)
            subscription.close()

        reading = asyncio.create_task(read())
        await asyncio.to_thread(engine.end_subscriptions, PATIENCE)
        assert (reading.done(), engine.snapshots.subscribed) == (True, 0)
        with pytest.raises(StoreUnavailable):
            await engine.snapshots.subscribe(ADA, [task.id])


async def test_it_does_not_wait_for_one_who_does_not_read(rigged: Rigged) -> None:
    engine = Runtime(rigged, {}, Options(worker=False))
    async with engine.running():
        subscription = await engine.snapshots.subscribe(ADA, [(await rigged.create(new_task())).id])
        await asyncio.to_thread(engine.end_subscriptions, 0.01)
        assert engine.snapshots.subscribed == 1
        subscription.close()


async def test_there_is_nobody_to_end_before_it_runs_and_after(rigged: Rigged) -> None:
    engine = Runtime(rigged, {}, Options(worker=False))
    engine.end_subscriptions(PATIENCE)
    async with engine.running():
        pass
    engine.end_subscriptions(PATIENCE)


def test_it_may_run_on_one_event_loop_after_another() -> None:
    store, engine = MemoryStore(), Runtime(MemoryStore(), {}, QUICK)

    async def listen() -> None:
        engine.store = store
        async with engine.running():
            task = await store.create(new_task())
            subscriptions = [await engine.snapshots.subscribe(ADA, [task.id]) for _ in range(2)]
            for subscription in subscriptions:
                await seen(subscription)
            waiting = [asyncio.create_task(now(subscription.next())) for subscription in subscriptions]
            await asyncio.sleep(0.01)
            await store.request_cancel(ADA, task.id)
            assert all(await asyncio.gather(*waiting))
            for subscription in subscriptions:
                subscription.close()
            await now(engine.snapshots.given_back())

    for _ in range(2):
        asyncio.run(listen())
