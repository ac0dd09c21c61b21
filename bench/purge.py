"""What deleting a million expired tasks costs those who ask meanwhile.

A store is filled with finished tasks, each with an entry of the journal, an answered question and an event, and with
some that live. A server of its own process is polled for these by a timetable: first while nothing has expired, then,
after a restart, while its janitor deletes all the others. What counts is the p99 of `tasks/get` during the purge, from
its beginning to its end, beside the p99 before it.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Final, Protocol

import asyncpg

from . import load, report
from .backends.postgresql import PostgreSQL
from .processes import Server
from .replicas import replica

TARGET: Final = 2.0
"""Times what `tasks/get` takes when there is nothing to delete."""
_WORKING: Final = b'"resultType":"complete"'
_TASK: Final = b'"resultType":"task"'
_CONNECTIONS: Final = 8
_WINDOW: Final = 2.0
"""Seconds of polls between two looks at what is left."""
_WITHIN: Final = 1800.0


class Database(Protocol):
    """Where the tasks lie."""

    @property
    def url(self) -> str: ...

    def fill(self, count: int) -> None:
        """Make so many finished tasks that expire in a day, with what belongs to them."""
        ...

    def expire(self) -> None:
        """Let their time have run out an hour ago."""
        ...

    def left(self) -> int:
        """How many of them there are; 2 stands for more than one."""
        ...


_COPIES: Final = """
WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < :count)
INSERT INTO task (id, tenant, principal, method, name, params, status, version, created_at, updated_at, ttl_ms,
                  expires_at, accepts, handler_version, result)
SELECT 'tsk_' || lower(hex(randomblob(16))), '', 'bench', 'tools/call', 'short', '{"arguments":{}}', 'completed', 3,
       :now, :now, 86400000, :now + 86400000, '', '', '{"content":[{"type":"text","text":"done"}],"isError":false}'
FROM copy"""
_BELONGINGS: Final = (
    "INSERT INTO entry SELECT seq, '0', 'step', 'fetch', 'done', '{\"rows\":17}', NULL FROM task WHERE name = 'short'",
    "INSERT INTO input (task_seq, key, position, request, response, state, issued_at) SELECT seq, 'ok', 0, '{}', '{}', "
    "'answered', 0 FROM task WHERE name = 'short'",
    "INSERT INTO event SELECT seq, 0, 0, 'retry', 'failed once' FROM task WHERE name = 'short'",
)
_EXPIRE: Final = "UPDATE {}task SET expires_at = expires_at - 90000000 WHERE name = 'short'"
_LEFT: Final = "SELECT count(*) FROM (SELECT 1 FROM {}task WHERE name = 'short' LIMIT 2) AS counted"


class SQLite:
    """One file, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "purge.db"
        self.url = f"sqlite:///{self._path}"

    def fill(self, count: int) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.executescript("PRAGMA cache_size = -262144; PRAGMA synchronous = OFF; BEGIN")
            connection.execute(_COPIES, {"count": count, "now": int(time.time() * 1000)})
            for statement in _BELONGINGS:
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def expire(self) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA cache_size = -262144; {_EXPIRE.format('')}; PRAGMA wal_checkpoint(TRUNCATE)"
            )

    def left(self) -> int:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute(_LEFT.format("")).fetchone()
        return count


