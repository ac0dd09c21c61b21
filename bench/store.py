"""What a store does in a second, and what a million finished tasks do to a claim.

Group commit is measured beside the same store with one transaction for each operation, and beside what lies beneath
both: a bare insert a commit, and the disk's fsync. All of them take turns within one run.

A claim is timed alternately in a store with nothing but its due tasks and in those that also hold `--finished` tasks
that are over. Once as a worker sees it, with the commit, most of which is the disk; and once without, where a claim
that came to scan the finished ones could not hide behind an fsync. On PostgreSQL it is timed once more in the fullest
store, under a steady load, while another connection holds a snapshot open (`bench.snapshot`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from perdure.domain import ids
from perdure.domain.model import Claim, Completed, Demand, NewTask, Operation, Owner
from perdure.store.base import Store

from . import report, snapshot
from .backends import BACKENDS, Backend, PostgreSQL
from .quiet import Consumer, Others, Turns, noise

FULL_TARGET: Final = 1.5

_OWNER: Final = Owner("", "bench")
_OPERATION: Final = Operation(
    "tools/call", "generate_report", {"arguments": {"size": "large"}}, accepts=frozenset({"elicitation"})
)
_RESULT: Final = Completed(
    {
        "content": [{"type": "text", "text": "The report was approved and written."}],
        "structuredContent": {"size": "large", "approved": True},
        "isError": False,
    }
)
_LEASE_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000


def new_task() -> NewTask:
    return NewTask(
        ids.mint(secrets.token_bytes),
        _OWNER,
        _OPERATION,
        ttl_ms=_DAY_MS,
        poll_ms=1000,
    )


async def together(callers: int, count: int, call: Callable[[], Awaitable[object]]) -> float:
    """Calls a second, when so many callers share `count` calls and each waits for one before it makes the next."""
    shares = iter(range(count))

    async def caller() -> None:
        for _ in shares:
            await call()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return count / (time.perf_counter() - started)


@asynccontextmanager
async def opened(store: Store) -> AsyncGenerator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# Throughput -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pace:
    """Operations a second, and the processor time of each in seconds, here and in the database's own processes."""

    rate: float
    here: float
    there: float


class Rates:
    """The pace of one way to commit; `wanted` turns of each count. `server`: the database, if it is not in here."""

    def __init__(self, wanted: int, server: Consumer | None) -> None:
        self._server = server
        self.creates = Turns[Pace](wanted)
        self.claims = Turns[Pace](wanted)
        self.batches = Turns[Pace](wanted)

    async def take_turn(self, store: Store, callers: int, count: int) -> None:
        """Make tasks; then half of them are claimed one by one, and half as a worker with so many slots does it."""
        half = count // 2
        await self._time(self.creates, count, lambda: together(callers, count, lambda: store.create(new_task())))
        session = await store.open_session(_LEASE_MS, {})

        async def one() -> None:
            (claim,) = await store.claim(session.id, [Demand(_OPERATION.handler, 1)], 1)
            await store.finish(claim, _RESULT)

        await self._time(self.claims, half, lambda: together(callers, half, one))
        rest = count - half
        await self._time(self.batches, rest, lambda: _as_worker(store, session.id, callers, rest))

    async def _time(self, turns: Turns[Pace], count: int, work: Callable[[], Awaitable[float]]) -> None:
        servers = [] if self._server is None else [self._server]
        others, here = Others(servers), time.process_time()
        there = [server.cpu_seconds() for server in servers]
        rate = await work()
        here = time.process_time() - here
        used = sum(server.cpu_seconds() - before for server, before in zip(servers, there, strict=True))
        turns.add(others, Pace(rate, here / count, used / count))

    @property
    def figures(self) -> tuple[Turns[Pace], ...]:
        return (self.creates, self.claims, self.batches)


async def _as_worker(store: Store, session_id: str, slots: int, count: int) -> float:
    """Claim-and-completes a second, when one worker refills whatever slots are free, as the engine's does."""
    running, left = set[asyncio.Task[object]](), count
    started = time.perf_counter()
    while left or running:
        free = min(slots - len(running), left)
        claims = await store.claim(session_id, [Demand(_OPERATION.handler, free)], free) if free else ()
        left -= len(claims)
        running |= {asyncio.create_task(_finish(store, claim)) for claim in claims}
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    return count / (time.perf_counter() - started)


