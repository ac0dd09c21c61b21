"""What it costs a client to wait for many tasks at once: `perdure.client`, over one stream and over one poll loop.

A real server, whose tasks nobody runs, so that they stay as they are; and this process, which starts them and waits for
all of them. Once the streams are settled, its processor time is taken over some seconds, with what it asked meanwhile.
Then the tasks are cancelled, to see that each wait ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client

from perdure.client import HTTP, TaskCancelled, TaskHandle, Tasks

from . import report
from .processes import Server, serving
from .quiet import Others, Turns, noise

CPU_TARGET: Final = 30.0
"""Per cent of one core."""
STREAMS_TARGET: Final = 10
"""Opened for all that were started one after the other."""
AT_ONCE_TARGET: Final = 2
"""Open at once: the one that tells, and the one that is to take its place."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A turn.

    `cpu`: per cent of a core. `polls`: what was asked a second. `streams`: opened in all; `at_once`: open at most.
    `ended`: seconds until all waits ended.
    """

    cpu: float
    polls: float
    streams: int
    at_once: int
    ended: float


class Counted:
    """Counts the requests of a session by their methods: those `sent`, and the `most` that were open at a time."""

    def __init__(self, client: Client) -> None:
        self.sent: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._send = client.session.send_request
        client.session.send_request = self

    async def __call__(self, request: Any, *arguments: Any, **options: Any) -> Any:
        method = request.method
        self.sent[method] += 1
        self._open[method] += 1
        self.most[method] = max(self.most[method], self._open[method])
        try:
            return await self._send(request, *arguments, **options)
        finally:
            self._open[method] -= 1


async def waiting(client: Client, tasks: Tasks, count: int, group: anyio.abc.TaskGroup) -> list[TaskHandle]:
    """Start them one after the other, and wait for each from then on."""

    async def wait(handle: TaskHandle) -> None:
        with suppress(TaskCancelled):
            await handle.result()

    handles: list[TaskHandle] = []
    for _ in range(count):
        handles.append(await tasks.start(client, "nothing"))
        group.start_soon(wait, handles[-1])
    return handles


async def turn(server: Server, count: int, settle: float, seconds: float, *, listen: bool) -> Idle:
    tasks = Tasks(listen=listen)
    async with Client(HTTP(f"http://127.0.0.1:{server.port}/mcp"), extensions=[tasks]) as client:
        counted = Counted(client)
        used = polls = cancelled = 0.0
        async with anyio.create_task_group() as group:
            handles = await waiting(client, tasks, count, group)
            await asyncio.sleep(settle)
            before, cpu, started = counted.sent.copy(), sum(os.times()[:2]), time.perf_counter()
            await asyncio.sleep(seconds)
            took = time.perf_counter() - started
            used = 100 * (sum(os.times()[:2]) - cpu) / took
            polls = (counted.sent - before)["tasks/get"] / took
            for handle in handles:
                await handle.cancel()
            cancelled = time.perf_counter()
        ended = time.perf_counter() - cancelled
    tasks.journal.close()
    streams = "subscriptions/listen"
    return Idle(used, polls, counted.sent[streams], counted.most[streams], ended)


def lines(name: str, turns: Turns[Idle], *, listens: bool) -> Iterator[report.Line]:
    yield report.at_most(f"{name}, processor", turns.values(lambda one: one.cpu), CPU_TARGET, "{:.1f} %".format)
    yield report.measured("  polls", report.spread(turns.values(lambda one: one.polls), "{:.1f}/s".format))
    streams = turns.values(lambda one: one.streams)
    yield report.at_most("  streams opened in all", streams, STREAMS_TARGET if listens else 0, "{:.0f}".format)
    at_once = turns.values(lambda one: one.at_once)
    yield report.at_most("  streams open at once", at_once, AT_ONCE_TARGET if listens else 0, "{:.0f}".format)
    ended = turns.values(lambda one: one.ended)
    yield report.measured("  from the last cancel to the last wait's end", report.spread(ended, "{:.2f} s".format))
    yield report.measured("  used by others", noise([turns]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--handles", type=int, default=1_000)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before it is measured")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(arguments)
    listening, polling = Turns[Idle](options.turns), Turns[Idle](options.turns)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        for number, (turns, listen) in enumerate([(listening, True), (polling, False)]):
            while not turns.enough:
                report.say("listening" if listen else "polling")
                store = Path(folder) / f"{number}-{len(turns.everything)}.db"
                with serving("perdure", "--no-worker", "--store", f"sqlite:///{store}") as server:
                    others = Others([server])
                    measured = turn(server, options.handles, options.settle, options.seconds, listen=listen)
                    turns.add(others, asyncio.run(measured))
    title = f"Handles: one client process that waits for {options.handles:,} tasks of one server"
    figures = [*lines("listening", listening, listens=True), *lines("polling", polling, listens=False)]
    return report.conclude(title, figures, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
