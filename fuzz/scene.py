"""A server on a copy of the ground, and every exchange with it judged.

The tasks that lie there from the start are put back after each case that changed one, so that no case depends on those
before it, and what is found can be made smaller. The server runs no tasks itself unless it is told to, or they would
change by themselves.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from . import oracle
from .http import ANSWERED_WITHIN, Hang, Reply, exchange
from .oracle import Found, Rows
from .people import PEOPLE, Person
from .server import APP, MOST_MEMORY, Server, serving

__all__ = ["Scene", "scene"]

_TABLES: Final = {
    "task": ("seq", "seq"),
    "run": ("task_seq", "task_seq"),
    "input": ("task_seq", "task_seq || ' ' || key"),
    "entry": ("task_seq", "task_seq || ' ' || place"),
    "event": ("task_seq", "task_seq || ' ' || position"),
}
"""Whose rows belong to a task: the column that says to which, and what tells them apart."""
_NOBODYS: Final = ("counter", "tombstone")
_BUSY: Final = 10.0
_HEALTH: Final = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nconnection: close\r\n\r\n"


class Scene:
    """`send` is the one way in. `strict`: nothing changes by itself."""

    def __init__(self, server: Server, path: Path, ground: Path, *, strict: bool) -> None:
        self.server = server
        self.strict = strict
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("ATTACH ? AS ground", (str(ground),))
        (self._last,) = self._one("SELECT max(seq) FROM ground.task")
        self._owners = self._owned()
        self._before = self._rows()
        self._version = self._one("PRAGMA main.data_version")
        self._unheard = b""
        """What was sent before, if its client hung up: what it wrote may be committed only now."""
        self.within = ANSWERED_WITHIN
        """Seconds for an answer."""
        self.sent = b""
        """What was sent last."""
        self.memory: dict[str, Any] = {}
        """What a target knows of the cases before."""

    def close(self) -> None:
        self._connection.close()

    def send(self, content: bytes, *, whole: bool = True) -> list[Reply]:
        """As `http.exchange`, judged.

        Raises:
            Found: a rule does not hold.
        """
        self.sent = content
        try:
            came, replies = exchange(self.server.port, content, whole=whole, within=self.within)
            if not whole:  # what it has to say of that is in the log once it has answered something else
                exchange(self.server.port, _HEALTH)
        except Hang as hang:
            raise Found("every request is answered", hang) from None
        except OSError as error:
            raise Found("the server stays up", f"{error!r}: {self.server.complaints()}") from None
        self._judge_server(mute=whole and not came)
        oracle.judge_replies(content, came, replies)
        if self.strict:
            self._judge_store(content, replies)
        self._unheard = b"" if replies else content
        return replies

    def judge_memory(self) -> None:
        """The server has not swollen.

        Raises:
            Found: it has.
        """
        grown = self.server.grown()
        if grown > MOST_MEMORY:
            raise Found("memory is bounded", f"{grown >> 20} MiB more than at the start")

    def _judge_server(self, *, mute: bool) -> None:
        gone = self.server.gone() if mute else not self.server.alive
        said = self.server.complaints()
        if gone:
            raise Found("the server stays up", said)
        if said:
            raise Found("the server has nothing to complain about", said)

    def _judge_store(self, content: bytes, replies: list[Reply]) -> None:
        version = self._one("PRAGMA main.data_version")
        if version == self._version:
            return
        self._version = version
        before, after = self._before, self._rows()
        if after != before:
            self._restore(before, after)
            self._before = self._rows()
            oracle.judge_changes(self._unheard + content, [] if self._unheard else replies, before, after)

    def _restore(self, before: Rows, after: Rows) -> None:
        """Put back what the last case has changed of the ground."""
        changed = [table for table in _TABLES if before[table] != after[table]]
        self._connection.execute("BEGIN IMMEDIATE")
        for table in changed:
            seq, _ = _TABLES[table]
            self._connection.execute(f"DELETE FROM main.{table} WHERE {seq} <= ?", (self._last,))
            self._connection.execute(f"INSERT INTO main.{table} SELECT * FROM ground.{table}")
        self._connection.execute("COMMIT")

    def _rows(self) -> Rows:
        """All that lies there, but for leases; of later tasks only how many there are."""
        found: dict[str, dict[object, tuple[Person | None, object]]] = {
            table: {
                row[0]: (self._owners.get(row[1]), row[2:])
                for row in self._all(f"SELECT {key}, {seq}, * FROM main.{table} WHERE {seq} <= ?", self._last)
            }
            for table, (seq, key) in _TABLES.items()
        }
        found |= {table: {row: (None, row) for row in self._all(f"SELECT * FROM main.{table}")} for table in _NOBODYS}
        later = self._all("SELECT principal, count(*) FROM main.task WHERE seq > ? GROUP BY principal", self._last)
        return found | {"later": {principal: (_person(principal), count) for principal, count in later}}

    def _owned(self) -> dict[int, Person]:
        found = self._all("SELECT seq, principal FROM ground.task")
        return {seq: owner for seq, principal in found if (owner := _person(principal)) is not None}

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _one(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement, values).fetchone()


def _person(principal: str) -> Person | None:
    return next((one for one in PEOPLE if f'"{one.name}"' in principal), None)


@contextmanager
def scene(folder: Path, ground: Path, *, strict: bool = True, app: str = APP) -> Generator[Scene]:
    """A scene in `folder`, on a copy of `ground`."""
    path = folder / "tasks.db"
    shutil.copyfile(ground, path)
    options = ["--no-worker"] if strict else []
    with (
        serving(path, folder / "server.log", *options, app=app) as server,
        closing(Scene(server, path, ground, strict=strict)) as up,
    ):
        yield up
