"""PostgreSQL for tests: one server for each process that runs tests, one database for each test.

The server starts when the first test asks for it and stays as it is: a test that restarts it, pauses it, or changes its
settings makes a `Cluster` of its own. A database is a copy of one that was migrated once. It is dropped some tests
later, whoever is still connected to it then.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, TypeVar

import pytest

from perdure.store.postgres import PostgresUpgrade
from perdure.testing.postgresql import Bouncer, Cluster, ProgramMissing

_TEMPLATE: Final = "migrated"
_KEPT: Final = 8
_numbers: Final = count(1)
_Program = TypeVar("_Program")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """The server, for all tests of this process. It is not durable, and faster for it."""
    with _installed(lambda: Cluster(durable=False)) as cluster:
        yield cluster


@pytest.fixture
def empty_database(postgres: Cluster) -> str:
    """The URL of a database of the test's own, without any tables."""
    return _fresh(postgres, None)


@pytest.fixture
def database(postgres: Cluster, migrated: str) -> str:
    """The URL of a database of the test's own, migrated and empty."""
    return _fresh(postgres, migrated)


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
