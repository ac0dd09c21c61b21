"""Behind PgBouncer in transaction mode: each transaction may meet another session, so nothing may outlive one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import Change, Completed, Demand, Status
from perdure.store.postgres import PostgresStore
from perdure.testing.postgresql import Bouncer, Cluster
from perdure.testing.stores import MakeStore, StoreSuite
from tests.store.support import ADA, HANDLER, LEASE, new_task
from tests.support import PATIENCE, eventually

_SHARE = 6


class TestPooledStore(StoreSuite):
    @pytest.fixture
    def make_store(self, database: str, pgbouncer: Bouncer) -> MakeStore:
        return lambda clock: PostgresStore(pgbouncer.through(database), clock)


# One in so many tests of the suite, of all its subjects: what differs behind a pooler is how a transaction begins and
# ends, and that is the same few lines for all verbs.
for _number, _name in enumerate(name for name in vars(StoreSuite) if name.startswith("test_")):
    if _number % _SHARE:
        setattr(TestPooledStore, _name, None)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_hints_go_past_the_pooler(database: str, pgbouncer: Bouncer) -> None:
    heard: list[Change | None] = []
    url = pgbouncer.through(database)
    async with opened(url) as one, opened(url) as other:
        other.subscribe(heard.append)
        task = await one.create(new_task())
        await eventually(lambda: bool(heard), "the other hears of it")
        await one.request_cancel(ADA, task.id)
        await eventually(lambda: len(heard) > 1, "and of that")
    assert heard == [
        Change(task.id, task.seq, Status.WORKING, runnable=True),
        Change(task.id, task.seq, Status.CANCELLED),
    ]


async def test_a_pooler_with_one_connection_serves_all(database: str, postgres: Cluster) -> None:
    with Bouncer(postgres, {"default_pool_size": 1}) as narrow:
        async with opened(narrow.through(database)) as store:
            session = await store.open_session(LEASE, {})
            tasks = await asyncio.gather(*(store.create(new_task()) for _ in range(50)))
            demands = [Demand(HANDLER, 50)]
            claims = await store.claim(session.id, demands, 50)
            await asyncio.gather(*(store.finish(claim, Completed({})) for claim in claims))
            found = await asyncio.gather(*(store.get(ADA, task.id) for task in tasks))
    assert [task.status for task in found] == [Status.COMPLETED] * 50


async def test_a_pooler_that_is_restarted_costs_an_error_at_most(database: str, postgres: Cluster) -> None:
    with Bouncer(postgres) as pooler:
        async with opened(pooler.through(database)) as store:
            task = await store.create(new_task())
            await asyncio.to_thread(pooler.stop)
            with pytest.raises(StoreUnavailable):
                await store.get(ADA, task.id)
            await asyncio.to_thread(pooler.start)

            async def found() -> bool:
                try:
                    return await store.get(ADA, task.id) == task
                except StoreUnavailable:
                    return False

            await eventually(found, "it goes on", within=PATIENCE)
