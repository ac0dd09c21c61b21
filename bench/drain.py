"""How much faster four workers drain a queue than one, on PostgreSQL.

All tasks are there, with the workers up and idle, when they become due in one commit; the clock runs until none has a
run any more. A task does next to nothing, so what is measured is the engine and the database, which share the
machine's cores. One worker and four take turns, each on a database of its own on the same server. Each call of the
tool leaves a line, and the lines are counted: none may be missing, and none be there twice.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg

from perdure.domain.model import JSONObject

from . import report
from .backends import PostgreSQL
from .quiet import Others, Turns, noise
from .replicas import notes, replica
from .workers import create

SPEEDUP_TARGET: Final = 1.6

_WITHIN: Final = 600.0
_LOOK: Final = 0.02
# The tables' statistics are what autovacuum leaves behind once so many tasks have been made.
_SET_ASIDE: Final = "CREATE TABLE aside AS TABLE perdure.run; TRUNCATE perdure.run"
_BRING_BACK: Final = "BEGIN; INSERT INTO perdure.run TABLE aside; ANALYZE perdure.run; COMMIT"


@dataclass(frozen=True, slots=True)
class Drained:
    """Tasks a second; how many were run twice or not at all; processor seconds of the workers and of the database."""

    rate: float
    repeated: int
    missing: int
    workers: float
    database: float


async def fill(backend: PostgreSQL, name: str, count: int) -> None:
    """Make the tasks, and put them where no worker sees them."""
    store = backend.store(name)
    await store.open()
    try:
        nothing: JSONObject = {}
        await create(store, "short", [nothing] * count, callers=128)
    finally:
        await store.close()
    connection = await asyncpg.connect(backend.url(name))
    try:
        await connection.execute(_SET_ASIDE)
        await connection.execute("VACUUM ANALYZE perdure.task")
    finally:
        await connection.close()


async def drain(url: str) -> float:
    """Seconds from the commit that makes them due until none is left."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        await connection.execute(_BRING_BACK)
        await connection.execute("SELECT pg_notify('perdure', '[]')")
        started = time.perf_counter()
        while await connection.fetchval("SELECT EXISTS (SELECT FROM perdure.run)"):
            if time.perf_counter() - started > _WITHIN:
                raise TimeoutError(f"tasks were left after {_WITHIN:.0f} s")
            await asyncio.sleep(_LOOK)
        return time.perf_counter() - started
    finally:
        await connection.close()


def turn(backend: PostgreSQL, name: str, folder: Path, workers: int, count: int) -> tuple[float, Drained]:
    asyncio.run(fill(backend, name, count))
    folder.mkdir()
    with ExitStack() as stack:
        crew = [stack.enter_context(replica(backend.url(name), folder, "worker")) for _ in range(workers)]
        others = Others([*crew, backend.server])
        worked, served = sum(each.cpu_seconds() for each in crew), backend.server.cpu_seconds()
        seconds = asyncio.run(drain(backend.url(name)))
        worked, served = sum(each.cpu_seconds() for each in crew) - worked, backend.server.cpu_seconds() - served
        share = others.share()
    done = Counter(each.task_id for each in notes(folder))
    backend.remove(name)
    repeated = sum(times - 1 for times in done.values())
    return share, Drained(count / seconds, repeated, count - len(done), worked / count, served / count)


def lines(one: Turns[Drained], many: Turns[Drained], workers: int) -> Iterator[report.Line]:
    for name, turns in (("one worker", one), (f"{workers} workers", many)):
        yield report.measured(name, report.spread(turns.values(lambda each: each.rate), "{:,.0f} tasks/s".format))
        worked, served = (median(turns.values(of)) * 1e6 for of in (_workers, _database))
        yield report.measured("  processor, a task", f"{worked:.0f} µs of workers, {served:.0f} µs of the database")
    speedup = median(many.values(lambda each: each.rate)) / median(one.values(lambda each: each.rate))
    yield report.at_least(f"{workers} workers to one", [speedup], SPEEDUP_TARGET, "{:.2f} times".format)
    everything = [*one.everything, *many.everything]
    yield report.at_most("done twice, in all turns", [sum(each.repeated for each in everything)], 0, "{:.0f}".format)
    yield report.at_most("not done, in all turns", [sum(each.missing for each in everything)], 0, "{:.0f}".format)
    yield report.measured("used by others meanwhile", noise([one, many]))


def _workers(drained: Drained) -> float:
    return drained.workers


def _database(drained: Drained) -> float:
    return drained.database


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4, help="that are compared with a single one")
    parser.add_argument("--turns", type=int, default=3, help="that count, of one worker and of several")
    options = parser.parse_args(arguments)
    one, many = Turns[Drained](options.turns), Turns[Drained](options.turns)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        PostgreSQL(Path(folder)) as backend,
    ):
        number = 0
        while not (one.enough and many.enough):
            number += 1
            report.say(f"turn {number}")
            for workers, turns in ((1, one), (options.workers, many))[:: 1 if number % 2 else -1]:
                name = f"drain{number}_{workers}"
                turns.note(*turn(backend, name, Path(folder) / name, workers, options.tasks))
        title = f"Drain: {options.tasks:,} tasks that do nothing, PostgreSQL {backend.describe()}"
    return report.conclude(title, lines(one, many, options.workers), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
