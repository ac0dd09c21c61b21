"""A store that is unavailable for a while: everything waits for it, and nothing is lost."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from perdure.domain.model import Completed, JSONObject, Outcome, Status, Task
from perdure.engine.run import Run
from tests.engine.rigged import Rigged
from tests.engine.support import (
    Thread,
    answer,
    ask,
    asking,
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
FAST_LEASE = 60
FOREVER = 1_000_000

pytestmark = pytest.mark.usefixtures("impatient")


async def ask_name(run: Run, params: JSONObject) -> Outcome:
    await run.report("about to ask")
    return Completed(await ask(run, name=question("Your name?")))


@pytest.mark.parametrize("verb", ["open_session", "sessions", "renew", "claim", "journal", "report", "park", "finish"])
async def test_a_task_comes_through_whichever_verb_is_unavailable_for_a_while(rigged: Rigged, verb: str) -> None:
    rigged.fail(verb, 3)
    task = await rigged.create(new_task())
    async with serving(rigged, handlers(report=ask_name), lease_ms=FAST_LEASE):
        await asking(rigged, task, "name")
        await answer(rigged, task, name="Ada")
        over = await ended(rigged, task)
        await eventually(lambda: rigged.calls.count(verb) >= 4, f"{verb} was not tried again")
    assert (over.status, over.result) == (Status.COMPLETED, {"name": "Ada"})
    assert rigged.calls[-1] == "close_session"


@pytest.mark.parametrize("verb", ["park", "finish"])
async def test_a_write_whose_outcome_is_unknown_happens_once(rigged: Rigged, verb: str) -> None:
    rigged.forget(verb)
    task = await rigged.create(new_task())
    async with serving(rigged, handlers(report=ask_name)):
        await asking(rigged, task, "name")
        await answer(rigged, task, name="Ada")
        over = await ended(rigged, task)
        await eventually(lambda: rigged.calls.count(verb) == 2, f"{verb} was not tried again")
        await ended(rigged, await _another(rigged))
    assert (await rigged.get(ADA, task.id)).version == over.version


async def _another(store: Rigged) -> Task:
    task = await store.create(new_task())
    await asking(store, task, "name")
    return await answer(store, task, name="Bob")


async def test_a_cancellation_is_heard_once_the_lease_can_be_renewed_again(rigged: Rigged) -> None:
    """Another process asked for it, and the renewals fail for a while."""
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = await rigged.create(new_task())
    async with serving(rigged, handlers(report=work), lease_ms=FAST_LEASE):
        await started.wait()
        rigged.fail("renew", 3)
        rigged.silent = True
        await rigged.request_cancel(ADA, task.id)
        assert (await ended(rigged, task)).status is Status.CANCELLED


async def test_work_and_cancellations_that_nobody_was_told_of_are_looked_for_at_once_when_hints_were_missed(
    rigged: Rigged,
) -> None:
    """With a lease and an interval between looks that would take hours."""
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(rigged, handlers(report=work), lease_ms=FOREVER * 100, poll_ms=FOREVER * 100):
        await eventually(lambda: "claim" in rigged.calls, "it does not begin")
        rigged.silent = True
        task = await rigged.create(new_task())
        rigged.miss()
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        await rigged.request_cancel(ADA, task.id)
        rigged.miss()
        assert (await ended(rigged, task)).status is Status.CANCELLED


async def test_dead_neighbours_are_taken_over_once_the_store_can_be_asked(rigged: Rigged, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    task = await rigged.create(new_task())
    await claim_as_another(rigged)
    clock.advance(3_600_000)
    rigged.fail("take_over", 1)
    async with serving(rigged, handlers(report=work)):
        await ended(rigged, task)
    assert rigged.calls.count("take_over") >= 2


async def test_a_lost_lease_is_replaced_once_the_store_takes_a_new_session(rigged: Rigged) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    async with serving(rigged, handlers(report=work), lease_ms=FAST_LEASE):
        session = await worker_session(rigged)
        rigged.fail("open_session", 3)
        await rigged.take_over([session])
        await ended(rigged, await rigged.create(new_task()))
        assert await worker_session(rigged) != session
    # One session for each start, however many loops found the old one lost.
    assert rigged.calls.count("open_session") == 1 + 3 + 1


async def test_a_worker_can_be_stopped_while_it_waits_for_the_store_to_begin(rigged: Rigged) -> None:
    rigged.fail("open_session", FOREVER)
    async with serving(rigged, handlers(report=ask_name), grace_ms=3_600_000):
        await eventually(lambda: rigged.calls.count("open_session") >= 2, "it did not try again")
    assert await rigged.sessions() == ()


@pytest.mark.parametrize("verb", ["release", "close_session"])
async def test_a_shutdown_tries_again_to_hand_over(rigged: Rigged, verb: str) -> None:
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    await rigged.create(new_task())
    rigged.fail(verb, 3)
    async with serving(rigged, handlers(report=work), grace_ms=1):
        await started.wait()
    assert (rigged.calls.count(verb), await rigged.sessions()) == (4, ())
    assert (await claim_as_another(rigged)).attempt == 1


async def test_a_shutdown_gives_up_on_a_store_that_stays_away_and_leaves_it_to_the_lease(
    rigged: Rigged, impatient: Unwind, clock: VirtualClock
) -> None:
    impatient(0.05)

    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    task = await rigged.create(new_task())
    rigged.fail("finish", FOREVER)
    rigged.fail("close_session", FOREVER)
    async with serving(rigged, handlers(report=work), grace_ms=1):
        await eventually(lambda: rigged.calls.count("finish") >= 2, "it did not try again")
    assert len(await rigged.sessions()) == 1

    for verb in ("finish", "close_session"):
        rigged.before[verb].clear()
    clock.advance(3_600_000)
    async with serving(rigged, handlers(report=work)):
        await ended(rigged, task)
    assert await status(rigged, task) is Status.COMPLETED


async def test_a_thread_waits_for_the_store_like_a_coroutine(rigged: Rigged) -> None:
    loop, reported = asyncio.get_running_loop(), threading.Event()

    def work(run: Run) -> Outcome:
        asyncio.run_coroutine_threadsafe(run.report("hello"), loop).result(PATIENCE)
        reported.set()
        return done()

    rigged.fail("report", 3)
    task = await rigged.create(new_task())
    async with serving(rigged, handlers(report=Thread(work))):
        await ended(rigged, task)
    assert (reported.is_set(), rigged.calls.count("report")) == (True, 4)
