"""Servers with a fault."""

from collections.abc import Iterator

import pytest

from perdure.testing.postgresql import Cluster


@pytest.fixture(scope="session")
def strict() -> Iterator[Cluster]:
    """A server with few connections, which wants passwords, and has a socket in its own folder."""
    settings = {
        "max_connections": 6,
        "superuser_reserved_connections": 1,
        "max_wal_senders": 2,
        "unix_socket_directories": ".",
    }
    with Cluster(durable=False, auth="scram-sha-256", settings=settings) as cluster:
        cluster.sql("CREATE ROLE ada LOGIN PASSWORD 'sword:fi@s/h'; CREATE DATABASE tasks OWNER ada")
        cluster.sql("CREATE ROLE bob LOGIN PASSWORD 'hush' CONNECTION LIMIT 1")
        yield cluster
