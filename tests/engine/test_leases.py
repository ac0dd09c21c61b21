"""The lease: losing one's own, and taking over what the dead held."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.domain.model import Claim, Demand, JSONObject, Outcome, Status, Task
from perdure.engine.lease import Neighbours, alive, identity
from perdure.engine.run import Run
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore
from tests.engine.rigged import Rigged
from tests.engine.support import (
    HOUR,
    LEASE,
    Thread,
    claim_as_another,
    done,
    ended,
    handlers,
    serving,
    status,
    worker_session,
)
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import eventually

FAST_LEASE = 60
"""Renewed every 20 ms. It lapses only when the test moves the store's time."""


class Tool:
    """Work whose first attempt waits to be let go, through a cancellation if there is one; later ones end at once."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.told: list[bool] = []
        self.let_go = asyncio.Event()

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        self.attempts.append(run.claim.attempt)
        if run.claim.attempt == 1:
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.told.append(run.stopping)
                await self.let_go.wait()
        return done(f"attempt {run.claim.attempt}")

    async def started(self) -> None:
        await eventually(lambda: self.attempts == [1], "the task did not start")


@pytest.mark.parametrize("lease_ms", [FAST_LEASE, HOUR], ids=["heard at the renewal", "heard at the next claim"])
async def test_a_worker_that_was_taken_over_drops_what_it_ran_and_starts_over(store: Store, lease_ms: int) -> None:
    """Also while the lost run of a task is still cleaning up and the same task runs here again."""
    work = Tool()
    task = await store.create(new_task())
    async with serving(store, handlers(report=work), lease_ms=lease_ms):
        first = await worker_session(store)
        await work.started()
        assert await store.take_over([first]) == 1
        over = await ended(store, task)
        assert (over.result, work.attempts, work.told) == (done("attempt 2").result, [1, 2], [True])
        second = await worker_session(store)
        assert second != first
        # The lost run ends after its successor. Its result is dropped, and the worker goes on.
        work.let_go.set()
        assert (await ended(store, await store.create(new_task()))).status is Status.COMPLETED
        assert await worker_session(store) == second
    assert (await store.get(ADA, task.id)).version == over.version
    assert await store.sessions() == ()


async def test_what_runs_is_counted_when_the_lease_is_lost_though_it_was_heard_to_be_over_before(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    work = Tool()
    await store.create(new_task(ttl_ms=1_000))
    async with serving(store, handlers(report=work), lease_ms=HOUR):
        await work.started()
        clock.advance(1_000)
        assert await store.expire(10) == 1
        await eventually(lambda: work.told == [True], "the work was not told")
        await store.take_over([await worker_session(store)])
        await eventually(lambda: "the lease lapsed" in caplog.text, "the worker did not hear of it")
        work.let_go.set()
    assert "the lease lapsed; what runs here is left to other workers (tasks: 1)" in caplog.text


async def test_a_lease_that_is_lost_while_nothing_runs_is_worth_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(store, handlers(report=Tool()), lease_ms=HOUR):
        await store.take_over([await worker_session(store)])
        await eventually(lambda: "the lease lapsed" in caplog.text, "the worker did not hear of it")
    assert [record.levelname for record in caplog.records if "lapsed" in record.getMessage()] == ["WARNING"]


async def test_a_lost_run_keeps_its_slot_until_its_work_has_ended(store: Store) -> None:
    work = Tool()
    task = await store.create(new_task())
    async with serving(store, handlers(report=work), concurrency=1, lease_ms=FAST_LEASE):
        await work.started()
        assert await store.take_over([await worker_session(store)]) == 1
        other = await store.create(new_task())
        await eventually(lambda: work.told == [True], "the work was not told")
        assert (work.attempts, await status(store, task), await status(store, other)) == (
            [1],
            Status.WORKING,
            Status.WORKING,
        )
        work.let_go.set()
        await ended(store, task)
        await ended(store, other)


async def test_a_cancellation_reaches_the_run_that_counts_and_not_the_lost_one(store: Store) -> None:
    started, cancelled = list[int](), list[int]()
    let_go = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.append(run.claim.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(run.claim.attempt)
            if run.claim.attempt == 1:
                await let_go.wait()
            raise
        raise AssertionError

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await eventually(lambda: started == [1], "the task did not start")
        assert await store.take_over([await worker_session(store)]) == 1
        await eventually(lambda: started == [1, 2], "the task did not start again")
        await store.request_cancel(ADA, task.id)
        assert (await ended(store, task)).status is Status.CANCELLED
        let_go.set()
    assert cancelled == [1, 2]


async def test_a_lease_that_lapsed_and_that_nobody_took_over_is_renewed_and_nothing_is_lost(
    store: Store, clock: VirtualClock
) -> None:
    """The event loop stood still for longer than the lease: the worker's own look-out must not rob the worker."""
    work = Tool()
    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        session = await worker_session(store)
        await work.started()
        clock.advance(LEASE + 1)

        async def renewed() -> bool:
            return [(known.id, lapsed) for known, lapsed in await store.sessions()] == [(session, False)]

        await eventually(renewed, "the lease was not renewed")
        clock.advance(LEASE + 1)
        other = await store.create(new_task())  # which is claimed under a lapsed lease
        work.let_go.set()
        await ended(store, other)
        assert (await ended(store, task)).result == done("attempt 1").result
    assert (work.attempts, work.told) == ([1, 1], [])


