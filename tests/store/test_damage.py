"""A SQLite file that somebody else has had in hand: what SQLite would write over is refused, what it reads is checked.

`python -m fuzz --target files` looks for more of it.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.domain.errors import StoreUnavailable, StoreUnusable, TaskNotFound, Unreadable
from perdure.store.sqlite import SQLiteStore
from tests.store.support import ADA, new_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def store(path: Path) -> SQLiteStore:
    """Not open yet."""
    return SQLiteStore(f"sqlite:///{path}")


@pytest.fixture
async def opened(store: SQLiteStore) -> AsyncIterator[SQLiteStore]:
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def outside(path: Path, opened: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """A connection that is nobody's, for sabotage."""
    del opened
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def found(path: Path) -> bytes:
    return path.read_bytes()


async def refusal(store: SQLiteStore) -> str:
    with pytest.raises(StoreUnusable) as caught:
        await store.open()
    return str(caught.value)


# -- before it is opened -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 99, 511])
async def test_a_file_that_is_shorter_than_any_database(path: Path, store: SQLiteStore, size: int) -> None:
    """SQLite takes it for a new one, and would write over it."""
    put(path, b"x" * size)
    assert await refusal(store) == f"{path} is no SQLite database: name another file, or move this one away"
    assert found(path) == b"x" * size


async def test_an_empty_file_is_a_new_store(path: Path, store: SQLiteStore) -> None:
    put(path, b"")
    await store.open()
    created = await store.create(new_task())
    assert await store.get(ADA, created.id) == created
    await store.close()


async def test_an_empty_file_whose_log_has_commits_in_it(path: Path, store: SQLiteStore) -> None:
    """SQLite takes it for a new one, and would throw the commits away."""
    log = path.with_name("tasks.db-wal")
    await store.open()
    await store.create(new_task())
    logged = found(log)
    await store.close()
    put(path, b"")
    put(log, logged)
    assert await refusal(store) == (
        f"{path} is empty, but its log tasks.db-wal is not: restore both from a backup, or move both away"
    )
    assert found(log) == logged


# -- while it is open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", "elsewhere"), ("result", '{"a'), ("result", "[]"), ("error", "{}"), ("error", "null")],
)
async def test_a_row_that_no_store_has_written_can_not_be_read_and_the_log_says_that_it_was_damaged(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    """Pages have no checksums: a bit that has flipped in a value shows when that is read, if at all."""
    damaged, sound = await opened.create(new_task()), await opened.create(new_task())
    outside.execute("PRAGMA ignore_check_constraints = ON")
    outside.execute(f"UPDATE task SET {column} = ? WHERE id = ?", (value, damaged.id))
    with pytest.raises(Unreadable):
        await opened.get(ADA, damaged.id)
    assert "was damaged" in caplog.text
    assert await opened.get(ADA, sound.id) == sound


async def test_a_write_that_meets_a_damaged_page_is_unavailable_and_nothing_of_it_stays(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    def lead_to(page: int) -> None:
        outside.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'run'", (page,))
        (version,) = outside.execute("PRAGMA schema_version").fetchone()
        outside.execute(f"PRAGMA schema_version = {version + 1}")

    outside.execute("PRAGMA writable_schema = ON")
    (page,) = outside.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'run'").fetchone()
    lead_to(1)
    new = new_task()
    with pytest.raises(StoreUnavailable):
        await opened.create(new)
    lead_to(page)
    with pytest.raises(TaskNotFound):
        await opened.get(ADA, new.id)
    await opened.create(new)
