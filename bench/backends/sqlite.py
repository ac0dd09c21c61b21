"""SQLite: each store is a file."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final, Self

from perdure.domain import ids
from perdure.domain.model import Demand
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore, claims, schema
from perdure.store.sqlite.writer import Transaction

from .base import Targets

__all__ = ["SQLite"]

_BATCH: Final = 20_000


class SQLite:
    """Each store is a file in `folder`. What does not wait for the disk is undone without a commit."""

    targets = Targets(creates=10_000, claims=5_000, finished=(1_000_000,))
    without_disk = "claim without commit"
    server = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe(self) -> str:
        return ""

    def store(self, name: str, *, grouped: bool = True) -> Store:
        url = f"sqlite:///{self._path(name)}"
        return SQLiteStore(url) if grouped else SQLiteStore(url, max_batch=1)

    def remove(self, name: str) -> None:
        for path in self._folder.glob(f"{name}.db*"):
            path.unlink()

    def fill(self, name: str, finished: int) -> None:
        with closing(sqlite3.connect(self._path(name), isolation_level=None)) as connection:
            # The unique index takes ids in random order: without a cache that holds it, this takes many times as long.
            connection.executescript("PRAGMA cache_size = -262144; PRAGMA synchronous = OFF;")
            copy, (template,) = _copy(connection), connection.execute("SELECT max(seq) FROM task").fetchone()
            for start in range(1, finished, _BATCH):
                count = min(_BATCH, finished - start)
                connection.execute("BEGIN")
                connection.executemany(copy, ((ids.mint(secrets.token_bytes), template) for _ in range(count)))
                connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @asynccontextmanager
    async def claims(self, name: str, session_id: str, handler: str) -> AsyncGenerator[Callable[[], Awaitable[float]]]:
        demands = (Demand(handler, 1),)
        with closing(schema.connect_writer(self._path(name))) as connection:

            async def claim() -> float:
                with _undone(connection):
                    started = time.perf_counter()
                    taken = claims.claim(Transaction(connection), session_id, demands, 1, int(time.time() * 1000))
                    seconds = time.perf_counter() - started
                assert len(taken) == 1
                return seconds

            yield claim

    async def bare_inserts(self, count: int) -> float:
        # A table with a key and a unique id, under the settings that the store has.
        path = self._path("bare")
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
            connection.execute("CREATE TABLE task (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, params TEXT)")
            started = time.perf_counter()
            for _ in range(count):
                connection.execute("INSERT INTO task (id, params) VALUES (?, '{}')", (ids.mint(secrets.token_bytes),))
            return count / (time.perf_counter() - started)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


def _copy(connection: sqlite3.Connection) -> str:
    """A statement that copies a row of `task` under another id, whatever columns there are by now."""
    names = [name for _, name, *_ in connection.execute("PRAGMA table_info(task)")]
    rest = ", ".join(name for name in names if name not in ("seq", "id"))
    return f"INSERT INTO task (id, {rest}) SELECT ?, {rest} FROM task WHERE seq = ?"


@contextmanager
def _undone(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