async def test_the_own_lease_is_renewed_before_anything_is_taken_over(rigged: Rigged, clock: VirtualClock) -> None:
    own = await rigged.open_session(LEASE, {})
    await rigged.open_session(LEASE, {})
    clock.advance(LEASE)

    async def renew() -> str:
        await rigged.renew(own.id, LEASE)
        return own.id

    assert await Neighbours(rigged, renew, LEASE).take_over() == 0
    assert [session.id for session, _ in await rigged.sessions()] == [own.id]


async def test_the_own_session_is_left_alone_though_its_renewal_took_longer_than_the_lease(
    rigged: Rigged, clock: VirtualClock
) -> None:
    """A disk that takes longer for a commit than the lease lasts."""
    own = await rigged.open_session(LEASE, {})

    async def renew() -> str:
        clock.advance(LEASE)
        return own.id

    clock.advance(LEASE)
    assert await Neighbours(rigged, renew, LEASE).take_over() == 0
    assert [session.id for session, _ in await rigged.sessions()] == [own.id]


async def test_a_look_at_neighbours_that_are_all_well_changes_nothing(rigged: Rigged) -> None:
    session = await rigged.open_session(LEASE, identity())
    await rigged.open_session(LEASE, {})

    async def renew() -> str:
        raise AssertionError

    assert await Neighbours(rigged, renew, LEASE).take_over() == 0
    assert "take_over" not in rigged.calls
    assert session.info == identity()


class Ticks:
    """A monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def watching(store: Store, ticks: Ticks) -> tuple[Neighbours, str]:
    """A watcher, and its own session. Its looks are the test's."""
    own = await store.open_session(HOUR, {})

    async def renew() -> str:
        await store.renew(own.id, HOUR)
        return own.id

    return Neighbours(store, renew, LEASE, ticks), own.id


async def ids(store: Store) -> set[str]:
    return {session.id for session, _ in await store.sessions()}


@pytest.mark.parametrize("renews", [True, False])
async def test_a_clock_that_is_set_forward_costs_nobody_a_lease_who_goes_on_renewing_it(
    rigged: Rigged, clock: VirtualClock, renews: bool
) -> None:
    ticks = Ticks()
    neighbours, own = await watching(rigged, ticks)
    live = await rigged.open_session(LEASE, identity())
    await neighbours.take_over()
    clock.advance(10 * LEASE)
    for _ in range(4):  # looks of which each comes a lease's quarter after the other
        assert live.id in await ids(rigged)
        await neighbours.take_over()
        ticks.now += LEASE / 4000
        if renews:
            await rigged.renew(live.id, LEASE)
    await neighbours.take_over()
    assert await ids(rigged) == ({own, live.id} if renews else {own})


