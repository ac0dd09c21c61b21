"""What sleeping costs, and whether sleepers are woken on time: a store full of them, of which some come due.

One worker, driven through its store. It is warmed up with tasks that sleep for a moment and end. Then it is given the
sleepers, runs each until it sleeps, and has put all of them aside; its resident memory is compared. Then others are
added that come due one after the other while the rest sleeps on. How late one is, is the time from the instant that its
sleep was to end until its result was on the disk: claimed, run again from the start, finished and committed.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Final

from perdure.domain.model import JSONObject
from perdure.store.sqlite import SQLiteStore

from . import report
from .parking import size
from .workers import create, reading, until, working

LATE_TARGET: Final = 1.0
"""Seconds, for 99 of 100."""
GROWTH_TARGET: Final = 10.0
"""Megabytes for all that sleep."""

_DAY: Final = 86_400.0
_ASLEEP: Final = "SELECT count(*) FROM run WHERE session IS NULL AND due_at >= 0"
_OVER: Final = "SELECT count(*) FROM task WHERE status = 'completed'"


@dataclass(frozen=True, slots=True)
class Night:
    """Bytes of resident memory: before the sleepers, with them, and after the last one that was due; and the rest."""

    before: int
    asleep: int
    after: int
    stored: int
    seconds: float
    """How long it took to make the sleepers and put them aside."""
    late: tuple[float, ...]
    """Of each task that came due, in seconds."""


async def sleep(store: Path, spans: Sequence[float]) -> None:
    """Make tasks that sleep for so many seconds each."""
    opened = SQLiteStore(f"sqlite:///{store}")
    await opened.open()
    try:
        arguments: list[JSONObject] = [{"seconds": span} for span in spans]
        await create(opened, "nap", arguments)
    finally:
        await opened.close()


def turn(store: Path, sleepers: int, due: int, over: float, warm: int, head_start: float) -> Night:
    asyncio.run(sleep(store, []))
    with reading(store) as reader, working(store) as worker:
        asyncio.run(sleep(store, [0.1] * warm))
        until(reader, _OVER, warm)
        before, started = worker.process.resident_bytes(), time.perf_counter()
        asyncio.run(sleep(store, [_DAY + number for number in range(sleepers)]))
        until(reader, _ASLEEP, sleepers, pause=0.2)
        seconds, asleep = time.perf_counter() - started, worker.process.resident_bytes()
        report.say(f"{sleepers:,} tasks sleep after {seconds:.0f} s")
        asyncio.run(sleep(store, [head_start + over * number / due for number in range(due)]))
        until(reader, _ASLEEP, sleepers + due)
        wakes = instants(reader, due)
        until(reader, _OVER, warm + due, pause=0.2)
        late = tuple(lateness(reader, wakes))
        return Night(before, asleep, worker.process.resident_bytes(), size(store), seconds, late)


def instants(reader: sqlite3.Connection, due: int) -> dict[int, int]:
    """When the tasks that come due first are due."""
    query = "SELECT task_seq, due_at FROM run WHERE session IS NULL AND due_at >= 0 ORDER BY due_at LIMIT ?"
    return dict(reader.execute(query, (due,)))


def lateness(reader: sqlite3.Connection, wakes: dict[int, int]) -> Iterator[float]:
    for seq, wake_at in wakes.items():
        (ended,) = reader.execute("SELECT updated_at FROM task WHERE seq = ?", (seq,)).fetchone()
        yield (ended - wake_at) / 1000


def lines(nights: Sequence[Night], sleepers: int) -> Iterator[report.Line]:
    megabytes, seconds = "{:.1f} MB".format, "{:.3f} s".format
    cuts = [quantiles(night.late, n=100) for night in nights]
    yield report.measured("late, p50", report.spread([cut[49] for cut in cuts], seconds))
    yield report.at_most("late, p99", [cut[98] for cut in cuts], LATE_TARGET, seconds)
    yield report.measured("late, at most", report.spread([max(night.late) for night in nights], seconds))
    yield report.measured("resident before", report.spread([night.before / 1e6 for night in nights], megabytes))
    yield report.measured(
        f"resident with {sleepers:,} asleep", report.spread([night.asleep / 1e6 for night in nights], megabytes)
    )
    yield report.measured("resident after the last", report.spread([night.after / 1e6 for night in nights], megabytes))
    growth = [(max(night.asleep, night.after) - night.before) / 1e6 for night in nights]
    yield report.at_most("  growth", growth, GROWTH_TARGET, megabytes)
    yield report.measured("store's files", report.spread([night.stored / 1e6 for night in nights], megabytes))
    rates = [sleepers / night.seconds for night in nights]
    yield report.measured("created, run and put to sleep", report.spread(rates, "{:,.0f} tasks/s".format))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--sleepers", type=int, default=100_000, help="tasks that sleep all the while")
    parser.add_argument("--due", type=int, default=3_000, help="tasks that come due meanwhile")
    parser.add_argument("--over", type=float, default=30.0, help="seconds that those are spread over")
    parser.add_argument(
        "--head-start", type=float, default=10.0, help="seconds until the first is due; all must be asleep by then"
    )
    parser.add_argument("--warm-up", type=int, default=2_000, help="tasks that sleep for a moment before")
    parser.add_argument("--turns", type=int, default=1, help="each with a fresh worker on a fresh store")
    options = parser.parse_args(arguments)
    nights: list[Night] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        for number in range(options.turns):
            report.say(f"turn {number + 1} of {options.turns}")
            store = Path(folder) / f"{number}.db"
            nights.append(turn(store, options.sleepers, options.due, options.over, options.warm_up, options.head_start))
    title = (
        f"Timers: {options.due:,} tasks come due within {options.over:g} s beside {options.sleepers:,} that sleep on, "
        f"in one SQLite file; one worker, after a warm-up of {options.warm_up:,}"
    )
    return report.conclude(title, lines(nights, options.sleepers), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
