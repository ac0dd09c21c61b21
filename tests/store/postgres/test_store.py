"""Opening and closing the store: what it needs, and that nothing of it is left when it could not be had."""

import asyncio

import asyncpg
import pytest

from perdure.domain.errors import StoreUnavailable, StoreUnusable
from perdure.store.postgres import PostgresStore
from perdure.testing.postgresql import Cluster
from perdure.testing.stores.support import ADA, new_task
from tests.store.postgres.support import SECRET
from tests.support import eventually


async def connected(postgres: Cluster, url: str) -> int:
    name = url.rpartition("/")[2]
    count = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'perdure'"
    return int(await asyncio.to_thread(postgres.sql, count))


async def left(postgres: Cluster, url: str) -> None:
    async def nobody() -> bool:
        return await connected(postgres, url) == 0

    await eventually(nobody, "a connection was left open")


async def test_a_store_that_is_idle_has_one_connection_to_work_with_and_one_for_hints(
    database: str, postgres: Cluster
) -> None:
    store = PostgresStore(database)
    await store.open()
    for _ in range(5):
        await store.create(new_task())
        await store.sessions()
    assert await connected(postgres, database) == 2
    await store.close()
    await left(postgres, database)
    await store.close()


async def test_one_that_can_not_be_opened_leaves_nothing_open(empty_database: str, postgres: Cluster) -> None:
    store = PostgresStore(empty_database)
    with pytest.raises(StoreUnusable, match="perdure migrate"):
        await store.open()
    await left(postgres, empty_database)
    await store.close()


async def test_one_whose_hints_can_not_be_had_leaves_nothing_open(database: str, postgres: Cluster) -> None:
    """As where `listen_host` is wrong."""
    store = PostgresStore(f"{database}?listen_host=127.0.0.1&listen_port=1")
    with pytest.raises(StoreUnusable, match="does not answer"):
        await store.open()
    await left(postgres, database)


async def test_what_is_no_fault_of_the_database_is_told_as_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(TypeError, match="a bug"):
        await PostgresStore(database).open()


async def test_a_refusal_carries_nothing_secret(postgres: Cluster) -> None:
    store = PostgresStore(postgres.url("nowhere", password=SECRET))
    with pytest.raises(StoreUnusable) as caught:
        await store.open()
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


async def test_a_store_that_was_closed_may_be_opened_again(emptied_database: str) -> None:
    store = PostgresStore(emptied_database)
    with pytest.raises(StoreUnavailable):
        await store.create(new_task())
    for _ in range(2):
        await store.open()
        task = await store.create(new_task())
        assert await store.get(ADA, task.id) == task
        await store.close()
