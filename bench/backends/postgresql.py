"""PostgreSQL: a private server on the same disk as everything else, each store a database of it.

It is durable as a production server is: `fsync`, `synchronous_commit` and `full_page_writes` are on, autovacuum runs,
and nothing but what `SETTINGS` says differs from the defaults. The server shares the processors with us, so what it
uses is part of every figure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import asyncpg

from perdure.domain import ids
from perdure.domain.model import Demand
from perdure.store.base import Store
from perdure.store.postgres import PostgresStore, PostgresUpgrade
from perdure.testing.postgresql import Cluster

from .base import Targets

__all__ = ["SETTINGS", "PostgreSQL", "Server", "new_cluster"]

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "shared_buffers": "512MB",
        "effective_cache_size": "2GB",
        "max_wal_size": "4GB",
        "random_page_cost": "1.1",
    }
)
"""What a small server in production has: a part of the memory, room for the log between checkpoints, a solid disk."""

_MIGRATED: Final = "migrated"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BATCH: Final = 250_000
# As `ids.mint` makes them: 32 characters of the alphabet from 160 random bits.
_ID: Final = "'tsk_' || translate(substr(encode(sha256(uuid_send(gen_random_uuid())), 'hex'), 1, 32), '0189', 'ghij')"
_BARE: Final = "CREATE TABLE bare (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text UNIQUE, params text)"


def new_cluster(folder: Path) -> Cluster:
    """A server in `folder`, which must be empty. Its own user has to get there."""
    folder.chmod(0o711)
    return Cluster(folder / "server", settings=SETTINGS)


class Server:
    """The processor time of a server with all its backends, past and present."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cpu_seconds(self) -> float:
        return sum(_used(pid, pid == self._cluster.pid) for pid in self._cluster.pids())


class PostgreSQL:
    """A server in `folder` for the length of the block."""

    targets = Targets(creates=7_000, claims=5_000, finished=(1_000_000, 10_000_000))
    without_disk = "claim that does not wait for the disk"

    def __init__(self, folder: Path) -> None:
        self._cluster = new_cluster(folder)
        self._urls: dict[str, str] = {}
        self.server = Server(self._cluster)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            url = self._cluster.create_database(_MIGRATED)
            asyncio.run(PostgresUpgrade(url).apply(post=True))
        except BaseException:
            self._cluster.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def describe(self) -> str:
        version = self._cluster.sql("SHOW server_version")
        return f"{version}, durable, " + ", ".join(f"{name}={value}" for name, value in SETTINGS.items())

    @property
    def port(self) -> int:
        return self._cluster.port

    def url(self, name: str) -> str:
        """The database of that name, made when it is first asked for."""
        if name not in self._urls:
            self._urls[name] = self._cluster.create_database(name, _MIGRATED)
        return self._urls[name]

    def store(self, name: str, *, grouped: bool = True) -> Store:
        return PostgresStore(self.url(name)) if grouped else PostgresStore(self.url(name), max_batch=1)

    def remove(self, name: str) -> None:
        self._cluster.drop_database(name)
        del self._urls[name]

    def fill(self, name: str, finished: int) -> None:
        asyncio.run(_fill(self.url(name), finished))

    @asynccontextmanager
    async def claims(self, name: str, session_id: str, handler: str) -> AsyncGenerator[Callable[[], Awaitable[float]]]:
        store = PostgresStore(f"{self.url(name)}?synchronous_commit=off")
        logging.disable(logging.WARNING)  # it would warn of the very thing that is wanted
        try:
            await store.open()
        finally:
            logging.disable(logging.NOTSET)
        try:

            async def claim() -> float:
                started = time.perf_counter()
                (taken,) = await store.claim(session_id, (Demand(handler, 1),), 1)
                seconds = time.perf_counter() - started
                await store.release(taken)
                return seconds

            yield claim
        finally:
            await store.close()

    async def bare_inserts(self, count: int) -> float:
        connection = await asyncpg.connect(self._cluster.url())
        try:
            await connection.execute(f"DROP TABLE IF EXISTS bare; {_BARE}")
            insert = await connection.prepare("INSERT INTO bare (id, params) VALUES ($1, '{}')")
            started = time.perf_counter()
            for _ in range(count):
                await insert.fetch(ids.mint(secrets.token_bytes))
            return count / (time.perf_counter() - started)
        finally:
            await connection.close()

    @asynccontextmanager
    async def snapshot(self, name: str) -> AsyncGenerator[None]:
        """Another connection, whose transaction sees the database as it is now for the length of the block."""
        connection = await asyncpg.connect(self.url(name))
        try:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await connection.fetch("SELECT count(*) FROM perdure.session")
            yield
            await connection.execute("COMMIT")
        finally:
            await connection.close()


async def _fill(url: str, finished: int) -> None:
    """Without the other indexes at first: ids come in random order, and sorting them once takes less time."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '512MB'")
        indexes = await _without_indexes(connection)
        copy = await _copy(connection)
        for start in range(1, finished, _BATCH):
            await connection.execute(copy, min(_BATCH, finished - start))
        for definition in indexes:
            await connection.execute(definition)
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _without_indexes(connection: asyncpg.Connection[Any]) -> list[str]:
    """Drop what indexes `task` has besides its key; the statements that make them again."""
    found = await connection.fetch(
        """SELECT c.relname, pg_get_indexdef(i.indexrelid) AS definition, conname, pg_get_constraintdef(k.oid) AS rule
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid LEFT JOIN pg_constraint k ON conindid = i.indexrelid
           WHERE indrelid = 'perdure.task'::regclass AND NOT indisprimary"""
    )
    again: list[str] = []
    for name, definition, constraint, rule in found:
        if constraint is None:
            await connection.execute(f"DROP INDEX perdure.{name}")
            again.append(definition)
        else:
            await connection.execute(f"ALTER TABLE perdure.task DROP CONSTRAINT {constraint}")
            again.append(f"ALTER TABLE perdure.task ADD CONSTRAINT {constraint} {rule}")
    return again


async def _copy(connection: asyncpg.Connection[Any]) -> str:
    """A statement that makes so many copies of the first task, each with an id of its own."""
    found = await connection.fetch(
        """SELECT attname FROM pg_attribute WHERE attrelid = 'perdure.task'::regclass AND attnum > 0
           AND NOT attisdropped AND attname NOT IN ('seq', 'id') ORDER BY attnum"""
    )
    rest = ", ".join(name for (name,) in found)
    return f"""INSERT INTO perdure.task (id, {rest}) SELECT {_ID}, {rest}
               FROM perdure.task, generate_series(1, $1::int) WHERE seq = (SELECT min(seq) FROM perdure.task)"""


def _used(pid: int, with_children: bool) -> float:
    with suppress(OSError):  # it has ended, and is one of its parent's past children by now
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11 : 15 if with_children else 13])) / _TICKS
    return 0.0
