"""What a hop costs: the same requests through `perdure gateway` and directly, and what relayed streams take of memory.

The gateway, the backend behind it and this client are processes of their own. They are measured in turns of the same
round: direct, relayed, direct … What counts is the ratio of a round, the median of them. On a machine of few cores the
three share what the two had, so beside the ratio of the throughput stands the processor time of each: what the gateway
takes for a request, beside what its backend takes for it.

At one connection `tasks/get` is a matter of latency, at many of throughput. Then streams: each client listens to a task
of its own through the gateway, which relays one stream of the backend's to each. The gateway's memory is taken with a
fifth and with all of them open, as is that of a bare SDK server whose streams listen for tools; both are fresh
processes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from . import load, report
from .listeners import crowded
from .processes import Server, serving
from .quiet import Others, Turns, noise
from .replicas import running

LATENCY_TARGET: Final = 2.2
"""Times the direct p50, at one connection."""
THROUGHPUT_TARGET: Final = 0.45
"""Of the direct one."""

_TURNS_OF_A_PROCESS: Final = 4
_WARM_UP: Final = 3
"""As many turns long."""
_AT_ONCE: Final = 8
_TASK: Final = b'"resultType":"task"'
_WORKING: Final = b'"status":"working"'
_CONFIG: Final = """
[gateway]
name = "bench"
store = "sqlite:///{store}"

[limits]
subscriptions = 100000