async def test_others_are_taken_over_while_one_is_left_alone(rigged: Rigged, clock: VirtualClock) -> None:
    ticks = Ticks()
    neighbours, own = await watching(rigged, ticks)
    live = await rigged.open_session(LEASE, identity())
    await rigged.open_session(LEASE, {"host": "elsewhere"})
    await neighbours.take_over()
    clock.advance(10 * LEASE)
    await neighbours.take_over()
    assert await ids(rigged) == {own, live.id}


async def test_a_lease_whose_renewal_nobody_saw_is_judged_by_the_clock_alone(
    rigged: Rigged, clock: VirtualClock
) -> None:
    neighbours, own = await watching(rigged, Ticks())
    await rigged.open_session(LEASE, identity())
    clock.advance(LEASE)
    await neighbours.take_over()
    assert await ids(rigged) == {own}


def test_a_process_is_known_to_live_only_where_nothing_about_it_differs() -> None:
    assert alive(identity())
    others: list[JSONObject] = [
        {"host": "elsewhere"},
        {"boot": "another"},
        {"pids": "another"},
        {"pid": None},
        {"pid": 2**22 + 1},
        {"started": -1},
    ]
    assert not any(alive({**identity(), **other}) for other in others)
    assert not alive({})


async def test_what_a_lapsed_neighbour_held_is_taken_over_and_counts_as_an_attempt(
    store: Store, clock: VirtualClock
) -> None:
    work = Tool()
    task = await store.create(new_task())
    dead = await store.open_session(1000, {"host": "elsewhere"})
    (claim,) = await store.claim(dead.id, [Demand("tools/call:report", 1)], 1)
    async with serving(store, handlers(report=work)):
        await eventually(lambda: work.attempts == [], "it runs under a lease that holds")
        clock.advance(1000)
        over = await ended(store, task)
    assert (claim.attempt, work.attempts, over.result) == (1, [2], done("attempt 2").result)


async def test_a_task_that_kills_its_workers_fails_when_its_attempts_are_used_up(
    store: Store, clock: VirtualClock
) -> None:
    work = Tool()
    task = await store.create(new_task(max_attempts=2))
    dead = await store.open_session(1000, {"host": "elsewhere"})
    await store.claim(dead.id, [Demand("tools/call:report", 1)], 1)
    await store.take_over([dead.id])
    dead = await store.open_session(1000, {"host": "elsewhere"})
    (claim,) = await store.claim(dead.id, [Demand("tools/call:report", 1)], 1)
    assert claim.attempt == 2
    async with serving(store, handlers(report=work)):
        clock.advance(1000)
        over = await ended(store, task)
    assert (over.status, work.attempts) == (Status.FAILED, [])
    assert over.error is not None
    assert "died or went silent 2 times" in over.error.message


async def test_a_thread_whose_run_is_lost_is_told_and_its_result_dropped(store: Store) -> None:
    seen: list[bool] = []
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    let_go = asyncio.Event()

    def work(run: Run) -> Outcome:
        if run.claim.attempt == 1:
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result()
            seen.append(run.stopping)
        return done(f"attempt {run.claim.attempt}")

    task = await store.create(new_task())
    async with serving(store, handlers(report=Thread(work))):
        await started.wait()
        assert await store.take_over([await worker_session(store)]) == 1
        over = await ended(store, task)
        let_go.set()
    assert (over.result, seen) == (done("attempt 2").result, [True])


