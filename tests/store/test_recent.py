"""A poll that follows on no commit is answered with what the one before it read, and any commit ends that."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.domain.errors import TaskExpired, TaskNotFound
from perdure.domain.model import Status
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from tests.store.support import ADA, BOB, DONE, ELSEWHERE, NAME, new_task, parked, running


@pytest.fixture
async def store(
    path: Path, connections: dict[str, sqlite3.Connection], clock: VirtualClock
) -> AsyncIterator[SQLiteStore]:
    del connections  # they are caught when it opens
    store = SQLiteStore(f"sqlite:///{path}", clock)
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
def reads(connections: dict[str, sqlite3.Connection], store: SQLiteStore) -> Callable[[], int]:
    """How many rows of tasks were read since the last time."""
    del store  # it makes the connections
    statements: list[str] = []
    connections["reader"].set_trace_callback(statements.append)

    def since() -> int:
        count = sum("FROM task" in each for each in statements)
        statements.clear()
        return count

    return since


async def test_what_nobody_has_changed_is_read_once(store: SQLiteStore, reads: Callable[[], int]) -> None:
    tasks = [await store.create(new_task()) for _ in range(3)]
    for _ in range(5):
        assert [await store.get(ADA, task.id) for task in tasks] == tasks
    assert reads() == 3


async def test_a_commit_of_our_own_is_seen_at_once(store: SQLiteStore, reads: Callable[[], int]) -> None:
    claim = await running(store)
    for number in range(5):
        await store.report(claim, str(number))
        assert (await store.get(ADA, claim.task.id)).message == str(number)
    await store.finish(claim, DONE)
    assert (await store.get(ADA, claim.task.id)).result == DONE.result
    assert reads() == 6


async def test_a_commit_of_another_process_is_seen_at_once(store: SQLiteStore, other: sqlite3.Connection) -> None:
    task = await store.create(new_task())
    for number in range(5):
        assert (await store.get(ADA, task.id)).version == task.version + number
        other.execute("UPDATE task SET version = version + 1")
    other.execute("DELETE FROM task")
    with pytest.raises(TaskNotFound):
        await store.get(ADA, task.id)


async def test_what_a_transaction_has_not_committed_yet_is_not_seen(
    store: SQLiteStore, other: sqlite3.Connection
) -> None:
    task = await store.create(new_task())
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE task SET version = version + 1")
    assert await store.get(ADA, task.id) == task
    other.execute("COMMIT")
    assert await store.get(ADA, task.id) == replace(task, version=task.version + 1)


async def test_one_that_was_purged_is_gone_though_it_was_read_just_before(
    store: SQLiteStore, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(ttl_ms=1000))
    await store.finish(claim, DONE)
    clock.advance(5000)
    assert (await store.get(ADA, claim.task.id)).status is Status.COMPLETED
    await store.purge(10, linger_ms=0, tombstone_ms=10_000)
    with pytest.raises(TaskExpired):
        await store.get(ADA, claim.task.id)


async def test_it_is_its_owners_alone_however_often_they_have_read_it(store: SQLiteStore) -> None:
    task = await store.create(new_task())
    await store.get(ADA, task.id)
    for stranger in (BOB, ELSEWHERE):
        with pytest.raises(TaskNotFound):
            await store.get(stranger, task.id)


async def test_one_that_asks_something_is_read_with_its_questions_each_time(
    store: SQLiteStore, reads: Callable[[], int]
) -> None:
    claim = await parked(store, some_name=NAME)
    for _ in range(3):
        assert [question.key for question in (await store.get(ADA, claim.task.id)).inputs] == ["some_name"]
    assert reads() >= 3


async def test_what_is_large_is_not_kept(store: SQLiteStore, reads: Callable[[], int]) -> None:
    claim = await running(store)
    await store.finish(claim, replace(DONE, result={"content": [{"type": "text", "text": "x" * 5000}]}))
    for _ in range(3):
        await store.get(ADA, claim.task.id)
    assert reads() == 3


async def test_there_is_an_end_to_how_many_are_kept(
    store: SQLiteStore, reads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.sqlite.recent._MOST", 2)
    tasks = [await store.create(new_task()) for _ in range(3)]
    for _ in range(4):
        assert [await store.get(ADA, task.id) for task in tasks] == tasks
    assert reads() == 2 + 4


async def test_a_store_that_is_opened_again_has_read_nothing_yet(store: SQLiteStore, other: sqlite3.Connection) -> None:
    task = await store.create(new_task())
    await store.get(ADA, task.id)
    await store.close()
    other.execute("UPDATE task SET version = version + 1")
    await store.open()
    assert (await store.get(ADA, task.id)).version == task.version + 1
