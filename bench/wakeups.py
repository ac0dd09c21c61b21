"""How soon what is said on one replica is heard on another, on PostgreSQL: two processes, A serves and B works.

Tasks wait for a person. Their answers are sent to A by a timetable, and each tool notes on B when it goes on: sent,
committed, told, claimed, journal read, replayed. Then tools that go on for ever are cancelled on A, and note on B when
they are told. Last, B is a worker that hears nothing: it reaches the server for LISTEN over a relay that is cut. It
finds answers only because it looks for work by itself now and then (the backstop); they come one by one, since a
worker that is busy looks more often. An answer that just missed a look waits for a whole interval and is then found as
any other, so the bound is the interval and what a wake-up may take.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from perdure.engine.runtime import Options

from . import load, report
from .backends import PostgreSQL
from .processes import Server
from .quiet import Consumer, Others, Turns, noise
from .replicas import Note, notes, replica

HALF_TARGET: Final = 10.0
"""Milliseconds, for half of the answers."""
MOST_TARGET: Final = 50.0
"""Milliseconds, for 99 of 100."""
CANCEL_TARGET: Final = 100.0
"""Milliseconds, for 99 of 100."""
BACKSTOP: Final = float(Options().poll_ms)

_WITHIN: Final = 120.0
_CONNECTIONS: Final = 32
_SLOTS: Final = 24
"""Tools that hold at once; fewer than a worker has slots."""
_ALONE_PER_SECOND: Final = 1.7
"""Answers a second where only the backstop finds them: each at another moment between two looks."""
_TASK: Final = b'"resultType":"task"'
_COMPLETE: Final = b'"resultType":"complete"'
_ACCEPTED: Final = {"approve": {"action": "accept", "content": {"approved": True}}}


@dataclass(frozen=True, slots=True)
class Heard:
    """Milliseconds from sending each request to the tool that hears of it, and of processor time a request."""

    latencies: list[float]
    cpu: list[float]
    """Of each of the processes that take part."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """A server without a worker, the folder in which the tools of another process leave notes, and who takes part."""

    server: Server
    folder: Path
    processes: Sequence[Consumer]

    async def answered(self, count: int, rate: float) -> Heard:
        """Send so many answers; until the tool goes on."""
        return await self._heard("ask", count, rate, self._parked, lambda id_: load.update(id_, _ACCEPTED), "answered")

    async def cancelled(self, count: int, rate: float) -> Heard:
        """Send so many cancels; until the tool is told."""
        return await self._heard("hold", count, rate, self._holding, load.cancel, "cancelled")

    async def _heard(
        self,
        tool: str,
        count: int,
        rate: float,
        ready: Callable[[list[str]], Awaitable[object]],
        request: Callable[[str], bytes],
        what: str,
    ) -> Heard:
        async with load.connected(self.server.port, _CONNECTIONS) as client:
            made = await client.all(itertools.repeat(load.call(tool), count), _TASK)
        ids = [task["taskId"] for task in made]
        await ready(ids)
        before = [each.cpu_seconds() for each in self.processes]
        # As few as keep each of them busy: the server closes those that are idle for some seconds.
        async with load.connected(self.server.port, max(1, min(_CONNECTIONS, int(rate)))) as client:
            answers = await client.paced([request(id_) for id_ in ids], _COMPLETE, rate)
        heard = await self._noted(what, ids)
        cpu = [each.cpu_seconds() - used for each, used in zip(self.processes, before, strict=True)]
        latencies = [(heard[id_] - each.sent) * 1e3 for id_, each in zip(ids, answers, strict=True)]
        return Heard(latencies, [each / count * 1e3 for each in cpu])

    async def _noted(self, what: str, ids: Sequence[str]) -> dict[str, float]:
        """When each of the tasks first was there."""
        deadline = time.monotonic() + _WITHIN
        while not (found := _first(notes(self.folder), what)).keys() >= set(ids):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(set(ids) - found.keys())} tasks were not {what}")
            await asyncio.sleep(0.1)
        return found

    async def _holding(self, ids: list[str]) -> None:
        await self._noted("holds", ids)

    async def _parked(self, ids: list[str]) -> None:
        deadline = time.monotonic() + _WITHIN
        waiting = set(ids)
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(waiting)} tasks have not asked")
            await asyncio.sleep(0.2)
            async with load.connected(self.server.port, _CONNECTIONS) as client:
                found = await client.all(iter([load.get(id_) for id_ in waiting]), b'"status"')
            waiting -= {task["taskId"] for task in found if task["status"] == "input_required"}


def _first(found: Sequence[Note], what: str) -> dict[str, float]:
    return {each.task_id: each.at for each in sorted(found, key=lambda each: -each.at) if each.what == what}


# The relay ------------------------------------------------------------------------------------------------------------


class Relay:
    """Carries connections to the server until it is cut; from then on nobody answers."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, there[1]}
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while read := await reader.read(65_536):
            writer.write(read)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def deaf(url: str, port: int, folder: Path) -> AsyncGenerator[Server]:
    """A worker that listens over a relay, which is cut once the worker is up."""
    relay = Relay(port)
    await relay.open()
    try:
        with ExitStack() as stack:
            reached = f"{url}?listen_host=127.0.0.1&listen_port={relay.port}"
            # In a thread, since its first connection goes through the relay, which is served here.
            worker = await asyncio.to_thread(stack.enter_context, replica(reached, folder, "worker"))
            relay.cut()
            yield worker
    finally:
        relay.cut()


