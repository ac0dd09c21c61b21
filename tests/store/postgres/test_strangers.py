"""Who asks for somebody else's task touches none of it: what that takes, or waits for, would tell that it exists."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from perdure.domain.errors import TaskNotFound
from perdure.domain.journal import EntryState
from perdure.domain.model import Owner
from perdure.store.postgres import PostgresStore, sql
from perdure.testing import VirtualClock
from perdure.testing.stores.support import ADA, BOB, DONE, ELSEWHERE, LEASE, elsewhere, new_task, running, waiting
from tests.support import PATIENCE

STRANGERS = (BOB, ELSEWHERE)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(emptied_database: str, clock: VirtualClock) -> AsyncGenerator[PostgresStore]:
    opened = PostgresStore(emptied_database, clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def connection(emptied_database: str) -> AsyncGenerator[asyncpg.Connection]:
    opened = await asyncpg.connect(emptied_database)
    yield opened
    await opened.close()


async def test_a_stranger_does_not_wait_for_whoever_holds_the_task(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    """Who has to would hear that the store is unavailable, after five seconds."""
    task = await store.create(new_task(owner=ADA))
    async with connection.transaction(), asyncio.timeout(PATIENCE):
        await connection.execute("SELECT FROM perdure.run JOIN perdure.task ON seq = task_seq FOR UPDATE")
        for owner in STRANGERS:
            for asked in (
                store.get(owner, task.id),
                store.open_questions(owner, task.id),
                store.answer(owner, task.id, {"name": "x"}),
                store.request_cancel(owner, task.id),
            ):
                with pytest.raises(TaskNotFound):
                    await asked


async def test_nor_does_who_made_up_the_token_of_external_work(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    claim = await waiting(store, elsewhere())
    async with connection.transaction(), asyncio.timeout(PATIENCE):
        await connection.execute("SELECT FROM perdure.run JOIN perdure.task ON seq = task_seq FOR UPDATE")
        for place in ("0", "1"):
            for said in (
                store.settle(claim.task.id, place, "forged", EntryState.DONE, None),
                store.tell(claim.task.id, place, "forged", "half way"),
            ):
                with pytest.raises(TaskNotFound):
                    await said


async def test_no_row_of_somebody_elses_comes_from_the_database(
    store: PostgresStore, clock: VirtualClock, connection: asyncpg.Connection
) -> None:
    """A result may have megabytes, which take their time to read."""
    claim = await running(store, new_task(owner=ADA, ttl_ms=LEASE))

    async def rows_for(owner: Owner) -> list[int]:
        by = [claim.task.id], [owner.tenant], [owner.principal]
        return [
            len(await connection.fetch(sql.TASK_FIND, *by)),
            len(await connection.fetch(sql.LOCK_NAMED, None, *by)),
            len(await connection.fetch(sql.TOMBSTONE_FIND, clock.now, *by)),
        ]

    assert [await rows_for(owner) for owner in (ADA, *STRANGERS)] == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    await store.finish(claim, DONE)
    clock.advance(LEASE)
    await store.purge(10, linger_ms=0, tombstone_ms=LEASE)
    assert [await rows_for(owner) for owner in (ADA, *STRANGERS)] == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]


async def test_one_task_may_be_asked_for_by_its_owner_and_by_strangers_at_once(store: PostgresStore) -> None:
    """They come in one batch, and the row that is read for one of them is not there for the others."""
    task = await store.create(new_task(owner=ADA))
    for ask in (store.get, store.request_cancel):
        answers = await asyncio.gather(
            *(ask(owner, task.id) for owner in (BOB, ADA, ELSEWHERE)), return_exceptions=True
        )
        assert [type(answer).__name__ for answer in answers] == ["TaskNotFound", "Task", "TaskNotFound"]
