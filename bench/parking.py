"""What waiting costs: the memory of a server before and after thousands of its tasks came to wait for a person.

A real server, driven over HTTP. It is warmed up first, so that imports, caches and the heap's usual size are not
counted: as many connections make tasks of the same tool, which park, are answered, run again and complete. Then more
tasks are made and left waiting, and once all of them are `input_required`, the resident memory is compared.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import load, report
from .processes import Server, serving

GROWTH_TARGET: Final = 10.0
"""Megabytes for 10,000 tasks that wait."""

_WITHIN: Final = 300.0
_TASK: Final = b'"resultType":"task"'
_ACCEPTED: Final = {"approve": {"action": "accept", "content": {"approved": True}}}


@dataclass(frozen=True, slots=True)
class Parking:
    """Bytes of resident memory and of the store's files, and how long it took until all tasks waited."""

    before: int
    after: int
    stored_before: int
    stored_after: int
    seconds: float


async def until(store: Path, status: str, count: int) -> None:
    """Wait until the store has so many tasks of the status."""
    deadline = time.monotonic() + _WITHIN
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as reader:
        while reader.execute("SELECT count(*) FROM task WHERE status = ?", (status,)).fetchone() != (count,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {count} tasks were {status} after {_WITHIN:.0f} s")
            await asyncio.sleep(0.1)


async def warm_up(server: Server, store: Path, connections: int, count: int) -> None:
    async with load.connected(server.port, connections) as client:
        made = await client.all(itertools.repeat(load.call("ask"), count), _TASK)
        await until(store, "input_required", count)
        await client.all((load.update(task["taskId"], _ACCEPTED) for task in made), b'"resultType":"complete"')
        await until(store, "completed", count)


async def park(server: Server, store: Path, connections: int, count: int) -> Parking:
    before, stored = server.resident_bytes(), size(store)
    started = time.perf_counter()
    async with load.connected(server.port, connections) as client:
        await client.all(itertools.repeat(load.call("ask"), count), _TASK)
    await until(store, "input_required", count)
    seconds = time.perf_counter() - started
    return Parking(before, server.resident_bytes(), stored, size(store), seconds)


def size(store: Path) -> int:
    """Bytes of the file, and of the log beside it."""
    return sum(path.stat().st_size for path in store.parent.glob(f"{store.name}*"))


def turn(store: Path, connections: int, tasks: int, warm: int) -> Parking:
    async def measure(server: Server) -> Parking:
        await warm_up(server, store, connections, warm)
        return await park(server, store, connections, tasks)

    with serving("perdure", "--worker", "--store", f"sqlite:///{store}") as server:
        return asyncio.run(measure(server))


def lines(parked: Sequence[Parking], tasks: int) -> Iterator[report.Line]:
    megabytes = "{:.1f} MB".format
    yield report.measured("resident before", report.spread([one.before / 1e6 for one in parked], megabytes))
    yield report.measured(
        f"resident with {tasks:,} waiting", report.spread([one.after / 1e6 for one in parked], megabytes)
    )
    growth = [(one.after - one.before) / 1e6 for one in parked]
    yield report.at_most("  growth", growth, GROWTH_TARGET, megabytes)
    stored = [(one.stored_after - one.stored_before) / tasks for one in parked]
    yield report.measured("store's files, a waiting task", report.spread(stored, "{:,.0f} bytes".format))
    yield report.measured("store's files in all", report.spread([one.stored_after / 1e6 for one in parked], megabytes))
    rates = [tasks / one.seconds for one in parked]
    yield report.measured("created, run and parked", report.spread(rates, "{:,.0f} tasks/s".format))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--tasks", type=int, default=10_000, help="left waiting")
    parser.add_argument("--warm-up", type=int, default=2_000, help="tasks that wait, are answered and complete before")
    parser.add_argument("--turns", type=int, default=3, help="each with a fresh server on a fresh store")
    options = parser.parse_args(arguments)
    parked: list[Parking] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        for number in range(options.turns):
            report.say(f"turn {number + 1} of {options.turns}")
            store = Path(folder) / f"{number}.db"
            parked.append(turn(store, options.connections, options.tasks, options.warm_up))
    title = (
        f"Parking: {options.tasks:,} tasks that wait for a person, after a warm-up of {options.warm_up:,} that "
        f"waited, were answered and completed; {options.connections} connections"
    )
    return report.conclude(title, lines(parked, options.tasks), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