async def _finish(store: Store, claim: Claim) -> object:
    return await store.finish(claim, _RESULT)


# A million finished tasks ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Claims:
    """Seconds of single claims in one store."""

    committed: list[float] = field(default_factory=list[float])
    alone: list[float] = field(default_factory=list[float])


async def prepare_full(backend: Backend, name: str, finished: int) -> None:
    """A store of finished tasks: the first one made by the store itself, the others copied from it in bulk."""
    async with opened(backend.store(name)) as store:
        await store.create(new_task())
        session = await store.open_session(_LEASE_MS, {})
        for claim in await store.claim(session.id, [Demand(_OPERATION.handler, 1)], 1):
            await store.finish(claim, _RESULT)
        await store.close_session(session.id)
    await asyncio.to_thread(backend.fill, name, finished)


async def compare_claims(backend: Backend, names: Sequence[str], count: int) -> list[Claims]:
    """Claims in several stores, in turns, `count` in each."""
    found = [Claims() for _ in names]
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(backend.store(name))) for name in names]
        sessions = [(await store.open_session(_LEASE_MS, {})).id for store in stores]
        for store in stores:
            await together(50, count + 1, lambda store=store: store.create(new_task()))
        alone = [
            await stack.enter_async_context(backend.claims(*pair, _OPERATION.handler))
            for pair in zip(names, sessions, strict=True)
        ]
        for turn in range(count):
            order = range(len(names))
            for index in order if turn % 2 else reversed(order):
                found[index].alone.append(await alone[index]())
                started = time.perf_counter()
                (claim,) = await stores[index].claim(sessions[index], [Demand(_OPERATION.handler, 1)], 1)
                found[index].committed.append(time.perf_counter() - started)
                await stores[index].finish(claim, _RESULT)
    return found


# The report -----------------------------------------------------------------------------------------------------------


