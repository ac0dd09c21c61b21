"""Requests a second over HTTP, beside a do-nothing tool on a bare SDK server.

Every server is a process of its own, driven over keep-alive connections from this one, and they are measured in turns:
bare, create, create, get, get, bare, create … What counts is the ratio to the bare server's turn in the same round, the
median of them. Beside it stands the ratio by processor time, which asks less of a machine that others are using too.
Two processes of the same program may differ by a tenth, depending on where their memory came to lie, so all of them are
started anew every few turns; and warmed up, since the first turn of a process costs a tenth more than those that
follow.

A create answers with a handle that is on disk (`synchronous=FULL`). It is measured with no worker in the process, which
is the cost of the request, and with one, which runs each task while the next ones are being created.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from . import load, report
from .processes import Server, serving
from .quiet import Others, Turns, noise

CREATE_TARGET: Final = 0.85
GET_TARGET: Final = 1.0

_DRAINED_WITHIN: Final = 120.0
_TURNS_OF_A_PROCESS: Final = 4
_WARM_UP: Final = 4
"""As many turns long."""
_TASK: Final = b'"resultType":"task"'
_COMPLETED: Final = b'"status":"completed"'
_WORKING: Final = b'"status":"working"'


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of load: requests and finished tasks a second, seconds of waiting and of processor time a request."""

    rate: float
    latencies: list[float]
    cpu: float
    finished: float | None


@dataclass(slots=True)
class Subject:
    """One thing that is measured: which server, which requests, and what their answers must contain.

    `store`: the file in which to wait for the tasks that the requests made.
    """

    name: str
    server: Server
    requests: Callable[[], Iterator[bytes]]
    marker: bytes
    turns: Turns[Turn]
    store: Path | None = None

    async def take_turn(self, servers: Sequence[Server], connections: int, seconds: float) -> None:
        others, before, started = Others(servers), self.server.cpu_seconds(), time.perf_counter()
        async with load.connected(self.server.port, connections) as client:
            sample = await client.load(self.requests(), self.marker, seconds)
        if self.store is not None:
            await drained(self.store)
        count = len(sample.latencies)
        finished = None if self.store is None else count / (time.perf_counter() - started)
        cpu = (self.server.cpu_seconds() - before) / count
        self.turns.add(others, Turn(sample.rate, sample.latencies, cpu, finished))

    @property
    def rates(self) -> list[float]:
        return self.turns.values(lambda turn: turn.rate)

    @property
    def cpu(self) -> float:
        return median(self.turns.values(lambda turn: turn.cpu))

    def lines(self) -> Iterator[report.Line]:
        turns = self.turns.counted
        yield report.measured(self.name, report.spread(self.rates, "{:,.0f}/s".format))
        yield report.measured("  latency", report.latencies([one for turn in turns for one in turn.latencies]))
        yield report.measured("  processor", f"{self.cpu * 1e3:.2f} ms a request")
        finished = [turn.finished for turn in turns if turn.finished is not None]
        if finished:
            yield report.measured("  created, run and completed", report.spread(finished, "{:,.0f}/s".format))


async def drained(store: Path) -> None:
    """Wait until no task has a run any more. Else what is left would be run in the next server's turn."""
    deadline = time.monotonic() + _DRAINED_WITHIN
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as reader:
        while reader.execute("SELECT 1 FROM run LIMIT 1").fetchone() is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"tasks were still unfinished after {_DRAINED_WITHIN:.0f} s")
            await asyncio.sleep(0.02)


async def tasks_on(server: Server, count: int) -> list[bytes]:
    """Requests for `count` new tasks of the server."""
    async with load.connected(server.port, 8) as client:
        made = await client.all(itertools.repeat(load.call("nothing"), count), _TASK)
    return [load.get(task["taskId"]) for task in made]


