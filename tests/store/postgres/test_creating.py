"""Creating, where the suite for stores does not reach: a task that is taken at first, and gone when it is looked for.

Somebody purges it in between. Here the database does: a trigger lets nothing be inserted for so many times.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from perdure.domain.errors import StoreUnavailable, TaskNotFound
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.url import Connection, parse
from perdure.testing import VirtualClock
from perdure.testing.stores.support import ADA, BOB, new_task
from tests.support import PATIENCE

_GONE = """
CREATE SEQUENCE tries;
CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {} THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER gone BEFORE INSERT ON perdure.task FOR EACH ROW EXECUTE FUNCTION gone();
"""


@pytest.fixture
async def outside(database: str) -> AsyncIterator[Connection]:
    connection = await parse(database).connect_directly(PATIENCE)
    yield connection
    await connection.close()


@pytest.fixture
async def store(database: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database, clock)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_task_that_was_taken_and_is_gone_is_made_all_the_same(
    store: PostgresStore, outside: Connection, key: str | None
) -> None:
    await outside.execute(_GONE.format(2))
    new = new_task(key=key, digest="d")
    assert (await store.create(new)).id == new.id
    assert (await store.get(ADA, new.id)).id == new.id


async def test_one_that_never_stays_is_not_looked_for_for_ever_and_its_neighbours_are_made(
    store: PostgresStore, outside: Connection
) -> None:
    await outside.execute(_GONE.format(1_000))
    here = await asyncio.gather(*(store.create(new_task()) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in here] == [StoreUnavailable] * 3
    await outside.execute("SELECT setval('tries', 1000)")
    assert await store.create(new_task())


async def test_an_id_twice_in_a_batch_is_one_task_and_each_caller_is_answered(store: PostgresStore) -> None:
    new, other = new_task(), new_task()
    blocker = asyncio.gather(*(store.create(new_task()) for _ in range(3)))
    made = await asyncio.gather(store.create(new), store.create(other), store.create(new))
    await blocker
    assert [task.id for task in made] == [new.id, other.id, new.id]
    assert made[0] == made[2]


async def test_an_id_that_is_somebody_elses_is_refused_in_a_batch_of_others(store: PostgresStore) -> None:
    taken = new_task(owner=BOB)
    await store.create(taken)
    mine = new_task()
    stolen = replace(new_task(), id=taken.id)
    results = await asyncio.gather(store.create(mine), store.create(stolen), return_exceptions=True)
    assert not isinstance(results[0], BaseException)
    assert results[0].id == mine.id
    assert isinstance(results[1], TaskNotFound)