@contextlib.asynccontextmanager
async def neighbour(url: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Another process that holds the only task of the store."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.engine.neighbour", url, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"1\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_what_a_killed_process_held_is_taken_over_at_once_though_its_lease_is_an_hour(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = SQLiteStore(url)
    await store.open()
    work = Tool()
    task = await store.create(new_task())
    async with neighbour(url) as process:
        async with serving(store, handlers(report=work)):
            assert await store.take_over() == 0
            assert await status(store, task) is Status.WORKING
            process.kill()
            # It takes about half a second; the bound is for machines that are busy.
            over = await ended(store, task, within=10)
        assert (over.result, work.attempts) == (done("attempt 2").result, [2])
    await store.close()


async def test_work_whose_run_was_freed_behind_its_back_is_told_when_the_same_task_begins_here_again(
    store: Store, clock: VirtualClock
) -> None:
    work = Tool()
    task = await store.create(new_task(timeout_ms=1000 * LEASE))
    async with serving(store, handlers(report=work), lease_ms=HOUR * 1000):
        await work.started()
        clock.advance(1001 * LEASE)
        assert await store.free_overdue(10, late_ms=0) == 1
        await eventually(lambda: work.told == [True], "it was not told")
        assert (await ended(store, task)).result == done("attempt 2").result
        work.let_go.set()
    assert work.attempts == [1, 2]


# -- what a renewal tells ----------------------------------------------------------------------------------------------


async def renewed(rigged: Rigged) -> None:
    """Once the worker has renewed its lease again, from beginning to end."""
    for _ in range(2):  # when the second has begun, the first is through
        count = rigged.calls.count("renew")
        rigged.miss()
        await eventually(lambda count=count: rigged.calls.count("renew") > count, "the worker did not renew")


async def test_a_renewal_asks_the_store_for_nothing_else_however_many_tasks_run(store: Store) -> None:
    """Else the next is late by as many answers of a slow database, and the lease lapses under a worker that lives."""
    started, let_go = list[int](), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        started.append(run.claim.seq)
        await let_go.wait()
        return done()

    rigged = Rigged(store)
    for _ in range(20):
        await store.create(new_task(ttl_ms=HOUR))
    async with serving(rigged, handlers(report=work), concurrency=20, lease_ms=HOUR, poll_ms=HOUR):
        await eventually(lambda: len(started) == 20, "the tasks did not start")
        await renewed(rigged)
        begun = len(rigged.calls)
        await renewed(rigged)
        since = rigged.calls[begun:]
        let_go.set()
    # The loops beside it look at the sessions, and for work when somebody may have made some.
    assert (since.count("renew"), set(since) - {"renew", "sessions", "claim"}) == (2, set())


async def test_work_whose_run_was_freed_behind_its_back_is_told_at_the_next_renewal(
    store: Store, clock: VirtualClock
) -> None:
    """Though another worker runs it meanwhile, so that nothing of it begins here again."""
    work, rigged = Tool(), Rigged(store)
    await store.create(new_task(timeout_ms=1000 * LEASE))
    async with serving(rigged, handlers(report=work), lease_ms=HOUR * 1000, poll_ms=HOUR):
        await work.started()
        clock.advance(1001 * LEASE)
        rigged.silent = True
        assert await store.free_overdue(10, late_ms=0) == 1
        theirs = await claim_as_another(store)
        await renewed(rigged)
        await eventually(lambda: work.told == [True], "it was not told")
        work.let_go.set()
    assert (work.attempts, theirs.attempt) == ([1], 2)


async def test_a_run_that_was_claimed_while_the_store_looked_is_not_lost(store: Store) -> None:
    work, rigged = Tool(), Rigged(store)
    async with serving(rigged, handlers(report=work), lease_ms=HOUR):
        await worker_session(store)
        looked = rigged.gate_after("renew")
        rigged.miss()
        await looked.reached()
        task = await store.create(new_task())
        await work.started()
        looked.open()
        await renewed(rigged)
        work.let_go.set()
        assert (await ended(store, task)).result == done("attempt 1").result
    assert work.told == []


async def test_nor_is_one_that_took_the_place_of_a_lost_one_while_the_store_looked(
    store: Store, clock: VirtualClock
) -> None:
    attempts, told, let_go = list[int](), list[int](), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        attempts.append(run.claim.attempt)
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            told.append(run.claim.attempt)
            raise
        return done(f"attempt {run.claim.attempt}")

    rigged = Rigged(store)
    task = await store.create(new_task(timeout_ms=1000 * LEASE))
    async with serving(rigged, handlers(report=work), lease_ms=HOUR * 1000):
        await eventually(lambda: attempts == [1], "the task did not start")
        clock.advance(1001 * LEASE)
        freed = rigged.gate_before("renew")
        rigged.miss()
        await freed.reached()
        looked = rigged.gate_after("renew")
        seen = await store.inspect(task.id)
        assert seen.run is not None
        assert await store.give_back(await worker_session(store), frozenset({(task.seq, seen.run.fence)})) == 1
        freed.open()
        await looked.reached()
        await eventually(lambda: attempts == [1, 1], "the task did not start again")
        looked.open()
        await renewed(rigged)
        let_go.set()
        assert (await ended(store, task)).result == done("attempt 1").result
    assert told == [1]


# -- a store that lost what it had acknowledged ------------------------------------------------------------------------


class Forgetful(Rigged):
    """Acknowledges the first outcome and does not keep it: as a primary that dies before its standby has it."""

    lost = False

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        if not self.lost:
            self.lost = True
            return claim.task
        return await super().finish(claim, outcome)


class Quick:
    """Work that ends at once."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        self.attempts.append(run.claim.attempt)
        return done("quick")


async def test_a_task_whose_end_the_store_has_lost_is_given_back_and_runs_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    work, rigged = Quick(), Forgetful(store)
    rigged.fail("give_back", 1)  # it is tried again
    task = await store.create(new_task(max_attempts=1))
    async with serving(rigged, handlers(report=work), lease_ms=FAST_LEASE):
        assert (await ended(store, task)).status is Status.COMPLETED
    assert (work.attempts, rigged.calls.count("give_back")) == ([1, 1], 2)
    assert [record.getMessage() for record in caplog.records if "begin anew" in record.getMessage()] == [
        "the store has lost what became of runs of this worker; they begin anew (tasks: 1)"
    ]


async def test_what_somebody_else_has_freed_meanwhile_is_not_worth_a_word(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    work, rigged = Quick(), Forgetful(store)
    task = await store.create(new_task())

    async def free() -> None:
        run = (await store.inspect(task.id)).run
        assert run is not None
        assert await store.give_back(await worker_session(store), frozenset({(task.seq, run.fence)})) == 1

    rigged.before["give_back"].append(free)
    async with serving(rigged, handlers(report=work), lease_ms=FAST_LEASE):
        assert (await ended(store, task)).status is Status.COMPLETED
    assert (work.attempts, "begin anew" in caplog.text) == ([1, 1], False)


async def test_a_run_that_ends_while_the_store_looks_is_no_stray(store: Store) -> None:
    work, rigged = Tool(), Rigged(store)
    task = await store.create(new_task())
    async with serving(rigged, handlers(report=work), lease_ms=HOUR):
        await work.started()
        looked = rigged.gate_after("renew")
        rigged.miss()
        await looked.reached()
        work.let_go.set()
        await ended(store, task)
        looked.open()
        await renewed(rigged)
    assert "give_back" not in rigged.calls


async def test_a_run_that_is_being_claimed_is_no_stray(store: Store) -> None:
    """The claim is committed, its caller not yet resumed: the session holds a run that nobody here knows."""
    work, rigged = Quick(), Rigged(store)
    task = await store.create(new_task())
    claimed = rigged.gate_after("claim")
    async with serving(rigged, handlers(report=work), lease_ms=HOUR):
        await claimed.reached()
        await renewed(rigged)
        await renewed(rigged)
        claimed.open()
        await ended(store, task)
    assert (work.attempts, "give_back" in rigged.calls) == ([1], False)
