"""Routes in each backend: held against the suite, shared by gateways, and still there after what may befall one."""

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from perdure.domain.errors import RouteTaken, StoreUnavailable, StoreUnusable, Unreadable
from perdure.domain.routing import Route
from perdure.ops.stores import open_routes
from perdure.store.memory import MemoryRoutes
from perdure.store.postgres import PostgresRoutes
from perdure.store.routes import Routes
from perdure.store.sqlite import SQLiteRoutes, SQLiteStore, schema
from perdure.testing.stores import MakeRoutes, RoutesSuite
from tests.store.sealed import Place
from tests.store.support import ADA, BOB, NOW, VirtualClock, new_task
from tests.support import PATIENCE

TTL = 60_000
ONE, TWO = (f"tsk_{letter * 32}" for letter in "ab")


class TestMemoryRoutes(RoutesSuite):
    @pytest.fixture
    def make_routes(self) -> MakeRoutes:
        return MemoryRoutes


class TestSQLiteRoutes(RoutesSuite):
    @pytest.fixture
    def make_routes(self, path: Path) -> MakeRoutes:
        return lambda clock: SQLiteRoutes(f"sqlite:///{path}", clock)


class TestPostgresRoutes(RoutesSuite):
    @pytest.fixture
    def make_routes(self, emptied_database: str) -> MakeRoutes:
        return lambda clock: PostgresRoutes(emptied_database, clock)


# -- several gateways on one store -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(routes: Routes) -> AsyncGenerator[Routes]:
    await routes.open()
    try:
        yield routes
    finally:
        await routes.close()


@pytest.fixture
async def one(place: Place, clock: VirtualClock) -> AsyncIterator[Routes]:
    async with opened(open_routes(place.url, clock)) as routes:
        yield routes


@pytest.fixture
async def other(place: Place, one: Routes, clock: VirtualClock) -> AsyncIterator[Routes]:
    """Another gateway's, on the same store."""
    del one
    async with opened(open_routes(place.url, clock)) as routes:
        yield routes


async def test_a_route_that_one_gateway_laid_is_found_by_another_at_once(one: Routes, other: Routes) -> None:
    for number in range(20):
        laid = await one.lay(ADA, "reports", f"r-{number}", TTL, f"tsk_{number:032}")
        assert await other.find(ADA, laid.id) == laid
        assert await other.lay(ADA, "reports", f"r-{number}", TTL, ONE) == laid


async def test_of_two_gateways_that_are_given_one_task_for_two_owners_one_has_it(one: Routes, other: Routes) -> None:
    for number in range(10):
        calls = (
            one.lay(ADA, "reports", f"r-{number}", TTL, f"tsk_a{number:031}"),
            other.lay(BOB, "reports", f"r-{number}", TTL, f"tsk_b{number:031}"),
        )
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["Route", "RouteTaken"]


async def test_two_gateways_that_lay_many_in_two_orders_do_not_wait_for_each_other(one: Routes, other: Routes) -> None:
    tasks = [f"r-{number}" for number in range(100)]

    async def lay_all(routes: Routes, mark: str, tasks: list[str]) -> dict[str, Route]:
        ids = [f"tsk_{mark}{task}" for task in tasks]
        laid = await asyncio.gather(
            *(routes.lay(ADA, "reports", task, TTL, each) for task, each in zip(tasks, ids, strict=True))
        )
        return dict(zip(tasks, laid, strict=True))

    first, second = await asyncio.gather(lay_all(one, "a", tasks), lay_all(other, "b", tasks[::-1]))
    assert first == second
    assert await one.count() == len(tasks)


