"""How a store on a SQLite file knows of what others have committed: theirs, all of theirs, and none of its own."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from perdure.domain.errors import StoreUnavailable
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from tests.store.support import new_task
from tests.support import PATIENCE, eventually


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def store(
    url: str, connections: dict[str, sqlite3.Connection], clock: VirtualClock
) -> AsyncIterator[SQLiteStore]:
    del connections  # they are caught when it opens
    store = SQLiteStore(url, clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def other(path: Path, store: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """Any program's connection to the file."""
    del store  # it makes the file
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def looks(connections: dict[str, sqlite3.Connection], store: SQLiteStore) -> list[str]:
    """What the connection that writes executes from now on."""
    del store  # it makes the connections
    statements: list[str] = []
    connections["writer"].set_trace_callback(statements.append)
    return statements


def touch(connection: sqlite3.Connection) -> None:
    """Commit something. What is written as it was is not written."""
    connection.execute("UPDATE counter SET value = value + 1")


class Watch:
    """What a store says of others' commits, against what it said last."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._number = store.commits_by_others()

    def differs(self) -> bool:
        before, self._number = self._number, self._store.commits_by_others()
        return before != self._number

    async def sees(self) -> None:
        await eventually(self.differs, "somebody else's commit is seen")

    async def sees_nothing(self) -> None:
        """Also when the thread has answered what was asked."""
        for _ in range(3):
            assert not self.differs()
            await self._store.create(new_task())
        assert not self.differs()


@asynccontextmanager
async def neighbour(url: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.neighbour", url, stdin=pipe, stdout=pipe
    )
    try:
        assert await said(process) == "ready"
        yield process
    finally:
        process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()


async def make_a_task(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"another\n")
    assert await said(process) == "made"


# -- theirs, and not one's own -----------------------------------------------------------------------------------------


async def test_what_another_connection_commits_is_seen_each_time(store: SQLiteStore, other: sqlite3.Connection) -> None:
    watch = Watch(store)
    for _ in range(5):
        touch(other)
        await watch.sees()
        await watch.sees_nothing()


async def test_what_another_process_commits_is_seen_each_time(store: SQLiteStore, url: str) -> None:
    watch = Watch(store)
    async with neighbour(url) as process:
        await watch.sees()  # it has marked the file as ours, and so it is known that it may be written
        await watch.sees_nothing()
        for _ in range(3):
            await make_a_task(process)
            await watch.sees()
            await watch.sees_nothing()


async def test_two_stores_in_one_process_are_others_to_each_other(store: SQLiteStore, url: str) -> None:
    ours, beside = Watch(store), SQLiteStore(url)
    await beside.open()
    await ours.sees()
    theirs = Watch(beside)
    await store.create(new_task())
    await theirs.sees()
    assert not ours.differs()
    await beside.create(new_task())
    await ours.sees()
    assert not theirs.differs()
    await beside.close()


async def test_a_commit_of_anothers_is_seen_among_ones_own(store: SQLiteStore, other: sqlite3.Connection) -> None:
    watch = Watch(store)
    for _ in range(5):
        await store.create(new_task())
        touch(other)
        await store.create(new_task())
        await watch.sees()
        await watch.sees_nothing()


async def test_a_log_that_is_written_from_its_beginning_again_is_nobody_elses_work(
    store: SQLiteStore, path: Path
) -> None:
    watch = Watch(store)
    log = path.with_name(f"{path.name}-wal")
    for _ in range(60):  # twice as much as SQLite lets the log grow before it moves that into the file
        await store.create(new_task(params={"text": "x" * 150_000}))
        assert not watch.differs()
    assert log.stat().st_size < 8_000_000
    await watch.sees_nothing()


async def test_what_only_reads_is_no_commit(store: SQLiteStore, other: sqlite3.Connection) -> None:
    watch = Watch(store)
    assert other.execute("SELECT count(*) FROM task").fetchone() == (0,)
    other.execute("BEGIN IMMEDIATE")
    touch(other)
    other.execute("ROLLBACK")
    await watch.sees_nothing()


# -- what it costs -----------------------------------------------------------------------------------------------------


async def test_the_writer_is_asked_only_after_somebody_has_committed_and_once(
    store: SQLiteStore, other: sqlite3.Connection, looks: list[str]
) -> None:
    watch = Watch(store)
    await eventually(lambda: bool(looks), "the first look asks")
    looks.clear()
    for _ in range(100):
        assert not watch.differs()
        await asyncio.sleep(0)
    assert looks == []
    touch(other)
    await watch.sees()
    for _ in range(100):
        assert not watch.differs()
        await asyncio.sleep(0)
    assert looks == ["PRAGMA data_version"]


async def test_a_look_does_not_wait_for_a_write_that_waits(
    store: SQLiteStore, other: sqlite3.Connection, looks: list[str]
) -> None:
    watch = Watch(store)
    touch(other)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.create(new_task()))
    await eventually(lambda: "BEGIN IMMEDIATE" in looks, "the writer waits")
    for _ in range(10):  # if one waited for the writer, that would wait in vain for the lock
        assert not watch.differs()
    other.execute("COMMIT")
    await writing
    await watch.sees()


# -- when it can't be told ---------------------------------------------------------------------------------------------


async def test_where_the_connection_that_writes_is_broken_others_may_have_committed(
    store: SQLiteStore, connections: dict[str, sqlite3.Connection], other: sqlite3.Connection
) -> None:
    watch = Watch(store)
    for _ in range(2):  # the second is served when the thread has answered what was asked, and uses it no more
        await store.create(new_task())
    connections["writer"].close()
    for _ in range(2):
        touch(other)
        await watch.sees()
    with pytest.raises(StoreUnavailable):  # it finds out that it is broken, and will make another one
        await store.create(new_task())
    touch(other)
    await watch.sees()
    await store.create(new_task())
    await watch.sees()
    await watch.sees_nothing()


async def test_a_store_that_is_closed_can_not_tell(store: SQLiteStore) -> None:
    store.commits_by_others()
    await store.close()
    with pytest.raises(StoreUnavailable):
        store.commits_by_others()


async def test_a_store_that_is_opened_again_tells_again(store: SQLiteStore, other: sqlite3.Connection) -> None:
    before = store.commits_by_others()
    await store.close()
    touch(other)
    await store.open()
    watch = Watch(store)
    assert store.commits_by_others() is not None
    assert before is not None
    await watch.sees_nothing()
    touch(other)
    await watch.sees()
