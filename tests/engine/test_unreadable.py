"""What a task has on record can't be opened here: it is put off, and nothing else is, whatever its code makes of it."""

import asyncio
import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.domain.errors import NotStorable, PerdureError, Unreadable
from perdure.domain.model import JSON, JSONObject, Outcome, Status
from perdure.domain.timeline import EventKind
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.base import PUT_OFF
from perdure.store.sqlite import SQLiteStore
from tests.engine.rigged import Gate, Rigged
from tests.engine.subscribing import Hands, listening, seen
from tests.engine.support import Stage, Work, ask, done, ended, handlers, question, serving
from tests.store.sealed import Place
from tests.store.support import ADA, DONE, NAME, VirtualClock, asks, new_task, running
from tests.support import PATIENCE, eventually

LACKING = Unreadable("k2", "can't be opened")


async def does(run: Run) -> JSON:
    async def call() -> int:
        return 7

    return await step(run, Step("does", call))


async def once(run: Run, params: JSONObject) -> Outcome:
    return done(str(await does(run)))


async def swallows(run: Run, params: JSONObject) -> Outcome:
    with contextlib.suppress(PerdureError):
        await does(run)
    return done("without it")


@pytest.mark.parametrize("work", [once, swallows])
async def test_a_run_whose_journal_can_not_be_opened_is_put_off(
    rigged: Rigged, clock: VirtualClock, work: Work
) -> None:
    stage = Stage(rigged, work)
    rigged.fail("journal", 1, LACKING)
    assert (await stage.run()).status is Status.WORKING
    clock.advance(PUT_OFF - 1)
    assert not await stage.is_due()
    clock.advance(1)
    assert (await stage.run()).status is Status.COMPLETED
    assert stage.claim.attempt == 1, "it is no failure of the tool's, of which it may have only so many"
    assert await stage.events() == [(EventKind.RETRY, str(LACKING))]


@pytest.mark.parametrize("verb", ["park", "finish"])
async def test_so_is_one_whose_end_can_not_be_written_for_it(rigged: Rigged, clock: VirtualClock, verb: str) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        if verb == "park":
            await ask(run, name=question("Your name?"))
        return done()

    stage = Stage(rigged, work)
    rigged.fail(verb, 1, LACKING)
    assert (await stage.run()).status is Status.WORKING
    clock.advance(PUT_OFF)
    assert (await stage.run()).status is (Status.INPUT_REQUIRED if verb == "park" else Status.COMPLETED)


async def test_a_worker_runs_the_others_meanwhile(rigged: Rigged, clock: VirtualClock) -> None:
    bad = await rigged.create(new_task())
    rigged.fail("journal", 1, LACKING)
    async with serving(rigged, handlers(report=once), concurrency=1):

        async def put_off() -> bool:
            return bool((await rigged.inspect(bad.id)).events)

        await eventually(put_off, "it was not put off")
        for _ in range(3):
            assert (await ended(rigged, await rigged.create(new_task()))).status is Status.COMPLETED
        assert (await rigged.get(ADA, bad.id)).status is Status.WORKING
        clock.advance(PUT_OFF)
        assert (await ended(rigged, bad)).status is Status.COMPLETED


async def test_one_of_which_nothing_at_all_can_be_read_is_left_to_the_store_which_puts_it_off(rigged: Rigged) -> None:
    """Its row was damaged while it ran: its end can't be written, nor can it be put off under its claim."""
    bad = await rigged.create(new_task())
    rigged.fail("finish", 1, LACKING)
    rigged.fail("retry", 1, LACKING)
    async with serving(rigged, handlers(report=once), concurrency=1):
        await eventually(lambda: "give_back" in rigged.calls, "its run was not given back")
        assert (await ended(rigged, await rigged.create(new_task()))).status is Status.COMPLETED
        assert (await ended(rigged, bad)).status is Status.COMPLETED
    assert rigged.calls.count("open_session") == 1


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path / 'tasks.db'}")
    return Place(request.getfixturevalue("emptied_database"))


async def test_of_the_tasks_of_a_worker_one_whose_row_is_damaged_while_it_runs_is_put_off_alone(
    place: Place, clock: VirtualClock
) -> None:
    running, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        running.release()
        await go_on.wait()
        return done()

    store = place.store(clock)
    await store.open()
    bad, sound = [await store.create(new_task()) for _ in range(2)]
    async with asyncio.timeout(PATIENCE), serving(store, handlers(report=work)):
        for _ in range(2):
            await running.acquire()
        await place.rows(f"UPDATE perdure.task SET ttl_ms = -1, version = version + 1 WHERE seq = {bad.seq}")
        go_on.set()
        assert (await ended(store, sound)).status is Status.COMPLETED

        async def put_off() -> bool:
            return (None, clock.now + PUT_OFF, 0, 0) in await place.rows(
                f"SELECT session, due_at, failures, deaths FROM perdure.run WHERE task_seq = {bad.seq}"
            )

        await eventually(put_off, "its worker has it still")
        assert (await ended(store, await store.create(new_task()))).status is Status.COMPLETED
    await store.close()


