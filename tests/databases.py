"""PostgreSQL for tests: one server for each process that runs tests, one database for each test.

The server starts when the first test asks for it and stays as it is: a test that restarts it, pauses it, or changes its
settings makes a `Cluster` of its own. A database is a copy of one that was migrated once. It is dropped some tests
later, whoever is still connected to it then. Copying takes a tenth of a second, so the many tests that only write rows
have one database in turns, and it is emptied before each.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, TypeVar

import pytest

from perdure.store.postgres import PostgresUpgrade
from perdure.store.postgres.url import parse
from perdure.testing.postgresql import Bouncer, Cluster, ProgramMissing
from tests.support import PATIENCE

_TEMPLATE: Final = "migrated"
_KEPT: Final = 8
_TABLES: Final = ("run", "task", "session", "input", "entry", "event", "tombstone", "route")
# Whoever was left within a transaction may hold locks; a pooler keeps the others. The numbers begin anew, so that a
# failure looks the same each time.
_EMPTY: Final = "; ".join([
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'",
    *(f"DELETE FROM perdure.{table}" for table in _TABLES),
    "SELECT setval(pg_get_serial_sequence('perdure.task', 'seq'), 1, false), setval('perdure.fence', 1, false)",
])  # fmt: skip
_numbers: Final = count(1)
_Program = TypeVar("_Program")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """The server, for all tests of this process. It is not durable, and faster for it."""
    with _installed(lambda: Cluster(durable=False)) as cluster:
        # A password of the newer kind costs the server milliseconds at each of the many connections, by design.
        cluster.sql(f"SET password_encryption = 'md5'; ALTER USER postgres PASSWORD '{cluster.password}'")
        yield cluster


@pytest.fixture
def empty_database(postgres: Cluster) -> str:
    """The URL of a database of the test's own, without any tables."""
    return _fresh(postgres, None)


@pytest.fixture
def database(postgres: Cluster, migrated: str) -> str:
    """The URL of a database of the test's own, migrated and empty."""
    return _fresh(postgres, migrated)


@pytest.fixture
def emptied_database(shared: "Shared") -> str:
    """The URL of a database that is migrated and empty, for a test that changes nothing but rows."""
    return shared.emptied()


class Shared:
    """A database that tests have in turns, and a connection that empties it, on an event loop of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        own = parse(f"{url}?application_name=tests")  # what a test does to the connections of a store spares it
        self._connection = self._loop.run_until_complete(own.connect_directly(PATIENCE))

    def emptied(self) -> str:
        self._loop.run_until_complete(self._connection.execute(_EMPTY))
        return self._url

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="session")
def shared(postgres: Cluster, migrated: str) -> Iterator[Shared]:
    made = Shared(postgres.create_database("shared", migrated))
    yield made
    made.close()


@pytest.fixture(scope="session")
def migrated(postgres: Cluster) -> str:
    """The name of the database that the others are copies of."""
    upgrade = PostgresUpgrade(postgres.create_database(_TEMPLATE))
    asyncio.run(upgrade.apply(post=True))
    return _TEMPLATE


@pytest.fixture(scope="session")
def pgbouncer(postgres: Cluster) -> Iterator[Bouncer]:
    """PgBouncer in transaction mode, in front of that server: `pgbouncer.through(database)` is the URL."""
    with _installed(lambda: Bouncer(postgres)) as bouncer:
        yield bouncer


def _fresh(cluster: Cluster, template: str | None) -> str:
    """Another database, for the one handed out some tests ago: a test may use several."""
    number = next(_numbers)
    return cluster.create_database(f"test_{number}", template, instead_of=f"test_{number - _KEPT}")


def _installed(make: Callable[[], _Program]) -> _Program:
    """What needs a program that has to be there: tests without it would be tests that are not run."""
    try:
        return make()
    except ProgramMissing as missing:
        line = str(missing)
    pytest.fail(line, pytrace=False)
