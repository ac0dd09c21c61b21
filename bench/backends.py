"""What `bench.store` needs of a database besides the `Store` protocol, one class for each kind.

A backend makes stores, fills one with tasks that are long over, and measures what lies beneath it: how fast the
database makes one small row durable by itself, and what a claim costs without its commit.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from perdure.domain import ids
from perdure.domain.model import Demand
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore, claims, schema
from perdure.store.sqlite.writer import Transaction

__all__ = ["BACKENDS", "Backend"]

_BATCH: Final = 20_000


class Backend(Protocol):
    """A database to measure, with its stores in one place."""

    def store(self, name: str, *, grouped: bool = True) -> Store:
        """The store of that name, not opened yet. Not `grouped`: one transaction for each operation."""
        ...

    def fill(self, name: str, finished: int) -> None:
        """Copy the one task in a closed store until there are `finished`."""
        ...

    def claims(self, name: str, session_id: str, handler: str) -> Callable[[], float]:
        """A call that claims a run and undoes it, without a commit; its value is the seconds of the claim alone."""
        ...

    def bare_inserts(self, count: int) -> float:
        """Rows a second that the database makes durable without us, one insert a transaction, one after the other."""
        ...


class SQLite:
    """Each store is a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, name: str, *, grouped: bool = True) -> Store:
        url = f"sqlite:///{self._path(name)}"
        return SQLiteStore(url) if grouped else SQLiteStore(url, max_batch=1)

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

    def claims(self, name: str, session_id: str, handler: str) -> Callable[[], float]:
        connection, demands = schema.connect_writer(self._path(name)), (Demand(handler, 1),)

        def claim() -> float:
            with _undone(connection):
                started = time.perf_counter()
                taken = claims.claim(Transaction(connection), session_id, demands, 1, int(time.time() * 1000))
                seconds = time.perf_counter() - started
            assert len(taken) == 1
            return seconds

        return claim

    def bare_inserts(self, count: int) -> float:
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


BACKENDS: Final[Mapping[str, Callable[[Path], Backend]]] = MappingProxyType({"sqlite": SQLite})
"""By the name that `--store` takes."""
