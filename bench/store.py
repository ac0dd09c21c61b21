"""What a store does in a second, and what a million finished tasks do to a claim.

Group commit is measured beside the same store with one transaction for each operation, and beside what lies beneath
both: a bare insert a commit, and the disk's fsync. All of them take turns within one run.

A claim is timed alternately in a store with nothing but its due tasks and in one that also holds `--finished` tasks
that are over. Once as a worker sees it, with the commit, most of which is the disk; and once without, where a claim
that came to scan the finished ones could not hide behind an fsync.
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
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from perdure.domain import ids
from perdure.domain.model import Claim, Completed, Demand, NewTask, Operation, Owner
from perdure.store.base import Store

from . import report
from .backends import BACKENDS, Backend
from .quiet import Others, Turns, noise

CREATES_TARGET: Final = 10_000
CLAIMS_TARGET: Final = 5_000
FULL_TARGET: Final = 1.5

_OWNER: Final = Owner("", "bench")
_OPERATION: Final = Operation("tools/call", "generate_report", {"arguments": {"size": "large"}})
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
        accepts=frozenset({"elicitation"}),
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


class Rates:
    """Operations a second of one way to commit; `wanted` turns of each count."""

    def __init__(self, wanted: int) -> None:
        self.creates = Turns[float](wanted)
        self.claims = Turns[float](wanted)
        self.batches = Turns[float](wanted)

    async def take_turn(self, store: Store, callers: int, count: int) -> None:
        """Make tasks; then half of them are claimed one by one, and half as a worker with so many slots does it."""
        others = Others()
        self.creates.add(others, await together(callers, count, lambda: store.create(new_task())))
        session = await store.open_session(_LEASE_MS, {})

        async def one() -> None:
            (claim,) = await store.claim(session.id, [Demand(_OPERATION.handler, 1)], 1)
            await store.finish(claim, _RESULT)

        others = Others()
        self.claims.add(others, await together(callers, count // 2, one))
        others = Others()
        self.batches.add(others, await _as_worker(store, session.id, callers, count - count // 2))

    @property
    def figures(self) -> tuple[Turns[float], ...]:
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


async def compare_claims(backend: Backend, names: tuple[str, str], count: int) -> tuple[Claims, Claims]:
    """Claims in two stores, alternately, `count` in each."""
    found = (Claims(), Claims())
    async with opened(backend.store(names[0])) as first, opened(backend.store(names[1])) as second:
        stores = (first, second)
        sessions = [await store.open_session(_LEASE_MS, {}) for store in stores]
        for store in stores:
            await together(50, count + 1, lambda store=store: store.create(new_task()))
        alone = [
            backend.claims(*pair, _OPERATION.handler) for pair in zip(names, (s.id for s in sessions), strict=True)
        ]
        for turn in range(count):
            order = (0, 1) if turn % 2 else (1, 0)
            for index in order:
                found[index].alone.append(alone[index]())
                started = time.perf_counter()
                (claim,) = await stores[index].claim(sessions[index].id, [Demand(_OPERATION.handler, 1)], 1)
                found[index].committed.append(time.perf_counter() - started)
                await stores[index].finish(claim, _RESULT)
    return found


# The report -----------------------------------------------------------------------------------------------------------


class Throughput:
    """What is measured of creates and claims, and of what lies beneath them; `wanted` turns of each count."""

    def __init__(self, backend: Backend, wanted: int) -> None:
        self._backend = backend
        self.fsyncs = Turns[list[float]](wanted)
        self.bare = Turns[float](wanted)
        self.single = Rates(wanted)
        self.grouped = Rates(wanted)

    async def measure(self, folder: Path, callers: int, tasks: int) -> None:
        turn = 0
        while not all(figure.enough for figure in self.figures):
            turn += 1
            report.say(f"turn {turn}")
            others = Others()
            self.fsyncs.add(others, fsyncs(folder / "appended", tasks // 20))
            others = Others()
            self.bare.add(others, self._backend.bare_inserts(tasks // 10))
            async with opened(self._backend.store(f"single{turn}", grouped=False)) as store:
                await self.single.take_turn(store, callers, tasks // 10)
            async with opened(self._backend.store(f"grouped{turn}")) as store:
                await self.grouped.take_turn(store, callers, tasks)

    @property
    def figures(self) -> tuple[Turns[float], ...]:
        return (self.bare, *self.single.figures, *self.grouped.figures)

    def lines(self) -> Iterator[report.Line]:
        rate = "{:,.0f}/s".format
        single, grouped = self.single, self.grouped
        waits = [seconds for turn in self.fsyncs.counted for seconds in turn]
        yield report.measured("fsync after 4 KiB", report.latencies(waits))
        yield report.measured("bare insert, a commit each", report.spread(self.bare.counted, rate))
        yield report.measured("create, a commit each", report.spread(single.creates.counted, rate))
        yield report.at_least("create, group commit", grouped.creates.counted, CREATES_TARGET, rate)
        yield report.measured("claim and complete, a commit each", report.spread(single.claims.counted, rate))
        yield report.at_least("claim and complete, group commit", grouped.claims.counted, CLAIMS_TARGET, rate)
        yield report.measured("  as one worker with as many slots", report.spread(grouped.batches.counted, rate))
        yield report.measured("used by others meanwhile", noise(self.figures))


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


def claim_lines(empty: Claims, full: Claims, finished: int) -> Iterator[report.Line]:
    ratio = "{:.2f} times".format
    yield report.measured("claim, nothing else stored", report.latencies(empty.committed))
    yield report.measured(f"claim, {finished:,} finished", report.latencies(full.committed))
    yield report.at_most("  p50 to p50", [median(full.committed) / median(empty.committed)], FULL_TARGET, ratio)
    yield report.measured("claim without commit, nothing else", report.latencies(empty.alone))
    yield report.measured(f"claim without commit, {finished:,}", report.latencies(full.alone))
    yield report.at_most("  p50 to p50", [median(full.alone) / median(empty.alone)], FULL_TARGET, ratio)


async def measure(backend: Backend, folder: Path, options: argparse.Namespace) -> list[report.Line]:
    throughput = Throughput(backend, options.turns)
    await throughput.measure(folder, options.callers, options.tasks)
    report.say(f"a store of {options.finished:,} finished tasks")
    await prepare_full(backend, "full", options.finished)
    empty, full = await compare_claims(backend, ("empty", "full"), options.claims)
    return [*throughput.lines(), *claim_lines(empty, full, options.finished)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--store", choices=BACKENDS, default="sqlite")
    parser.add_argument("--callers", type=int, default=128)
    parser.add_argument("--tasks", type=int, default=5_000, help="created in a turn; a tenth of it without grouping")
    parser.add_argument("--turns", type=int, default=9, help="that count, of each figure")
    parser.add_argument("--finished", type=int, default=1_000_000, help="tasks in the full store")
    parser.add_argument("--claims", type=int, default=1_000, help="timed in each of the two stores")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        lines = asyncio.run(measure(BACKENDS[options.store](Path(folder)), Path(folder), options))
    title = f"Store: {options.store}, {options.callers} callers, {options.turns} turns of {options.tasks:,} tasks"
    return report.conclude(title, lines, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