async def test_what_two_gateways_are_told_at_once_ends_as_the_one_who_heard_of_the_end_has_it(
    one: Routes, other: Routes
) -> None:
    ids = [f"tsk_{number:032}" for number in range(50)]
    await asyncio.gather(*(one.lay(ADA, "reports", each, TTL, each) for each in ids))
    await asyncio.gather(
        *(one.update(each, ttl_ms=9 * TTL, ended=True) for each in ids),
        *(other.update(each, ttl_ms=2 * TTL, ended=False) for each in reversed(ids)),
    )
    found = await other.find_many(ADA, ids)
    assert {(route.expires_at, route.ended_at) for route in found.values()} == {(NOW + 9 * TTL, NOW)}


async def test_two_gateways_that_purge_at_once_delete_each_route_once(
    one: Routes, other: Routes, clock: VirtualClock
) -> None:
    ids = [f"tsk_{number:032}" for number in range(40)]
    await asyncio.gather(*(one.lay(ADA, "reports", each, TTL, each) for each in ids))
    await asyncio.gather(*(one.update(each, ttl_ms=TTL, ended=True) for each in ids))
    clock.advance(TTL)
    assert sum(await asyncio.gather(*(each.purge(15, 0) for each in (one, other, one, other)))) == 40
    assert await other.count() == 0


async def test_two_gateways_that_ask_at_once_ask_about_each_doubtful_route_once(
    one: Routes, other: Routes, clock: VirtualClock
) -> None:
    ids = [f"tsk_{number:032}" for number in range(40)]
    await asyncio.gather(*(one.lay(ADA, "reports", each, TTL, each) for each in ids))
    clock.advance(TTL)
    got = await asyncio.gather(*(each.take_doubtful(15, TTL) for each in (one, other, one, other)))
    left = [*await one.take_doubtful(40, TTL)]
    assert sorted([*left, *(each for part in got for each in part)]) == ids


async def test_tasks_and_routes_lie_side_by_side(place: Place, one: Routes, clock: VirtualClock) -> None:
    store = place.store(clock)
    await store.open()
    task = await store.create(new_task())
    laid = await one.lay(ADA, "reports", task.id, TTL, task.id)
    assert await store.get(ADA, task.id) == task
    assert await one.find(ADA, task.id) == laid
    await store.close()


async def test_a_snapshot_that_is_no_news_writes_nothing(place: Place, one: Routes) -> None:
    await one.lay(ADA, "reports", "r-1", TTL, ONE)
    await one.update(ONE, ttl_ms=TTL, ended=True)
    before = await place.version()
    for ended in (True, False):
        await one.update(ONE, ttl_ms=TTL, ended=ended)
    await one.update(TWO, ttl_ms=TTL, ended=True)
    assert await one.purge(10, 0) == 0
    assert await one.take_doubtful(10, 0) == {}
    assert await place.version() == before


async def test_what_was_closed_says_so_and_may_be_opened_again(place: Place, clock: VirtualClock) -> None:
    routes = open_routes(place.url, clock)
    for _ in range(2):
        for call in (routes.find(ADA, ONE), routes.lay(ADA, "reports", "r-1", TTL, ONE), routes.count()):
            with pytest.raises(StoreUnavailable):
                await call
        async with opened(routes):
            await routes.lay(ADA, "reports", "r-1", TTL, ONE)
            await routes.close()
            await routes.open()
            assert (await routes.find(ADA, ONE)).backend_task_id == "r-1"


async def test_time_is_real_unless_somebody_says_otherwise(place: Place) -> None:
    for routes in (MemoryRoutes(), open_routes(place.url)):
        async with opened(routes):
            laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
            assert laid.created_at > NOW - 10 * 366 * 86_400_000
            assert await routes.purge(10, 0) == 0


# -- what may befall a gateway -----------------------------------------------------------------------------------------

