"""Routes, where the suite does not reach: what is taken at first and gone when it is looked for, and who waits.

Somebody purges it in between. Here the database does: a trigger lets nothing be inserted for so many times.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.domain.errors import StoreUnavailable
from perdure.store.postgres import PostgresRoutes
from perdure.store.postgres.url import Connection, parse
from perdure.testing import VirtualClock
from perdure.testing.postgresql import Bouncer
from perdure.testing.stores.support import ADA, NOW
from tests.support import PATIENCE, eventually

TTL = 60_000
ONE, TWO = (f"tsk_{letter * 32}" for letter in "ab")

_GONE = """
CREATE SEQUENCE tries;
CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {} THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER gone BEFORE INSERT ON perdure.route FOR EACH ROW EXECUTE FUNCTION gone();
"""
_DELETE = f"DELETE FROM perdure.route WHERE id = '{ONE}'"


@pytest.fixture
async def outside(database: str) -> AsyncIterator[Connection]:
    connection = await parse(database).connect_directly(PATIENCE)
    yield connection
    await connection.close()


@pytest.fixture
async def routes(database: str, clock: VirtualClock) -> AsyncIterator[PostgresRoutes]:
    routes = PostgresRoutes(database, clock)
    await routes.open()
    yield routes
    await routes.close()


async def test_a_route_that_was_taken_and_is_gone_is_laid_all_the_same(
    routes: PostgresRoutes, outside: Connection
) -> None:
    await outside.execute(_GONE.format(2))
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    assert await routes.find(ADA, ONE) == laid


async def test_one_that_never_stays_is_not_looked_for_for_ever(routes: PostgresRoutes, outside: Connection) -> None:
    await outside.execute(_GONE.format(1_000))
    calls = (routes.lay(ADA, "reports", f"r-{number}", TTL, f"tsk_{number:032}") for number in range(3))
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in done] == [StoreUnavailable] * 3
    await outside.execute("SELECT setval('tries', 1000)")
    assert await routes.lay(ADA, "reports", "r-1", TTL, ONE)


async def test_what_is_told_of_a_route_that_is_being_purged_is_told_in_vain(
    routes: PostgresRoutes, outside: Connection
) -> None:
    for task, id_ in (("r-1", ONE), ("r-2", TWO)):
        await routes.lay(ADA, "reports", task, TTL, id_)

    async def waits() -> bool:
        return await outside.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")

    async with outside.transaction():
        await outside.execute(_DELETE)
        told = asyncio.gather(*(routes.update(each, ttl_ms=2 * TTL, ended=False) for each in (TWO, ONE)))
        await eventually(waits, "it waits for the lock")
    await told
    assert (await routes.find(ADA, TWO)).expires_at == NOW + 2 * TTL
    assert await routes.count() == 1


async def test_it_works_behind_a_pooler(pgbouncer: Bouncer, database: str, clock: VirtualClock) -> None:
    routes = PostgresRoutes(pgbouncer.through(database), clock)
    await routes.open()
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    assert await routes.lay(ADA, "reports", "r-1", TTL, TWO) == laid
    clock.advance(TTL)
    assert set(await routes.take_doubtful(10, TTL)) == {ONE}
    await routes.update(ONE, ttl_ms=1_000, ended=True)
    assert (await routes.find(ADA, ONE)).expires_at == NOW + 1_000
    assert await routes.count() == 1
    clock.advance(1_000)
    assert await routes.purge(10, 0) == 1
    await routes.close()
