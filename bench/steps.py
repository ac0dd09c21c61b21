"""What a step costs: a tool of many steps that do nothing, through the whole stack, beside the fsync beneath it.

An app's tasks are run by its own worker in this process, on a SQLite file. A step is on the disk before the tool goes
on, so one task alone can't be faster than an fsync; many at once share their commits. Both, and a bare loop that
appends to a file in the same folder and syncs it, take turns within one run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from perdure import TaskContext, Tasks
from perdure.domain.model import JSONObject
from perdure.store.sqlite import SQLiteStore

from . import report
from .quiet import Others, Turns, noise
from .store import fsyncs
from .workers import create

ALONE_TARGET: Final = 3.0
"""Milliseconds, for half of the steps of a task that runs alone."""
TOGETHER_TARGET: Final = 3_000
"""Steps a second of `TASKS` tasks."""
TASKS: Final = 64

_WITHIN: Final = 300.0


async def nothing() -> None:
    """What each step does."""


@dataclass(slots=True)
class Course:
    """Some tasks of so many steps each: they start together, and note how long they took."""

    tasks: int
    steps: int
    seconds: list[float] = field(default_factory=list[float])
    """Of each step of each task."""
    start: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = 0.0
    ended: float = 0.0
    at_start: int = 0
    at_end: int = 0

    async def begin(self) -> None:
        """Wait for the others, so that the figure is about steps, and not about creating and claiming tasks."""
        self.at_start += 1
        if self.at_start == self.tasks:
            self.started = time.perf_counter()
            self.start.set()
        await self.start.wait()

    def end(self) -> None:
        self.at_end += 1
        if self.at_end == self.tasks:
            self.ended = time.perf_counter()
            self.over.set()

    @property
    def rate(self) -> float:
        """Steps a second."""
        return self.tasks * self.steps / (self.ended - self.started)


class App:
    """An app whose only tool goes over the course."""

    def __init__(self, path: Path) -> None:
        self._store = SQLiteStore(f"sqlite:///{path}")
        self.tasks = Tasks(self._store, concurrency=TASKS)
        self.mcp = self.tasks.server("bench", version="1", log_level="WARNING")
        self.tasks.tool()(self.go)
        self._course = Course(0, 0)

    async def go(self, task: TaskContext) -> None:
        """Go through the steps."""
        course = self._course
        await course.begin()
        for _ in range(course.steps):
            started = time.perf_counter()
            await task.step("nothing", nothing)
            course.seconds.append(time.perf_counter() - started)
        course.end()

    async def take(self, course: Course) -> Course:
        """Run the tasks of a course, all at once."""
        self._course = course
        none: JSONObject = {}
        await create(self._store, "go", [none] * course.tasks)
        async with asyncio.timeout(_WITHIN):
            await course.over.wait()
        return course


@asynccontextmanager
async def running(path: Path) -> AsyncGenerator[App]:
    """An app with its worker at work."""
    app = App(path)
    async with app.tasks.assembly.working(app.mcp):
        yield app


@dataclass(frozen=True, slots=True)
class Together:
    """What many tasks at once came to: steps a second, and seconds of processor time for each step."""

    rate: float
    cpu: float


class Figures:
    """What is measured; `wanted` turns of each count."""

    def __init__(self, wanted: int) -> None:
        self.fsyncs = Turns[list[float]](wanted)
        self.alone = Turns[list[float]](wanted)
        self.together = Turns[Together](wanted)

    async def measure(self, folder: Path, alone: int, together: int) -> None:
        turn = 0
        while not all(figure.enough for figure in self.figures):
            turn += 1
            report.say(f"turn {turn}")
            others = Others()
            self.fsyncs.add(others, fsyncs(folder / "appended", alone))
            async with running(folder / f"{turn}.db") as app:
                others = Others()
                self.alone.add(others, (await app.take(Course(1, alone))).seconds)
                others, cpu = Others(), time.process_time()
                course = await app.take(Course(TASKS, together))
                cpu = time.process_time() - cpu
                self.together.add(others, Together(course.rate, cpu / (TASKS * together)))

    @property
    def figures(self) -> tuple[Turns[Any], ...]:
        return (self.fsyncs, self.alone, self.together)

    def lines(self) -> Iterator[report.Line]:
        milliseconds, microseconds = "{:.2f} ms".format, "{:.0f} µs".format
        yield report.measured("fsync after 4 KiB, p50", report.spread(self.fsyncs.values(_cut(50)), milliseconds))
        yield report.measured("fsync after 4 KiB, p99", report.spread(self.fsyncs.values(_cut(99)), milliseconds))
        yield report.at_most("step, one task, p50", self.alone.values(_cut(50)), ALONE_TARGET, milliseconds)
        yield report.measured("step, one task, p99", report.spread(self.alone.values(_cut(99)), milliseconds))
        rates = self.together.values(lambda turn: turn.rate)
        yield report.at_least(f"steps of {TASKS} tasks at once", rates, TOGETHER_TARGET, "{:,.0f}/s".format)
        cpu = self.together.values(lambda turn: turn.cpu * 1e6)
        yield report.measured("  processor time of each", report.spread(cpu, microseconds))
        yield report.measured("used by others meanwhile", noise(self.figures))


def _cut(percent: int) -> Callable[[list[float]], float]:
    """The milliseconds that so many of 100 stay below."""
    return lambda seconds: quantiles(seconds, n=100)[percent - 1] * 1e3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--alone", type=int, default=500, help="steps of the task that runs alone, in a turn")
    parser.add_argument("--together", type=int, default=200, help=f"steps of each of {TASKS} tasks at once, in a turn")
    parser.add_argument("--turns", type=int, default=5, help="that count, of each figure; each on a fresh store")
    options = parser.parse_args(arguments)
    figures = Figures(options.turns)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        asyncio.run(figures.measure(Path(folder), options.alone, options.together))
    title = (
        f"Steps that do nothing, on SQLite: {options.alone:,} of one task, then {options.together:,} of each of "
        f"{TASKS} tasks at once; {options.turns} turns"
    )
    return report.conclude(title, figures.lines(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
