"""Who writes at the same time: the lock is taken before anything is looked at, and the run is written before its task.

Without the first, what a verb decides by may be old when it writes; SQLite would refuse that write at once, however
patient the connection is. Without the second, a store that locks rows would have deadlocks, so all stores keep the
order. Both are read from what SQLite executes, for each verb that writes a run and its task; then two processes try
what would go wrong.
"""

import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Final, cast

import pytest

from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from perdure.testing.stores.support import (
    ADA,
    DONE,
    LEASE,
    NAME,
    asks,
    both,
    hire,
    new_task,
    parked,
    running,
    sleep,
    waiting,
)
from tests.store.contender import Contest, Gains, contend
from tests.store.contest import arranged, judge
from tests.support import PATIENCE

Verb = Callable[[], Awaitable[object]]

# -- verbs that write a run and its task -------------------------------------------------------------------------------


async def answering(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await parked(store)
    return lambda: store.answer(ADA, claim.task.id, {"name": "Ada"})


async def cancelling(store: SQLiteStore, clock: VirtualClock) -> Verb:
    task = await store.create(new_task())
    return lambda: store.request_cancel(ADA, task.id)


async def claiming(store: SQLiteStore, clock: VirtualClock) -> Verb:
    await waiting(store, both(asks(name=NAME), sleep(1_000)))
    clock.advance(1_000)
    worker = await hire(store)
    return worker.claim_one


async def parking(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await running(store)
    return lambda: store.park(claim, asks(name=NAME))


async def finishing(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await running(store)
    return lambda: store.finish(claim, DONE)


async def releasing(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    return lambda: store.release(claim)


async def retrying(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    return lambda: store.retry(claim, 1_000, "ValueError: no")


async def closing_a_session(store: SQLiteStore, clock: VirtualClock) -> Verb:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    ((session, _),) = await store.sessions()
    return lambda: store.close_session(session.id)


async def taking_over(store: SQLiteStore, clock: VirtualClock) -> Verb:
    await running(store, new_task(max_attempts=1))
    clock.advance(LEASE)
    return store.take_over


async def freeing_what_is_overdue(store: SQLiteStore, clock: VirtualClock) -> Verb:
    await running(store, new_task(max_attempts=1, timeout_ms=1_000))
    clock.advance(1_001)
    return lambda: store.free_overdue(1, late_ms=0)


async def expiring(store: SQLiteStore, clock: VirtualClock) -> Verb:
    await store.create(new_task(ttl_ms=1_000))
    clock.advance(1_000)
    return lambda: store.expire(1)


VERBS: Final = (
    answering,
    cancelling,
    claiming,
    parking,
    finishing,
    releasing,
    retrying,
    closing_a_session,
    taking_over,
    freeing_what_is_overdue,
    expiring,
)


@pytest.fixture
async def store(
    connections: dict[str, sqlite3.Connection], path: Path, clock: VirtualClock
) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    yield store
    await store.close()


async def traced(verb: Verb, writer: sqlite3.Connection, tell: Callable[[str], None]) -> None:
    writer.set_trace_callback(tell)
    await verb()
    writer.set_trace_callback(None)


@pytest.mark.parametrize("prepare", VERBS)
async def test_the_run_is_written_before_its_task(
    store: SQLiteStore,
    connections: dict[str, sqlite3.Connection],
    clock: VirtualClock,
    prepare: Callable[[SQLiteStore, VirtualClock], Awaitable[Verb]],
) -> None:
    verb, seen = await prepare(store, clock), list[str]()
    await traced(verb, connections["writer"], seen.append)
    written = [match[1] for each in seen if (match := re.match(r"\s*(?:UPDATE|DELETE FROM) (run|task)\b", each))]
    assert set(written) == {"run", "task"}
    assert written == sorted(written)


@pytest.mark.parametrize("prepare", VERBS)
async def test_nobody_else_can_write_from_the_first_look_on(
    store: SQLiteStore,
    connections: dict[str, sqlite3.Connection],
    clock: VirtualClock,
    path: Path,
    prepare: Callable[[SQLiteStore, VirtualClock], Awaitable[Verb]],
) -> None:
    verb, found = await prepare(store, clock), list[tuple[str, bool]]()
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)) as outside:

        def tell(statement: str) -> None:
            found.append((statement, locked(outside)))

        await traced(verb, connections["writer"], tell)
    (begin, was_locked), *rest = found
    assert (begin.split()[0], was_locked) == ("BEGIN", False)
    assert rest[-1][0] == "COMMIT"
    assert [statement for statement, was_locked in rest if not was_locked] == []


def locked(outside: sqlite3.Connection) -> bool:
    """Whether somebody holds the lock for writing."""
    try:
        outside.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    outside.execute("ROLLBACK")
    return False


# -- the same at the same time -----------------------------------------------------------------------------------------

Contender = Callable[[Contest], Awaitable[Awaitable[Gains]]]
"""Comes back once the other has begun, with what there is to wait for."""


@asynccontextmanager
async def another_store(path: Path) -> AsyncGenerator[Contender]:
    store = SQLiteStore(f"sqlite:///{path}", VirtualClock())
    await store.open()

    async def contender(contest: Contest) -> Awaitable[Gains]:
        return asyncio.ensure_future(contend(store, "other", contest))

    yield contender
    await store.close()


@asynccontextmanager
async def another_process(path: Path) -> AsyncGenerator[Contender]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.store.contender", f"sqlite:///{path}", "other")
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    stdin, stdout = child.stdin, child.stdout
    assert stdin is not None
    assert stdout is not None

    async def gains() -> Gains:
        return cast("Gains", json.loads(await stdout.readline()))

    async def contender(contest: Contest) -> Awaitable[Gains]:
        stdin.write(json.dumps(contest).encode() + b"\n")
        assert await stdout.readline() == b"go\n"
        return gains()

    try:
        assert await asyncio.wait_for(stdout.readline(), PATIENCE) == b"ready\n"
        yield contender
        assert await asyncio.wait_for(child.wait(), PATIENCE) == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.mark.parametrize("another", [another_store, another_process])
async def test_two_who_do_the_same_at_once_are_both_served_and_one_of_them_wins(
    store: SQLiteStore, path: Path, another: Callable[[Path], AbstractAsyncContextManager[Contender]]
) -> None:
    contest = await arranged(store)
    async with another(path) as contender, asyncio.timeout(PATIENCE):
        mine, theirs = await asyncio.gather(contend(store, "one", contest), await contender(contest))
    await judge(store, contest, mine, theirs)