@pytest.mark.parametrize("refusal", [NotStorable("too large"), ValueError("a bug")])
async def test_nor_is_a_worker_ended_by_one_of_which_not_even_that_can_be_written(
    rigged: Rigged, refusal: Exception
) -> None:
    bad = await rigged.create(new_task())
    rigged.fail("finish", 1, refusal)
    rigged.fail("finish", 1, LACKING)
    async with serving(rigged, handlers(report=once), concurrency=1):
        await eventually(lambda: "retry" in rigged.calls, "it was not put off")
        assert (await ended(rigged, await rigged.create(new_task()))).status is Status.COMPLETED
        assert (await rigged.get(ADA, bad.id)).status is Status.WORKING
    assert rigged.calls.count("open_session") == 1


async def test_a_run_whose_task_has_ended_is_stopped_though_nobody_here_can_read_how(
    rigged: Rigged, clock: VirtualClock
) -> None:
    """Another process has found that its ttl ran out, and sealed the error under a key that this one lacks."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        if run.claim.task.ttl_ms is not None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return done()

    await rigged.create(new_task(ttl_ms=1_000))
    async with serving(rigged, handlers(report=work), lease_ms=60):
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            rigged.silent = True
            clock.advance(1_000)
            assert await rigged.expire(10) == 1
            rigged.fail("get", 1, LACKING)
            await stopped.wait()
        rigged.before["get"].clear()
        rigged.silent = False
        assert (await ended(rigged, await rigged.create(new_task()))).status is Status.COMPLETED


async def test_whoever_listens_to_it_hears_that_it_is_over_and_goes_on_with_the_others(rigged: Rigged) -> None:
    bad, good = await running(rigged), await running(rigged)
    async with listening(rigged, clock=Hands()) as snapshots:
        subscription = await snapshots.subscribe(ADA, [bad.task.id, good.task.id])
        for _ in range(2):
            await seen(subscription)
        rigged.fail("get", 1, LACKING)
        await rigged.finish(bad, DONE)
        await eventually(lambda: bad.task.id not in subscription.open, "nobody noticed")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(seen(subscription))
            await rigged.finish(good, DONE)
        assert reading.result().id == good.task.id


@pytest.mark.parametrize("stays", [False, True])
async def test_who_listens_to_a_finished_task_that_can_not_be_read_is_told_of_the_others_and_then_that_it_is_not_all(
    gated: Rigged, *, stays: bool
) -> None:
    async with listening(gated, clock=Hands()) as snapshots:
        other = await running(gated)
        over = await running(gated)
        await gated.finish(over, DONE)
        gated.fail("get", 1, LACKING)
        subscription = await snapshots.subscribe(ADA, [over.task.id, other.task.id], stays=stays)
        assert (await seen(subscription)).id == other.task.id
        assert subscription.unreadable
        await gated.finish(other, DONE)
        assert (await seen(subscription)).status is Status.COMPLETED
        async with asyncio.timeout(PATIENCE):
            assert await subscription.next() is None
        subscription.close()
        assert not snapshots.watched


async def test_who_listens_to_one_whose_row_is_damaged_is_told_of_the_others_and_then_the_same(tmp_path: Path) -> None:
    """The store leaves it out where it tells of many, and says nothing of it."""
    store = SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")
    await store.open()
    other, damaged = await running(store), await running(store)
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as outside:
        outside.execute("PRAGMA ignore_check_constraints = ON")
        outside.execute("UPDATE task SET ttl_ms = -1 WHERE seq = ?", (damaged.seq,))
    async with listening(store, clock=Hands()) as snapshots:
        subscription = await snapshots.subscribe(ADA, [damaged.task.id, other.task.id])
        assert subscription.accepted == (other.task.id,)
        await seen(subscription)
        await store.finish(other, DONE)
        assert (await seen(subscription)).status is Status.COMPLETED
        async with asyncio.timeout(PATIENCE):
            assert await subscription.next() is None
        assert subscription.unreadable
        subscription.close()
        assert not snapshots.watched
    await store.close()


async def test_a_task_whose_question_can_not_be_read_is_left(gated: Rigged) -> None:
    async with listening(gated, clock=Hands()) as snapshots:
        claim = await running(gated)
        await gated.park(claim, asks(name=NAME))
        gated.fail("get", 1, LACKING)
        subscription, another = [await snapshots.subscribe(ADA, [claim.task.id]) for _ in range(2)]
        async with asyncio.timeout(PATIENCE):
            assert await subscription.next() is None
        assert subscription.unreadable
        assert (await seen(another)).inputs, "who asks later may be luckier"
        assert not another.unreadable
        subscription.close()
        another.close()
        assert not snapshots.watched


async def test_who_hangs_up_while_it_turns_out_that_a_task_can_not_be_read_leaves_nothing(gated: Rigged) -> None:
    async with listening(gated, clock=Hands()) as snapshots:
        claim = await running(gated)
        await gated.park(claim, asks(name=NAME))
        subscription = await snapshots.subscribe(ADA, [claim.task.id])
        gate = Gate()

        async def fails() -> None:
            await gate()
            raise LACKING

        gated.before["get"].append(fails)
        reading = asyncio.create_task(subscription.next())
        await gate.reached()
        subscription.close()
        gate.open()
        async with asyncio.timeout(PATIENCE):
            assert await reading is None
        assert (snapshots.subscribed, len(snapshots.watched)) == (0, 0)