class Postgres:
    """One database of a private server."""

    def __init__(self, server: PostgreSQL) -> None:
        self.url = server.url("purge")

    def fill(self, count: int) -> None:
        copies = _COPIES.partition("INSERT")[2].replace("INTO task", "INSERT INTO perdure.task")
        copies = copies.replace("lower(hex(randomblob(16)))", "md5(n::text || random()::text)")
        copies = copies.replace(":now", str(int(time.time() * 1000)))
        belongings = [
            statement.replace("INTO ", "INTO perdure.").replace("FROM task", "FROM perdure.task")
            for statement in _BELONGINGS
        ]
        self._run(copies.replace("FROM copy", f"FROM generate_series(1, {count}) AS copy (n)"), *belongings)
        self._run("VACUUM (ANALYZE)", "CHECKPOINT")

    def expire(self) -> None:
        self._run(_EXPIRE.format("perdure."), "VACUUM (ANALYZE)", "CHECKPOINT")

    def left(self) -> int:
        return self._run(_LEFT.format("perdure.")) or 0

    def _run(self, *statements: str) -> int | None:
        """Each by itself; the value that the last one gives."""

        async def run() -> int | None:
            connection = await asyncpg.connect(self.url)
            try:
                *first, last = statements
                for statement in first:
                    await connection.execute(statement, timeout=_WITHIN)
                return await connection.fetchval(last, timeout=_WITHIN)
            finally:
                await connection.close()

        return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Bench:
    """What `main` was told. `rate`: polls a second; `seconds`: of polling before the purge."""

    tasks: int
    live: int
    rate: float
    seconds: float

    def measure(self, database: Database, folder: Path) -> tuple[list[float], list[float], float]:
        """Seconds of each poll before the purge and during it, and how long that took."""
        with replica(database.url, folder, "serve", "--port", "0", "--no-worker") as server:
            ids = asyncio.run(_made(server, self.live))
        report.say(f"filling with {self.tasks:,} tasks")
        database.fill(self.tasks)
        with replica(database.url, folder, "serve", "--port", "0", "--no-worker") as server:
            self._poll(server, ids)
            before = self._poll(server, ids, self.seconds)
        database.expire()
        assert database.left(), "there must be something to delete"
        with replica(database.url, folder, "serve", "--port", "0", "--no-worker") as server:
            during, started = list[float](), time.perf_counter()
            while database.left():
                during += self._poll(server, ids)
                if time.perf_counter() - started > _WITHIN:
                    raise TimeoutError("the janitor does not come to an end")
            return before, during, time.perf_counter() - started

    def _poll(self, server: Server, ids: Sequence[str], seconds: float = _WINDOW) -> list[float]:
        asked = itertools.islice(itertools.cycle(map(load.get, ids)), int(self.rate * seconds))

        async def poll() -> list[load.Answer]:
            async with load.connected(server.port, _CONNECTIONS) as client:
                return await client.paced(list(asked), _WORKING, self.rate)

        return [answer.read - answer.sent for answer in asyncio.run(poll())]


async def _made(server: Server, count: int) -> list[str]:
    async with load.connected(server.port, _CONNECTIONS) as client:
        made = await client.all(itertools.repeat(load.call("ask"), count), _TASK)
    return [task["taskId"] for task in made]


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98]


@contextmanager
def database(kind: str, folder: Path) -> Generator[Database]:
    if kind == "sqlite":
        yield SQLite(folder)
    else:
        with PostgreSQL(folder) as server:
            yield Postgres(server)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="that expire")
    parser.add_argument("--live", type=int, default=50, help="that are polled")
    parser.add_argument("--rate", type=float, default=100.0, help="polls a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of polling before the purge")
    options = parser.parse_args(arguments)
    bench = Bench(options.tasks, options.live, options.rate, options.seconds)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as notes,
        database(options.store, Path(folder)) as filled,
    ):
        before, during, seconds = bench.measure(filled, Path(notes))
    lines = [
        report.measured("tasks/get before", report.latencies(before)),
        report.measured("tasks/get during the purge", f"{report.latencies(during)}, worst {max(during) * 1e3:.0f} ms"),
        report.measured("purge", f"{seconds:.0f} s, {options.tasks / seconds:,.0f} tasks/s"),
        report.at_most("p99 during, times before", [_p99(during) / _p99(before)], TARGET, "{:.2f}".format),
    ]
    title = f"Purge: {options.tasks:,} expired tasks on {options.store}, {options.rate:g} polls/s of {options.live}"
    return report.conclude(title, lines, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
