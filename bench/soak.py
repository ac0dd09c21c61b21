"""Half an hour at half of what a server can do, with tasks that live for a minute: is everything flat at the end?

First the server is driven as hard as it goes, for the rate at which it creates, runs and is asked for tasks. Then it
gets half of that by a timetable. Each task is created, and asked for once, a while later. Every so often is noted what
the store takes on the disk, how many rows there are and how many are dead, what the processes take in memory and in
handles, and how long the requests took since. Flat means: the last third is no more than a tenth above the second.

With `--plot` the samples become a picture (SVG), one panel for each figure.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Protocol

import asyncpg

from . import load, report, soaking
from .backends.postgresql import PostgreSQL
from .plot import Panel, draw
from .processes import Server
from .replicas import replica

GROWTH_TARGET: Final = 1.1
"""The last third of the time beside the second."""
LATENCY_TARGET: Final = 1.5

_CONNECTIONS: Final = 16
_TASK: Final = b'"resultType":"task"'
_ANY: Final = b'"resultType":"complete"'
_SIZE: Final = 500
"""Characters of a result."""


class Database(Protocol):
    """The store under the server."""

    @property
    def url(self) -> str: ...

    def look(self) -> tuple[int, int, int]:
        """Bytes on the disk, rows of all tables, and how many rows are dead but not removed yet."""
        ...


_TABLES: Final = ("task", "run", "entry", "input", "event", "tombstone")


class SQLite:
    """One file, in `folder`. No row is ever dead there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "soak.db"
        self.url = f"sqlite:///{self._path}"

    def look(self) -> tuple[int, int, int]:
        size = sum(path.stat().st_size for path in self._path.parent.glob("soak.db*"))
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            rows = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in _TABLES)
        return size, rows, 0


_OURS: Final = "FROM pg_stat_user_tables WHERE schemaname = 'perdure'"


