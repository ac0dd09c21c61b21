"""How long the tasks of a dead worker wait for another one: from its SIGKILL until the last of them is claimed again.

Several workers share the tasks, all of which run; the one that has the most of them is killed right after it renewed
its lease, which is the worst moment. A neighbour on the same machine sees at once that the process is gone, so that is
measured, and then the same with workers that can't see each other's processes, as on machines of their own: there the
lease decides. For that each worker is in a PID namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from perdure.domain.model import JSONObject
from perdure.store.sqlite import SQLiteStore

from . import report
from .workers import Worker, create, may_be_apart, reading, until, working

SECONDS: Final = "{:.2f} s".format
MARGIN_TARGET: Final = 1.0
"""Seconds on top of the lease."""
SEEN_TARGET: Final = 1.0
"""Seconds where neighbours see that the process is gone."""

_HELD: Final = "SELECT count(*) FROM run WHERE session IS NOT NULL"
_RENEWED: Final = "SELECT expires_at != ? FROM session WHERE id = ?"


async def fill(store: Path, count: int) -> None:
    opened = SQLiteStore(f"sqlite:///{store}")
    await opened.open()
    try:
        nothing: JSONObject = {}
        await create(opened, "hold", [nothing] * count)
    finally:
        await opened.close()


def turn(store: Path, workers: int, tasks: int, lease: str, *, apart: bool) -> tuple[float, int]:
    """Seconds until the tasks of one killed worker are claimed again, and how many those are."""
    asyncio.run(fill(store, 0))
    # One fewer is enough for all, so that there is room for the victim's.
    slots = -(-tasks // (workers - 1))
    with contextlib.ExitStack() as stack, reading(store) as reader:
        crew = [
            stack.enter_context(working(store, "--concurrency", str(slots), lease=lease, apart=apart))
            for _ in range(workers)
        ]
        asyncio.run(fill(store, tasks))
        until(reader, _HELD, tasks)
        victim = max(crew, key=lambda worker: len(held(reader, worker)))
        lost = held(reader, victim)
        just_renewed(reader, victim)
        os.kill(victim.process.pid, signal.SIGKILL)
        killed = time.perf_counter()
        until(reader, f"{_HELD} AND session != ?", tasks, victim.session)
        return time.perf_counter() - killed, len(lost)


def held(reader: sqlite3.Connection, worker: Worker) -> list[int]:
    return [seq for (seq,) in reader.execute("SELECT task_seq FROM run WHERE session = ?", (worker.session,))]


def just_renewed(reader: sqlite3.Connection, worker: Worker) -> None:
    """Wait until the worker has renewed its lease."""
    (before,) = reader.execute("SELECT expires_at FROM session WHERE id = ?", (worker.session,)).fetchone()
    until(reader, _RENEWED, 1, before, worker.session)


def seconds(lease: str) -> float:
    return float(lease.removesuffix("s"))


def lines(measured: Sequence[tuple[str, str, bool, list[tuple[float, int]]]]) -> Iterator[report.Line]:
    for name, lease, apart, turns in measured:
        target = seconds(lease) + MARGIN_TARGET if apart else SEEN_TARGET
        taken = [each for each, _ in turns]
        # It is a bound for every task, so the slowest turn decides, not the median.
        yield report.Line(name, report.spread(taken, SECONDS), f"<= {SECONDS(target)}", max(taken) <= target)
        yield report.measured("  tasks of the killed worker", report.spread([n for _, n in turns], "{:.0f}".format))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=200, help="running when a worker is killed")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3, help="each with fresh workers on a fresh store")
    parser.add_argument("--lease", default="30s", help="the default, in whole seconds")
    parser.add_argument("--short-lease", default="2s")
    parser.add_argument("--in-sight-only", action="store_true", help="leave out what the lease decides")
    options = parser.parse_args(arguments)
    ways = [
        (f"lease {options.lease}, process seen to be gone", options.lease, False),
        (f"lease {options.short_lease}, process out of sight", options.short_lease, True),
        (f"lease {options.lease}, process out of sight", options.lease, True),
    ]
    if options.in_sight_only:
        ways = ways[:1]
    elif not may_be_apart():
        raise SystemExit("This user may make no PID namespaces, which hide processes from each other: --in-sight-only")
    measured: list[tuple[str, str, bool, list[tuple[float, int]]]] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        for name, lease, apart in ways:
            turns: list[tuple[float, int]] = []
            for number in range(options.turns):
                report.say(f"{name}: turn {number + 1} of {options.turns}")
                store = Path(folder) / f"{len(measured)}-{number}.db"
                turns.append(turn(store, options.workers, options.tasks, lease, apart=apart))
            measured.append((name, lease, apart, turns))
    title = (
        f"Takeover: {options.tasks} running tasks on {options.workers} workers, one of which is killed right after it "
        "renewed its lease; until the last of its tasks is claimed again"
    )
    return report.conclude(title, lines(measured), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
