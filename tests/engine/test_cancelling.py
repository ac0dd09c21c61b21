"""Being told to stop: how a cancellation and an expiry reach the work, and what becomes of what it does then."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Cancelled, Completed, Failure, JSONObject, Outcome, Status, Task
from perdure.engine.run import Run, Stop
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import Thread, ask, asking, done, ended, handlers, question, serving, status
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import PATIENCE, eventually

NAME = question("Your name?")
FAST_LEASE = 60
"""Renewed every 20 ms. It can't lapse: the store's time stands still."""


class Endless:
    """Work that waits until it is cancelled. `ending` is what it does then."""

    def __init__(self, ending: Callable[[Run], Outcome | None] = lambda run: None) -> None:
        self.started = asyncio.Event()
        self.cancellations = 0
        self.clean = False
        self.runs: list[Run] = []
        self._ending = ending

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        self.runs.append(run)
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancellations += 1
            try:
                for _ in range(20):  # cleanup that awaits, for several renewals
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                self.cancellations += 1
            self.clean = True
            if (outcome := self._ending(run)) is not None:
                return outcome
            raise
        raise AssertionError


async def test_cancelled_work_hears_it_once_and_its_cleanup_runs_to_the_end(store: Store) -> None:
    work = Endless()
    task = await store.create(new_task())
    async with serving(store, handlers(report=work), lease_ms=FAST_LEASE):
        await work.started.wait()
        for _ in range(3):
            await store.request_cancel(ADA, task.id)
        over = await ended(store, task)
    assert (over.status, over.result, over.error) == (Status.CANCELLED, None, None)
    assert (work.cancellations, work.clean, work.runs[0].cancelled) == (1, True, True)


async def test_work_that_returns_a_result_when_it_is_cancelled_is_completed(store: Store) -> None:
    work = Endless(lambda run: done("half of it"))
    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await work.started.wait()
        await store.request_cancel(ADA, task.id)
        over = await ended(store, task)
    assert (over.status, over.result) == (Status.COMPLETED, done("half of it").result)


async def test_cleanup_that_raises_fails_the_task(store: Store) -> None:
    def fall_over(run: Run) -> Outcome:
        raise ValueError("no such file")

    work = Endless(fall_over)
    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await work.started.wait()
        await store.request_cancel(ADA, task.id)
        assert (await ended(store, task)).error == Failure(INTERNAL_ERROR, "Internal error")


async def _cancel_a_thread(store: Store, ending: Callable[[Run], Outcome]) -> Task:
    started, may_end = threading.Event(), threading.Event()
    seen: list[bool] = []

    def work(run: Run) -> Outcome:
        started.set()
        may_end.wait(PATIENCE)
        seen.append(run.cancelled)
        return ending(run)

    task = await store.create(new_task())
    async with serving(store, handlers(report=Thread(work))):
        await eventually(started.is_set, "the thread did not start")
        await store.request_cancel(ADA, task.id)
        assert await status(store, task) is Status.WORKING
        may_end.set()
        over = await ended(store, task)
    assert seen == [True]
    return over


async def test_a_thread_is_not_interrupted_and_sees_the_flag(store: Store) -> None:
    over = await _cancel_a_thread(store, lambda run: done("anyway"))
    assert (over.status, over.result) == (Status.COMPLETED, done("anyway").result)


async def test_a_thread_ends_its_task_as_cancelled_by_raising_cancelled_error(store: Store) -> None:
    def give_up(run: Run) -> Outcome:
        raise asyncio.CancelledError

    assert (await _cancel_a_thread(store, give_up)).status is Status.CANCELLED


async def test_a_parked_task_is_cancelled_at_once_and_never_runs_again(store: Store) -> None:
    runs: list[Run] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        runs.append(run)
        return Completed(await ask(run, name=NAME))

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await asking(store, task, "name")
        assert (await store.request_cancel(ADA, task.id)).status is Status.CANCELLED
        await store.answer(ADA, task.id, {"name": "Ada"})
    assert (len(runs), await status(store, task)) == (1, Status.CANCELLED)


async def test_a_cancellation_by_another_process_is_heard_at_the_next_renewal(
    two_processes: tuple[Store, Store],
) -> None:
    ours, theirs = two_processes
    work = Endless()
    task = await ours.create(new_task())
    async with serving(ours, handlers(report=work), lease_ms=FAST_LEASE):
        await work.started.wait()
        await theirs.request_cancel(ADA, task.id)
        assert (await ended(theirs, task)).status is Status.CANCELLED
    assert (work.cancellations, work.clean) == (1, True)


async def test_a_cancellation_that_comes_before_the_claim_has_returned_is_not_lost(rigged: Rigged) -> None:
    """The claim is committed, its caller not yet resumed: nobody knows the run, and the next renewal is far away."""
    task = await rigged.create(new_task())
    cancelled_early: list[Status] = []

    async def cancel() -> None:
        cancelled_early.append((await rigged.request_cancel(ADA, task.id)).status)

    rigged.after["claim"].append(cancel)
    work = Endless()
    async with serving(rigged, handlers(report=work)):
        assert (await ended(rigged, task)).status is Status.CANCELLED
    assert (cancelled_early, work.runs) == ([Status.WORKING], [])


async def test_an_expiry_that_comes_before_the_claim_has_returned_is_not_lost(
    rigged: Rigged, clock: VirtualClock
) -> None:
    task = await rigged.create(new_task(ttl_ms=1000))

    async def expire() -> None:
        clock.advance(2000)
        await rigged.expire(10)

    rigged.after["claim"].append(expire)
    work = Endless()
    async with serving(rigged, handlers(report=work), grace_ms=3_600_000):
        await eventually(lambda: "claim" in rigged.calls, "nothing was claimed")
    assert (work.runs, await status(rigged, task)) == ([], Status.FAILED)


async def test_what_is_said_of_other_tasks_during_a_claim_concerns_nobody(rigged: Rigged) -> None:
    other, task = await rigged.create(new_task("other")), await rigged.create(new_task())

    async def cancel() -> None:
        await rigged.request_cancel(ADA, other.id)

    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    rigged.after["claim"].append(cancel)
    async with serving(rigged, handlers(report=work)):
        assert (await ended(rigged, task)).status is Status.COMPLETED
    assert await status(rigged, other) is Status.CANCELLED


async def test_work_that_had_ended_before_the_cancellation_came_keeps_its_result(rigged: Rigged) -> None:
    task = await rigged.create(new_task())

    async def cancel() -> None:
        assert (await rigged.request_cancel(ADA, task.id)).cancel_requested

    async def work(run: Run, params: JSONObject) -> Outcome:
        return done()

    rigged.before["finish"].append(cancel)
    async with serving(rigged, handlers(report=work), lease_ms=FAST_LEASE):
        over = await ended(rigged, task)
    assert (over.status, over.result) == (Status.COMPLETED, done().result)


async def test_a_task_that_is_cancelled_while_it_is_being_parked_is_cancelled(rigged: Rigged) -> None:
    task = await rigged.create(new_task())

    async def cancel() -> None:
        await rigged.request_cancel(ADA, task.id)

    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed(await ask(run, name=NAME))

    rigged.before["park"].append(cancel)
    async with serving(rigged, handlers(report=work)):
        over = await ended(rigged, task)
    assert (over.status, over.inputs) == (Status.CANCELLED, ())


async def test_a_task_that_asks_when_it_is_cancelled_asks_nobody(store: Store) -> None:
    started = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ask(run, name=NAME)
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await started.wait()
        await store.request_cancel(ADA, task.id)
        over = await ended(store, task)
    assert (over.status, over.inputs) == (Status.CANCELLED, ())


async def test_a_handler_may_say_that_it_was_cancelled_without_an_exception(store: Store) -> None:
    work = Endless(lambda run: Cancelled())
    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await work.started.wait()
        await store.request_cancel(ADA, task.id)
        assert (await ended(store, task)).status is Status.CANCELLED


async def test_an_expired_task_is_stopped_and_what_it_still_returns_is_dropped(
    store: Store, clock: VirtualClock
) -> None:
    work = Endless(lambda run: done("too late"))
    task = await store.create(new_task(ttl_ms=1000))
    async with serving(store, handlers(report=work)):
        await work.started.wait()
        clock.advance(1000)
        assert await store.expire(10) == 1
        await eventually(lambda: work.clean, "the work went on")
    over = await store.get(ADA, task.id)
    assert (over.status, over.result, work.cancellations) == (Status.FAILED, None, 1)
    assert work.runs[0].stop is Stop.LOST


async def test_a_task_that_expires_while_it_cleans_up_after_a_cancellation_is_not_interrupted_again(
    store: Store, clock: VirtualClock
) -> None:
    work = Endless()
    task = await store.create(new_task(ttl_ms=1000))
    async with serving(store, handlers(report=work)):
        await work.started.wait()
        await store.request_cancel(ADA, task.id)
        await eventually(lambda: work.cancellations == 1, "the cancellation did not arrive")
        clock.advance(1000)
        assert await store.expire(10) == 1
        await eventually(lambda: work.clean, "the cleanup did not end")
    assert (work.cancellations, await status(store, task)) == (1, Status.FAILED)


@pytest.mark.parametrize("purged", [False, True], ids=["expired", "purged"])
async def test_a_task_that_another_process_found_expired_is_stopped_at_the_next_renewal(
    two_processes: tuple[Store, Store], clock: VirtualClock, purged: bool
) -> None:
    ours, theirs = two_processes
    forever, unaffected = Endless(), Endless(lambda run: done())
    await ours.create(new_task(ttl_ms=1000))
    longer = await ours.create(new_task("longer", ttl_ms=1_000_000))
    async with serving(ours, handlers(report=forever, longer=unaffected), lease_ms=FAST_LEASE):
        await forever.started.wait()
        await unaffected.started.wait()
        clock.advance(1000)
        # The clock moved past the lease as well. The worker renews it before anything else happens to it.
        assert await theirs.expire(10) == 1
        if purged:
            assert await theirs.purge(10, linger_ms=0, tombstone_ms=1000) == 1
        await eventually(lambda: forever.clean, "the work went on")
        assert unaffected.cancellations == 0
        await ours.request_cancel(ADA, longer.id)
        assert (await ended(ours, longer)).status is Status.COMPLETED
    assert forever.runs[0].stop is Stop.LOST