class Postgres:
    """One database of a private server."""

    def __init__(self, server: PostgreSQL) -> None:
        self.url = server.url("soak")

    def look(self) -> tuple[int, int, int]:
        return asyncio.run(self._look())

    async def _look(self) -> tuple[int, int, int]:
        connection = await asyncpg.connect(self.url)
        try:
            size: int = await connection.fetchval(f"SELECT sum(pg_total_relation_size(relid))::bigint {_OURS}")
            dead: int = await connection.fetchval(f"SELECT sum(n_dead_tup)::bigint {_OURS}")
            rows: list[int] = [await connection.fetchval(f"SELECT count(*) FROM perdure.{name}") for name in _TABLES]
            return size, sum(rows), dead
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True)
class Look:
    """How things stood at `at` seconds. Latencies are the p99 of the requests since the look before, in seconds."""

    at: float
    disk: int
    rows: int
    dead: int
    memory: int
    handles: int
    create: float
    get: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What `main` was told, in seconds."""

    seconds: float
    every: float
    asked_after: float
    driven: float

    def measure(self, database: Database, folder: Path) -> tuple[float, list[Look]]:
        """The rate that the server can do, and the looks at half of it."""
        with replica(database.url, folder, "serve", "--port", "0", app=soaking.__name__) as server:
            rate = asyncio.run(_full(server, self.driven))
            report.say(f"{rate:,.0f} tasks/s at full load; {rate / 2:,.0f}/s from here on")
            return rate, list(self._looks(server, database, rate / 2))

    def _looks(self, server: Server, database: Database, rate: float) -> Iterator[Look]:
        started, asked = time.monotonic(), list[tuple[float, str]]()
        while (at := time.monotonic() - started) < self.seconds:
            due = [task_id for made, task_id in asked if made + self.asked_after <= at]
            creates, gets, made = asyncio.run(_turn(server, int(rate * self.every), rate, due))
            asked = [(at, task_id) for task_id in made] + [pair for pair in asked if pair[1] not in set(due)]
            disk, rows, dead = database.look()
            at = time.monotonic() - started
            memory, handles = server.resident_bytes(), server.open_handles()
            yield Look(at, disk, rows, dead, memory, handles, _p99(creates), _p99(gets))


async def _full(server: Server, seconds: float) -> float:
    """Tasks a second that are created and asked for, as fast as it goes for so long."""
    call, begun = load.call("work", size=_SIZE), time.perf_counter()
    async with load.connected(server.port, _CONNECTIONS) as client:
        made = list[str]()
        while time.perf_counter() - begun < seconds:
            made += [task["taskId"] for task in await client.all(itertools.repeat(call, 200), _TASK)]
            await client.all(map(load.get, made[-200:]), _ANY)
    return len(made) / (time.perf_counter() - begun)


async def _turn(
    server: Server, count: int, rate: float, due: Sequence[str]
) -> tuple[list[float], list[float], list[str]]:
    """So many creates by a timetable, and a get for each that is due: seconds of each, and what was made."""
    async with (
        load.connected(server.port, _CONNECTIONS) as creator,
        load.connected(server.port, _CONNECTIONS) as poller,
    ):
        calls = [load.call("work", size=_SIZE)] * count
        pace = rate * max(1, len(due)) / count
        async with asyncio.TaskGroup() as group:
            created = group.create_task(creator.paced(calls, _TASK, rate))
            polled = group.create_task(poller.paced([*map(load.get, due)], _ANY, pace))
    creates, gets = created.result(), polled.result()
    made = [answer.result["taskId"] for answer in creates]
    return [each.read - each.sent for each in creates], [each.read - each.sent for each in gets], made


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98] if len(seconds) > 1 else 0.0


def thirds(looks: Sequence[Look], of: Callable[[Look], float]) -> float:
    """The median of the last third, in times that of the second."""
    third = len(looks) // 3
    before, last = looks[third : 2 * third], looks[2 * third :]
    return median(map(of, last)) / max(median(map(of, before)), 1e-9)


FIGURES: Final[Sequence[tuple[str, str, Callable[[Look], float], float | None]]] = (
    ("store on the disk", "MB", lambda look: look.disk / 1e6, GROWTH_TARGET),
    ("rows", "thousand", lambda look: look.rows / 1e3, GROWTH_TARGET),
    ("dead rows", "thousand", lambda look: look.dead / 1e3, None),
    ("resident memory", "MB", lambda look: look.memory / 1e6, GROWTH_TARGET),
    ("open handles", "", lambda look: look.handles, GROWTH_TARGET),
    ("create, p99", "ms", lambda look: look.create * 1e3, LATENCY_TARGET),
    ("tasks/get, p99", "ms", lambda look: look.get * 1e3, LATENCY_TARGET),
)


def lines(rate: float, looks: Sequence[Look]) -> Iterator[report.Line]:
    yield report.measured("full load", f"{rate:,.0f} tasks/s")
    for name, unit, of, target in FIGURES:
        yield report.measured(name, f"{of(looks[-1]):,.1f} {unit}".rstrip())
        if target is not None:
            yield report.at_most("  last third, times the second", [thirds(looks, of)], target, "{:.2f}".format)


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
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between looks")
    parser.add_argument("--asked-after", type=float, default=5.0, help="seconds until a task is asked for")
    parser.add_argument("--driven", type=float, default=10.0, help="seconds at full load")
    parser.add_argument("--plot", type=Path, help="where the picture goes")
    options = parser.parse_args(arguments)
    bench = Bench(options.minutes * 60, options.every, options.asked_after, options.driven)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as notes,
        database(options.store, Path(folder)) as store,
    ):
        rate, looks = bench.measure(store, Path(notes))
    title = f"Soak: {options.minutes:g} minutes at {rate / 2:,.0f} tasks/s on {options.store}, ttl 60 s"
    if options.plot is not None:
        panels = [Panel(name, unit, [(look.at / 60, of(look)) for look in looks]) for name, unit, of, _ in FIGURES]
        options.plot.write_text(draw(title, "minutes", panels), "utf-8")
    return report.conclude(title, list(lines(rate, looks)), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