# The report -----------------------------------------------------------------------------------------------------------


class Figures:
    """What is measured; `wanted` turns of each count."""

    def __init__(self, wanted: int) -> None:
        self.answers = Turns[Heard](wanted)
        self.cancels = Turns[list[float]](wanted)
        self.alone: list[float] = []

    def measure(self, backend: PostgreSQL, folder: Path, answers: int, rate: float, cancels: int, alone: int) -> None:
        url = backend.url("wakeups")
        with replica(url, folder, "serve", "--no-worker", "--port", "0") as server:
            with replica(url, folder, "worker") as worker:
                replicas = Replicas(server, folder, (server, worker, backend.server))
                while not (self.answers.enough and self.cancels.enough):
                    report.say("answers")
                    others = Others(replicas.processes)
                    self.answers.add(others, asyncio.run(replicas.answered(answers, rate)))
                    report.say("cancels")
                    others = Others(replicas.processes)
                    self.cancels.add(others, _cancels(replicas, cancels, rate / 5))
            report.say("answers that nobody hears of")
            replicas = Replicas(server, folder, ())
            self.alone = asyncio.run(_unheard(replicas, url, backend.port, alone))

    def lines(self, rate: float) -> Iterator[report.Line]:
        form, answers = "{:.1f} ms".format, self.answers
        name = f"answer on A to tool on B, {rate:g}/s"
        yield report.at_most(f"{name}, p50", [_cut(50)(each.latencies) for each in answers.counted], HALF_TARGET, form)
        yield report.at_most(f"{name}, p99", [_cut(99)(each.latencies) for each in answers.counted], MOST_TARGET, form)
        a, b, database = (median(each.cpu[index] for each in answers.counted) for index in range(3))
        yield report.measured("  processor of each", f"A {form(a)}, B {form(b)}, database {form(database)}")
        yield report.measured("cancel on A to tool on B, p50", report.spread(self.cancels.values(_cut(50)), form))
        yield report.at_most("cancel on A to tool on B, p99", self.cancels.values(_cut(99)), CANCEL_TARGET, form)
        figures: list[Turns[Any]] = [self.answers, self.cancels]
        yield report.measured("used by others meanwhile", noise(figures))
        yield report.measured("answer without LISTEN, p50", report.spread([_cut(50)(self.alone)], form))
        yield report.at_most("answer without LISTEN, at most", [max(self.alone)], BACKSTOP + MOST_TARGET, form)


def _cancels(replicas: Replicas, count: int, rate: float) -> list[float]:
    """In rounds, each of no more tools than a worker runs at once."""
    latencies: list[float] = []
    for start in range(0, count, _SLOTS):
        latencies += asyncio.run(replicas.cancelled(min(_SLOTS, count - start), rate)).latencies
    return latencies


async def _unheard(replicas: Replicas, url: str, port: int, count: int) -> list[float]:
    async with deaf(url, port, replicas.folder):
        return (await replicas.answered(count, _ALONE_PER_SECOND)).latencies


def _cut(percent: int) -> Callable[[list[float]], float]:
    return lambda values: quantiles(values, n=100)[percent - 1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--answers", type=int, default=2_000, help="in a turn")
    parser.add_argument("--rate", type=float, default=200.0, help="answers a second; a fifth as many cancels")
    parser.add_argument("--cancels", type=int, default=120, help="in a turn")
    parser.add_argument("--alone", type=int, default=40, help="answers that only the backstop finds")
    parser.add_argument("--turns", type=int, default=3, help="that count, of answers and of cancels")
    options = parser.parse_args(arguments)
    figures = Figures(options.turns)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        noted = Path(folder) / "notes"
        noted.mkdir()
        with PostgreSQL(Path(folder)) as backend:
            figures.measure(backend, noted, options.answers, options.rate, options.cancels, options.alone)
            title = f"Wake-ups from one process to another, PostgreSQL {backend.describe()}"
    return report.conclude(title, figures.lines(options.rate), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