@dataclass(frozen=True, slots=True)
class Bench:
    """What `main` was told."""

    connections: int
    seconds: float
    turns: int
    polled: int

    async def measure(self, folder: Path) -> list[Subject]:
        """The subjects, with their turns."""
        turns = [Turns[Turn](self.turns) for _ in range(5)]
        for number in itertools.count(1):
            report.say(f"servers, generation {number}")
            subjects = await self._generation(folder / f"idle{number}.db", folder / f"busy{number}.db", turns)
            if all(figure.enough for figure in turns):
                return subjects
        raise AssertionError

    async def _generation(self, idle_store: Path, busy_store: Path, turns: Sequence[Turns[Turn]]) -> list[Subject]:
        """Start the servers, take some turns, and stop them."""
        with ExitStack() as stack:
            bare = stack.enter_context(serving("bare"))
            idle = stack.enter_context(serving("perdure", "--no-worker", "--store", f"sqlite:///{idle_store}"))
            busy = stack.enter_context(serving("perdure", "--worker", "--store", f"sqlite:///{busy_store}"))
            subjects = await self._subjects(bare, idle, busy, busy_store, turns)
            await self._warm_up(subjects)
            await drained(busy_store)
            for _ in range(min(self.turns, _TURNS_OF_A_PROCESS)):
                for subject in subjects:
                    await subject.take_turn((bare, idle, busy), self.connections, self.seconds)
        return subjects

    async def _subjects(
        self, bare: Server, idle: Server, busy: Server, store: Path, turns: Sequence[Turns[Turn]]
    ) -> list[Subject]:
        call = load.call("nothing")
        working, finished = await tasks_on(idle, self.polled), await tasks_on(busy, self.polled)
        await drained(store)

        def calls() -> Iterator[bytes]:
            return itertools.repeat(call)

        bare_turns, create_turns, running_turns, completed_turns, working_turns = turns
        return [
            Subject("bare SDK server, tools/call", bare, calls, b'"resultType":"complete"', bare_turns),
            Subject("create, no worker", idle, calls, _TASK, create_turns),
            Subject("create, worker running them", busy, calls, _TASK, running_turns, store),
            Subject("tasks/get, completed", busy, lambda: itertools.cycle(finished), _COMPLETED, completed_turns),
            Subject("tasks/get, working", idle, lambda: itertools.cycle(working), _WORKING, working_turns),
        ]

    async def _warm_up(self, subjects: Sequence[Subject]) -> None:
        """Imports, caches and compiled statements are nobody's steady state."""
        for subject in subjects:
            async with load.connected(subject.server.port, self.connections) as client:
                await client.load(subject.requests(), subject.marker, _WARM_UP * self.seconds)


def ratios(subjects: Sequence[Subject]) -> Iterator[report.Line]:
    bare, create, running, *gets = subjects
    targets = {create.name: CREATE_TARGET} | {subject.name: GET_TARGET for subject in gets}
    form = "{:.2f} of bare".format
    for subject in (create, running, *gets):
        by_rate = subject.turns.beside(bare.turns, lambda turn: turn.rate)
        if subject.name in targets:
            yield report.at_least(subject.name, by_rate, targets[subject.name], form)
        else:
            yield report.measured(subject.name, report.spread(by_rate, form))
        yield report.measured("  by processor time", form(bare.cpu / subject.cpu))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn")
    parser.add_argument("--turns", type=int, default=24, help="that count, of each")
    parser.add_argument("--polled", type=int, default=500, help="how many different tasks tasks/get asks for")
    options = parser.parse_args(arguments)
    bench = Bench(options.connections, options.seconds, options.turns, options.polled)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        subjects = asyncio.run(bench.measure(Path(folder)))
    lines = [line for subject in subjects for line in subject.lines()]
    others = report.measured("used by others meanwhile", noise(subject.turns for subject in subjects))
    title = f"HTTP: {bench.connections} connections, {bench.turns} turns of {bench.seconds:g} s each"
    return report.conclude(title, [*lines, others, *ratios(subjects)], check=options.check)


if __name__ == "__main__":
    sys.exit(main())
