"""Group commit: who shares a commit, who is told what, and when."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from perdure.domain.errors import LeaseLost, NotStorable, StoreUnavailable
from perdure.domain.model import Change, Status
from perdure.store.sqlite import schema
from perdure.store.sqlite.writer import Transaction, Writer
from tests.store.support import Changes

SECONDS = 20


class Statements(list[str]):
    """What the writer's connection executed, as SQLite itself reports it."""

    @property
    def commits(self) -> int:
        return self.count("COMMIT")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest.fixture
def connect(path: Path, statements: Statements) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = schema.connect_writer(path)
        connection.execute("CREATE TABLE IF NOT EXISTS note (text TEXT PRIMARY KEY)")
        connection.execute("PRAGMA busy_timeout = 0")
        connection.set_trace_callback(statements.append)
        return connection

    return connect


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
async def writer(connect: Callable[[], sqlite3.Connection], changes: Changes) -> AsyncIterator[Writer]:
    writer = Writer(connect, changes, max_batch=10, max_pending=20)
    await writer.open()
    yield writer
    await writer.close()


@pytest.fixture
def reader(path: Path, writer: Writer) -> Iterator[sqlite3.Connection]:
    """What another process sees."""
    del writer  # it makes the file
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def notes(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM note ORDER BY rowid")]


def note(text: str) -> Callable[[Transaction], str]:
    def operation(tx: Transaction) -> str:
        tx.run("INSERT INTO note VALUES (?)", text)
        tx.changes.append(Change(text, 1, Status.WORKING))
        return text

    return operation


def failing(error: Exception) -> Callable[[Transaction], str]:
    def operation(tx: Transaction) -> str:
        note("never")(tx)
        raise error

    return operation


class Gate:
    """An operation that holds the writer in its transaction until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, tx: Transaction) -> None:
        del tx
        self.reached.set()
        assert self.opened.wait(SECONDS)

    async def hold(self, writer: Writer) -> asyncio.Task[None]:
        """Returns once the writer is held; whatever is submitted from now on waits together."""
        holding = asyncio.create_task(writer.submit(self))
        assert await asyncio.to_thread(self.reached.wait, SECONDS)
        return holding


async def submitted(writer: Writer, *operations: Callable[[Transaction], str]) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(writer.submit(operation)) for operation in operations]
    await anyio.lowlevel.checkpoint()
    return tasks


async def together(writer: Writer, *operations: Callable[[Transaction], str]) -> list[str | BaseException]:
    """What comes of `operations` when they all wait for the same commit."""
    gate = Gate()
    holding = await gate.hold(writer)
    tasks = await submitted(writer, *operations)
    gate.opened.set()
    await holding
    return await asyncio.gather(*tasks, return_exceptions=True)


# -- sharing -----------------------------------------------------------------------------------------------------------


async def test_operations_of_many_callers_share_a_commit(
    writer: Writer, reader: sqlite3.Connection, statements: Statements
) -> None:
    texts = [str(number) for number in range(10)]
    assert await together(writer, *map(note, texts)) == texts
    assert statements.commits == 2  # the gate's own, and one for all that waited meanwhile
    assert notes(reader) == texts


async def test_what_one_turn_of_the_event_loop_asks_for_shares_a_commit(
    writer: Writer, reader: sqlite3.Connection, statements: Statements
) -> None:
    texts = [str(number) for number in range(10)]
    assert await asyncio.gather(*(writer.submit(note(text)) for text in texts)) == texts
    assert statements.commits == 1
    assert notes(reader) == texts


async def test_an_operation_that_refuses_before_it_writes_costs_the_others_no_savepoint(
    writer: Writer, reader: sqlite3.Connection, statements: Statements
) -> None:
    def refuse(tx: Transaction) -> str:
        assert tx.one("SELECT 1 FROM note WHERE text = 'unknown'") is None
        raise LeaseLost

    results = await together(writer, note("before"), refuse, note("after"))
    assert isinstance(results[1], LeaseLost)
    assert notes(reader) == ["before", "after"]
    assert not [statement for statement in statements if statement.startswith("SAVEPOINT")]


async def test_a_batch_is_bounded_so_that_the_first_of_a_burst_does_not_wait_for_the_last(
    writer: Writer, statements: Statements
) -> None:
    await together(writer, *(note(str(number)) for number in range(20)))
    assert statements.commits == 1 + 2


async def test_an_operation_that_is_alone_waits_for_no_one(writer: Writer, statements: Statements) -> None:
    await writer.submit(note("one"))
    await writer.submit(note("two"))
    assert statements.commits == 2


async def test_an_operation_that_fails_is_rolled_back_alone(
    writer: Writer, reader: sqlite3.Connection, statements: Statements, changes: Changes
) -> None:
    error = LeaseLost()
    results = await together(writer, note("before"), failing(error), failing(ValueError("bug")), note("after"))
    assert results[0] == "before"
    assert results[1] is error
    assert isinstance(results[2], ValueError)
    assert results[3] == "after"
    assert statements.commits == 2
    assert notes(reader) == ["before", "after"]
    assert [change.task_id for change in changes] == ["before", "after"]


async def test_a_statement_that_sqlite_refuses_sinks_its_own_operation_only(
    writer: Writer, reader: sqlite3.Connection
) -> None:
    first, second, third = await together(writer, note("same"), note("same"), note("other"))
    assert (first, third) == ("same", "other")
    assert isinstance(second, sqlite3.IntegrityError)
    assert notes(reader) == ["same", "other"]


# -- a transaction that is lost as a whole -----------------------------------------------------------------------------


def losing(tx: Transaction) -> str:
    """Ends the whole transaction at a statement, as a full disk may."""
    tx.run("INSERT OR ROLLBACK INTO note VALUES ('x'), ('x')")
    return "never"


def doomed(tx: Transaction) -> str:
    """Succeeds, and makes the commit fail."""
    tx.run("CREATE TABLE IF NOT EXISTS parent (id INTEGER PRIMARY KEY)")
    tx.run("CREATE TABLE IF NOT EXISTS child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    tx.run("INSERT INTO child VALUES (1)")
    return "never"


def strict(connect: Callable[[], sqlite3.Connection]) -> Callable[[], sqlite3.Connection]:
    def connect_strictly() -> sqlite3.Connection:
        connection = connect()
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    return connect_strictly


@pytest.mark.parametrize("ruin", [losing, doomed])
async def test_nobody_is_told_a_success_when_the_transaction_is_lost(
    connect: Callable[[], sqlite3.Connection], changes: Changes, path: Path, ruin: Callable[[Transaction], str]
) -> None:
    writer = Writer(strict(connect), changes)
    await writer.open()
    results = await together(writer, note("before"), ruin, note("after"), failing(LeaseLost()))
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert changes == []
    assert await writer.submit(note("later")) == "later"
    await writer.close()
    with closing(sqlite3.connect(path)) as connection:
        assert notes(connection) == ["later"]


async def test_a_lock_that_another_process_does_not_let_go_makes_the_store_unavailable_for_a_while(
    writer: Writer, reader: sqlite3.Connection
) -> None:
    reader.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await writer.submit(note("now"))
    assert caught.value.retry_after_ms > 0
    reader.execute("ROLLBACK")
    assert await writer.submit(note("later")) == "later"


# -- telling -----------------------------------------------------------------------------------------------------------


async def test_a_change_is_announced_after_the_commit_and_before_its_caller_hears(
    connect: Callable[[], sqlite3.Connection], path: Path
) -> None:
    seen: list[tuple[str, list[str], bool]] = []

    def announce(change: Change) -> None:
        with closing(sqlite3.connect(path)) as connection:
            seen.append((change.task_id, notes(connection), task.done()))

    writer = Writer(connect, announce)
    await writer.open()
    task = asyncio.create_task(writer.submit(note("one")))
    await task
    await writer.close()
    assert seen == [("one", ["one"], False)]


async def test_a_write_whose_caller_was_cancelled_happens_all_the_same(
    writer: Writer, reader: sqlite3.Connection, changes: Changes
) -> None:
    gate = Gate()
    holding = await gate.hold(writer)
    cancelled, other = await submitted(writer, note("cancelled"), note("other"))
    cancelled.cancel()
    await anyio.lowlevel.checkpoint()
    assert cancelled.cancelled()
    gate.opened.set()
    await holding
    assert await other == "other"
    assert notes(reader) == ["cancelled", "other"]
    assert [change.task_id for change in changes] == ["cancelled", "other"]


# -- limits and lifetime -----------------------------------------------------------------------------------------------


async def test_past_its_bound_the_queue_takes_nothing_more_and_says_so_at_once(writer: Writer) -> None:
    gate = Gate()
    holding = await gate.hold(writer)
    tasks = await submitted(writer, *(note(str(number)) for number in range(20)))
    with pytest.raises(StoreUnavailable, match="too many writes waiting"):
        await writer.submit(note("one too many"))
    gate.opened.set()
    await holding
    await asyncio.gather(*tasks)
    assert await writer.submit(note("later")) == "later"


async def test_closing_commits_what_is_queued_and_takes_nothing_more(
    writer: Writer, reader: sqlite3.Connection
) -> None:
    gate = Gate()
    holding = await gate.hold(writer)
    (queued,) = await submitted(writer, note("queued"))
    closing_writer = asyncio.create_task(writer.close())
    await anyio.lowlevel.checkpoint()
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.submit(note("late"))
    gate.opened.set()
    await asyncio.gather(holding, closing_writer)
    assert await queued == "queued"
    assert notes(reader) == ["queued"]


async def test_a_writer_that_was_never_opened_or_failed_to_open_is_closed(changes: Changes) -> None:
    def connect() -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    writer = Writer(connect, changes)
    with pytest.raises(StoreUnavailable):
        await writer.submit(note("early"))
    with pytest.raises(sqlite3.OperationalError):
        await writer.open()
    with pytest.raises(StoreUnavailable):
        await writer.submit(note("late"))
    await writer.close()


async def test_a_closed_writer_may_be_opened_again(path: Path, changes: Changes) -> None:
    writer = Writer(lambda: schema.connect_writer(path), changes)
    for _ in range(2):
        await writer.open()
        await writer.submit(lambda tx: tx.one("SELECT 1"))
        await writer.close()


def test_a_commit_that_outlives_its_event_loop_is_kept_though_nobody_is_left_to_tell(
    connect: Callable[[], sqlite3.Connection], path: Path, changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "perdure.store.sqlite.writer")
    writer, gate = Writer(connect, changes), Gate()

    async def leave_in_a_hurry() -> None:
        await writer.open()
        await gate.hold(writer)
        await submitted(writer, note("kept"))

    asyncio.run(leave_in_a_hurry())
    gate.opened.set()
    asyncio.run(writer.close())
    assert "outlived its event loop" in caplog.text
    assert changes == []
    with closing(sqlite3.connect(path)) as connection:
        assert notes(connection) == ["kept"]


async def test_a_connection_that_breaks_is_opened_anew_and_nobody_waits_for_ever(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreUnavailable):
        await writer.submit(lambda tx: tx.connection.close())
    assert "opened anew" in caplog.text
    assert await writer.submit(lambda tx: tx.one("SELECT 1")) == (1,)


async def test_a_connection_that_can_not_be_opened_anew_is_tried_again_for_the_next_writes(
    path: Path, connect: Callable[[], sqlite3.Connection], changes: Changes
) -> None:
    refusals = [False, True, False]

    def now_and_then() -> sqlite3.Connection:
        if refusals.pop(0):
            raise sqlite3.OperationalError("unable to open database file")
        return connect()

    writer = Writer(now_and_then, changes)
    await writer.open()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await writer.submit(lambda tx: tx.connection.close())
    assert await writer.submit(lambda tx: tx.one("SELECT 1")) == (1,)
    await writer.close()


async def test_a_writer_whose_connection_broke_last_can_be_closed(writer: Writer) -> None:
    with pytest.raises(StoreUnavailable):
        await writer.submit(lambda tx: tx.connection.close())
    await writer.close()


async def test_a_value_that_sqlite_finds_too_large_is_not_storable_rather_than_worth_another_try(
    writer: Writer,
) -> None:
    def write(tx: Transaction) -> int:
        tx.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100)
        return tx.run("INSERT INTO note (text) VALUES (?)", "x" * 200)

    with pytest.raises(NotStorable):
        await writer.submit(write)


async def test_an_error_that_would_stay_is_told_as_it_is(writer: Writer) -> None:
    await writer.submit(lambda tx: tx.run("INSERT INTO note (text) VALUES ('once')"))
    with pytest.raises(sqlite3.IntegrityError):
        await writer.submit(lambda tx: tx.run("INSERT INTO note (text) VALUES ('once')"))