[backends.one]
url = "http://127.0.0.1:{port}/mcp"
prefix = ""
streams = 100000
"""


@dataclass(frozen=True, slots=True)
class Load:
    """One way of asking. `name`: in the table. `creates`: it makes tasks, and does not ask for those that there are."""

    name: str
    connections: int
    creates: bool = False

    def requests(self, known: Sequence[bytes]) -> Iterator[bytes]:
        return itertools.repeat(load.call("nothing")) if self.creates else itertools.cycle(known)

    @property
    def marker(self) -> bytes:
        return _TASK if self.creates else _WORKING


@dataclass(frozen=True, slots=True)
class Turn:
    """Requests a second, the median latency in seconds, and processor seconds a request of backend and gateway."""

    rate: float
    p50: float
    backend: float
    gateway: float


@dataclass(slots=True)
class Side:
    """A way of asking, directly or through the gateway: where, and what came of it."""

    load: Load
    turns: Turns[Turn]

    async def take_turn(self, asked: Server, known: Sequence[bytes], pair: Pair, seconds: float) -> None:
        others, before = Others(pair.servers), [each.cpu_seconds() for each in pair.servers]
        async with load.connected(asked.port, self.load.connections) as client:
            sample = await client.load(self.load.requests(known), self.load.marker, seconds)
        used = [each.cpu_seconds() - spent for each, spent in zip(pair.servers, before, strict=True)]
        count = len(sample.latencies)
        self.turns.add(others, Turn(sample.rate, median(sample.latencies), used[0] / count, used[1] / count))


@dataclass(frozen=True, slots=True)
class Pair:
    """A backend, and the gateway before it."""

    backend: Server
    gateway: Server

    @property
    def servers(self) -> tuple[Server, Server]:
        return self.backend, self.gateway


@dataclass(frozen=True, slots=True)
class Memory:
    """KiB of a gateway for each stream that it relays, and of a bare SDK server for each of its own."""

    relayed: float
    sdks: float


@contextmanager
def fronting(backend: Server, folder: Path, name: str) -> Generator[Server]:
    """A gateway before that backend, for the length of the block. Its routes are in `folder`, under that name."""
    config = folder / f"{name}.toml"
    config.write_text(_CONFIG.format(store=folder / f"{name}.db", port=backend.port))
    with running(["gateway", str(config), "--port", "0"]) as server:
        yield server


async def tasks_on(server: Server, count: int) -> list[str]:
    """The ids of so many new tasks."""
    async with load.connected(server.port, _AT_ONCE) as client:
        return [made["taskId"] for made in await client.all(itertools.repeat(load.call("nothing"), count), _TASK)]


class Figures:
    """What is measured, in a folder."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._loads = [
            Load("tasks/get, 1 connection", 1),
            Load(f"tasks/get, {options.connections} connections", options.connections),
            Load(f"create, {options.connections} connections", options.connections, creates=True),
        ]
        self.direct, self.relayed = ([Side(each, Turns[Turn](options.turns)) for each in self._loads] for _ in range(2))
        self.memory = Turns[Memory](options.memory_turns)

    @property
    def sides(self) -> list[Side]:
        return [*self.direct, *self.relayed]

    def measure(self) -> None:
        for number in itertools.count(1):
            report.say(f"servers, generation {number}")
            with ExitStack() as stack:
                backend = stack.enter_context(self._backend(f"tasks{number}"))
                gateway = stack.enter_context(fronting(backend, self._folder, f"routes{number}"))
                asyncio.run(self._rounds(Pair(backend, gateway)))
            if all(side.turns.enough for side in self.sides):
                break
        while not self.memory.enough:
            report.say("streams")
            self._streams(len(self.memory.everything))

    def _backend(self, name: str) -> AbstractContextManager[Server]:
        return serving("perdure", "--no-worker", "--store", f"sqlite:///{self._folder / name}.db")

    async def _rounds(self, pair: Pair) -> None:
        options = self._options
        theirs, ours = await tasks_on(pair.backend, options.polled), await tasks_on(pair.gateway, options.polled)
        ways = [(pair.backend, [load.get(each) for each in theirs]), (pair.gateway, [load.get(each) for each in ours])]
        for each, (server, known) in itertools.product(self._loads, ways):
            async with load.connected(server.port, each.connections) as client:
                await client.load(each.requests(known), each.marker, _WARM_UP * options.seconds)
        for _ in range(min(options.turns, _TURNS_OF_A_PROCESS)):
            for sides in zip(self.direct, self.relayed, strict=True):
                for side, (server, known) in zip(sides, ways, strict=True):
                    await side.take_turn(server, known, pair, options.seconds)

    def _streams(self, number: int) -> None:
        name = f"streams{number}"
        with self._backend(name) as backend:
            # Made by a gateway that is gone when they are listened to: whoever is measured has an untouched heap.
            with fronting(backend, self._folder, name) as gateway:
                ids = asyncio.run(tasks_on(gateway, self._options.streams))
            with serving("listened") as bare, fronting(backend, self._folder, name) as gateway:
                others = Others((backend, bare, gateway))
                self.memory.add(others, asyncio.run(_weighed(gateway, bare, ids)))

    # -- the table -----------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[report.Line]:
        for direct, relayed in zip(self.direct, self.relayed, strict=True):
            yield from self._lines_of(direct, relayed)
        relayed = self.memory.values(lambda turn: turn.relayed)
        sdks = self.memory.values(lambda turn: turn.sdks)
        yield report.at_most(f"{self._options.streams:,} streams, each relayed", relayed, median(sdks), _KIB)
        yield report.measured("  each of the SDK's own", report.spread(sdks, _KIB))
        yield report.measured("used by others, requests", noise(side.turns for side in self.sides))
        yield report.measured("used by others, streams", noise([self.memory]))

    def _lines_of(self, direct: Side, relayed: Side) -> Iterator[report.Line]:
        name = direct.load.name
        slower = relayed.turns.beside(direct.turns, _p50)
        rates = relayed.turns.beside(direct.turns, _rate)
        if direct.load.connections == 1:
            yield report.at_most(f"{name}, p50", slower, LATENCY_TARGET, "{:.2f} of direct".format)
        elif direct.load.creates:
            yield report.measured(name, report.spread(rates, "{:.2f} of direct".format))
        else:
            yield report.at_least(name, rates, THROUGHPUT_TARGET, "{:.2f} of direct".format)
        for what, side in (("direct", direct), ("relayed", relayed)):
            rate, p50 = median(side.turns.values(_rate)), median(side.turns.values(_p50)) * 1e3
            yield report.measured(f"  {what}", f"{rate:,.0f}/s, p50 {p50:.2f} ms")
        backend = median(direct.turns.values(lambda turn: turn.backend)) * 1e3
        gateway = median(relayed.turns.values(lambda turn: turn.gateway)) * 1e3
        yield report.measured("  processor, a request", f"backend {backend:.2f} ms, gateway {gateway:.2f} ms")


async def _weighed(gateway: Server, bare: Server, ids: Sequence[str]) -> Memory:
    async with crowded(bare, [load.listen_for_tools()] * len(ids)) as sdks:
        pass
    async with crowded(gateway, [load.listen(each) for each in ids]) as relayed:
        pass
    return Memory(relayed, sdks)


def _rate(turn: Turn) -> float:
    return turn.rate


def _p50(turn: Turn) -> float:
    return turn.p50


_KIB: Final = "{:.1f} KiB".format


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--connections", type=int, default=32, help="of the throughput")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn")
    parser.add_argument("--turns", type=int, default=16, help="that count, of each")
    parser.add_argument("--polled", type=int, default=500, help="how many different tasks tasks/get asks for")
    parser.add_argument("--streams", type=int, default=1_000, help="open at once")
    parser.add_argument("--memory-turns", type=int, default=3, help="that count, of the streams")
    options = parser.parse_args(arguments)
    # Two handles a stream in the gateway, which inherits the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        figures = Figures(options, Path(folder))
        figures.measure()
    title = f"Gateway: one hop, {options.turns} turns of {options.seconds:g} s each, {options.streams:,} streams"
    return report.conclude(title, figures.lines(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