LAY_AND_DIE = """
import asyncio, os, signal, sys
from perdure.domain.model import Owner
from perdure.ops.stores import open_routes

async def main():
    routes = open_routes(sys.argv[1])
    await routes.open()
    laid = await routes.lay(Owner("acme", "ada"), "reports", "r-1", None, sys.argv[2])
    print(laid.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_route_that_was_laid_outlives_a_kill_that_comes_right_after(place: Place, one: Routes) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LAY_AND_DIE, place.url, ONE, stdout=subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(child.communicate(), PATIENCE)
    assert (child.returncode, output.decode().strip()) == (-signal.SIGKILL, ONE)
    assert (await one.find(ADA, ONE)).backend_task_id == "r-1"
    with pytest.raises(RouteTaken):
        await one.lay(BOB, "reports", "r-1", TTL, TWO)


async def test_a_route_that_was_laid_survives_the_loss_of_power(
    connections: dict[str, sqlite3.Connection], path: Path
) -> None:
    async with opened(SQLiteRoutes(f"sqlite:///{path}")):
        full = 2
        assert connections["writer"].execute("PRAGMA synchronous").fetchone() == (full,)
        assert connections["writer"].execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connections["reader"].execute("DELETE FROM route")


def remove(file: Path) -> None:
    file.unlink()


async def test_nothing_is_written_into_a_file_that_is_gone(path: Path) -> None:
    async with opened(SQLiteRoutes(f"sqlite:///{path}")) as routes:
        await routes.lay(ADA, "reports", "r-1", TTL, ONE)
        remove(path)
        with pytest.raises(StoreUnavailable):
            await routes.lay(ADA, "reports", "r-2", TTL, TWO)


async def test_a_file_that_can_not_be_read_is_told(
    connections: dict[str, sqlite3.Connection], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(SQLiteRoutes(f"sqlite:///{path}")) as routes:
        connections["reader"].close()
        with pytest.raises(StoreUnavailable):
            await routes.find(ADA, ONE)
    assert "The task store could not be read" in caplog.text


async def test_what_can_not_be_opened_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> sqlite3.Connection:
        raise StoreUnusable("no")

    routes = SQLiteRoutes(f"sqlite:///{path}")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "connect_reader", refuse)
        with pytest.raises(StoreUnusable, match="no"):
            await routes.open()
    with pytest.raises(StoreUnavailable):
        await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    async with opened(routes):
        assert await routes.count() == 0


async def test_a_database_without_the_table_says_what_to_run(empty_database: str) -> None:
    with pytest.raises(StoreUnusable, match="perdure migrate"):
        await PostgresRoutes(empty_database).open()


async def test_a_row_that_was_damaged_is_never_served_and_others_are(
    path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(SQLiteRoutes(f"sqlite:///{path}", clock)) as routes:
        await routes.lay(ADA, "reports", "r-1", TTL, ONE)
        good = await routes.lay(ADA, "reports", "r-2", TTL, TWO)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE route SET backend_task_id = CAST(x'72ff' AS TEXT) WHERE backend_task_id = 'r-1'")
        with pytest.raises(Unreadable):
            await routes.find(ADA, ONE)
        with pytest.raises(Unreadable):
            await routes.update(ONE, ttl_ms=None, ended=True)
        assert await routes.find_many(ADA, [ONE, TWO]) == {TWO: good}
        clock.advance(TTL)
        assert set(await routes.take_doubtful(10, TTL)) == {TWO}
        assert await routes.take_doubtful(10, TTL) == {}
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert ONE not in caplog.text


# -- files of the release before ---------------------------------------------------------------------------------------


async def test_a_file_of_the_schema_before_gets_the_table_and_keeps_its_tasks(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(f"sqlite:///{path}", clock)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:4])
        await store.open()
        task = await store.create(new_task())
        await store.close()
    async with opened(SQLiteRoutes(f"sqlite:///{path}", clock)) as routes:
        laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
        assert await routes.find(ADA, ONE) == laid
    await store.open()
    assert await store.get(ADA, task.id) == task
    await store.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:4])
        with pytest.raises(StoreUnusable, match="schema version 5, and this Perdure knows versions up to 4: upgrade"):
            await store.open()