class Throughput:
    """What is measured of creates and claims, and of what lies beneath them; `wanted` turns of each count."""

    def __init__(self, backend: Backend, wanted: int) -> None:
        self._backend = backend
        self._servers = [] if backend.server is None else [backend.server]
        self.fsyncs = Turns[list[float]](wanted)
        self.bare = Turns[float](wanted)
        self.single = Rates(wanted, backend.server)
        self.grouped = Rates(wanted, backend.server)

    async def measure(self, folder: Path, callers: int, tasks: int) -> None:
        turn = 0
        while not all(figure.enough for figure in self.figures):
            turn += 1
            report.say(f"turn {turn}")
            others = Others()
            self.fsyncs.add(others, fsyncs(folder / "appended", tasks // 20))
            others = Others(self._servers)
            self.bare.add(others, await self._backend.bare_inserts(tasks // 10))
            await self._take_turn(self.single, f"single{turn}", False, callers, tasks // 10)
            await self._take_turn(self.grouped, f"grouped{turn}", True, callers, tasks)

    async def _take_turn(self, rates: Rates, name: str, grouped: bool, callers: int, tasks: int) -> None:
        async with opened(self._backend.store(name, grouped=grouped)) as store:
            await rates.take_turn(store, callers, tasks)
        self._backend.remove(name)

    @property
    def figures(self) -> tuple[Turns[Any], ...]:
        return (self.bare, *self.single.figures, *self.grouped.figures)

    def lines(self) -> Iterator[report.Line]:
        rate = "{:,.0f}/s".format
        single, grouped, targets = self.single, self.grouped, self._backend.targets
        waits = [seconds for turn in self.fsyncs.counted for seconds in turn]
        yield report.measured("fsync after 4 KiB", report.latencies(waits))
        yield report.measured("bare insert, a commit each", report.spread(self.bare.counted, rate))
        yield report.measured("create, a commit each", report.spread(rates(single.creates), rate))
        yield report.at_least("create, group commit", rates(grouped.creates), targets.creates, rate)
        yield from self._processor(grouped.creates)
        yield report.measured("claim and complete, a commit each", report.spread(rates(single.claims), rate))
        yield report.at_least("claim and complete, group commit", rates(grouped.claims), targets.claims, rate)
        yield from self._processor(grouped.claims)
        yield report.measured("  as one worker with as many slots", report.spread(rates(grouped.batches), rate))
        yield from self._processor(grouped.batches)
        yield report.measured("used by others meanwhile", noise(self.figures))

    def _processor(self, turns: Turns[Pace]) -> Iterator[report.Line]:
        if self._servers:
            here = median(turns.values(lambda pace: pace.here)) * 1e6
            there = median(turns.values(lambda pace: pace.there)) * 1e6
            yield report.measured("    processor", f"{here:.0f} µs here, {there:.0f} µs in the database")


def rates(turns: Turns[Pace]) -> list[float]:
    return turns.values(lambda pace: pace.rate)


def fsyncs(path: Path, count: int) -> list[float]:
    """Seconds of an fsync after 4 KiB more were written to a file, the least that any durable write waits for."""
    latencies: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fsync(file.fileno())
            latencies.append(time.perf_counter() - started)
    return latencies


def claim_lines(backend: Backend, found: Sequence[Claims], finished: Sequence[int]) -> Iterator[report.Line]:
    """The first are those of the empty store."""
    yield from _claim_lines("claim", ", nothing else stored", [one.committed for one in found], finished)
    yield from _claim_lines(backend.without_disk, ", nothing else", [one.alone for one in found], finished)


def _claim_lines(
    what: str, empty: str, found: Sequence[Sequence[float]], finished: Sequence[int]
) -> Iterator[report.Line]:
    yield report.measured(f"{what}{empty}", report.latencies(found[0]))
    for count, times in zip(finished, found[1:], strict=True):
        yield report.measured(f"{what}, {count:,}" + (" finished" if what == "claim" else ""), report.latencies(times))
        yield report.at_most("  p50 to p50", [median(times) / median(found[0])], FULL_TARGET, "{:.2f} times".format)


async def measure(backend: Backend, folder: Path, options: argparse.Namespace) -> list[report.Line]:
    throughput = Throughput(backend, options.turns)
    await throughput.measure(folder, options.callers, options.tasks)
    finished: Sequence[int] = options.finished or backend.targets.finished
    fulls = [f"full_{count}" for count in finished]
    for name, count in zip(fulls, finished, strict=True):
        report.say(f"a store of {count:,} finished tasks")
        started = time.perf_counter()
        await prepare_full(backend, name, count)
        report.say(f"took {time.perf_counter() - started:.0f} s")
    found = await compare_claims(backend, ("empty", *fulls), options.claims)
    lines = [*throughput.lines(), *claim_lines(backend, found, finished)]
    if isinstance(backend, PostgreSQL):
        load = snapshot.Load(new_task, _RESULT, options.rate)
        beside = await snapshot.measure(backend, fulls[-1], load, options.held)
        lines += beside.lines(median(found[0].committed))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--store", choices=BACKENDS, default="sqlite")
    parser.add_argument("--callers", type=int, default=128)
    parser.add_argument("--tasks", type=int, default=5_000, help="created in a turn; a tenth of it without grouping")
    parser.add_argument("--turns", type=int, default=9, help="that count, of each figure")
    parser.add_argument("--finished", type=int, nargs="+", help="tasks in each of the full stores")
    parser.add_argument("--claims", type=int, default=1_000, help="timed in each of the stores")
    parser.add_argument("--held", type=float, default=60.0, help="seconds that a snapshot is held (PostgreSQL)")
    parser.add_argument("--rate", type=int, default=500, help="tasks a second meanwhile")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
        BACKENDS[options.store](Path(folder)) as backend,
    ):
        lines = asyncio.run(measure(backend, Path(folder), options))
        name = " ".join([options.store, *filter(None, [backend.describe()])])
    title = f"Store: {name}, {options.callers} callers, {options.turns} turns of {options.tasks:,} tasks"
    return report.conclude(title, lines, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
