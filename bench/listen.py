"""How soon who listens for a task reads of its change, and what listening costs: streams over HTTP, beside polling.

Tasks wait and show what is said of them. It is said by a timetable, in the process that commits the change, which
tells when it asked for the change and when it knew it committed: the store's verb had returned, so the commit (with its
fsync, if there is one) and the way back to the event loop are over. By the same clock this process notes when it read
the bytes of the frame. What lies between is what listening adds; "with the commit" begins where it was asked for. The
same tasks are polled meanwhile, each once a second.

    same process                  one server commits and is listened to, on SQLite
    another process, SQLite       a server is listened to, and another one on the same file commits
    another replica, PostgreSQL   the same with a database

Then thousands of streams on one server. Its memory is taken with a fifth and with all of them open, as is that of a
bare SDK server whose streams listen for tools; both are fresh processes. With all of them open, one task after the
other is changed. Then comes a burst of changes, in which readers may miss states but not the last one. Clients that
come and hang up must leave nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import quantiles
from typing import Final

from . import report
from .backends import PostgreSQL
from .listeners import Burst, Crowd, Heard, Held, burst, crowd, heard, left, waiting
from .processes import Server, serving
from .quiet import Consumer, Others, Turns, noise
from .replicas import replica

SAME_TARGET: Final = 5.0
"""Milliseconds, for half of the changes; as the next two."""
FILE_TARGET: Final = 25.0
REPLICA_TARGET: Final = 15.0
MEMORY_TARGET: Final = 10.0
"""KiB that a stream takes above one of the SDK's own."""
CROWD_TARGET: Final = 50.0
"""Milliseconds, for 99 of 100 changes, with all the streams open."""


class Figures:
    """What is measured, in a folder; `turns` turns of each count."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self.same, self.file, self.replica = (Turns[Heard](options.turns) for _ in range(3))
        self.crowds, self.bursts = Turns[Crowd](options.turns), Turns[Burst](options.turns)
        self.rate, self.left = 0.0, Held(0, 0, 0)

    def measure(self, backend: PostgreSQL) -> None:
        with self._replica(self._file("same")) as server:
            self._latency("same process", self.same, server, server)
            report.say("tasks for many streams, and clients that come and go")
            # Made by a process that is gone when they are listened to: whoever is measured has an untouched heap.
            handles = asyncio.run(waiting(server, max(self._options.streams, self._options.burst_streams)))
            self.rate, self.left = asyncio.run(left(server, list(handles)[:100], self._options.connects))
        self._many(handles)
        file, database = self._file("file"), backend.url("listen")
        with self._replica(file, "--no-worker") as listened, self._replica(file) as committing:
            self._latency("another process on one file", self.file, listened, committing)
        with self._replica(database, "--no-worker") as listened, self._replica(database) as committing:
            self._latency("another replica on PostgreSQL", self.replica, listened, committing, backend.server)

    def _latency(
        self, name: str, turns: Turns[Heard], listened: Server, committing: Server, *database: Consumer
    ) -> None:
        given = self._options
        while not turns.enough:
            report.say(name)
            others = Others({listened, committing, *database})
            measured = heard(
                listened,
                committing,
                tasks=given.tasks,
                changes=given.changes,
                rate=given.rate,
                polled_every=given.polled_every,
            )
            turns.add(others, asyncio.run(measured))

    def _many(self, handles: Mapping[str, str]) -> None:
        given = self._options
        listened, bursting = (dict(itertools.islice(handles.items(), n)) for n in (given.streams, given.burst_streams))
        while not (self.crowds.enough and self.bursts.enough):
            with serving("listened") as bare, self._replica(self._file("same")) as server:
                report.say("many streams")
                others = Others((bare, server))
                came = asyncio.run(crowd(server, bare, listened, changes=given.crowd_changes, rate=given.rate))
                self.crowds.add(others, came)
                report.say("a burst")
                others = Others((bare, server))
                burst_ = burst(server, bursting, rate=given.burst_rate, seconds=given.burst_seconds)
                self.bursts.add(others, asyncio.run(burst_))

    def _file(self, name: str) -> str:
        return f"sqlite:///{self._folder / name}.db"

    def _replica(self, url: str, *options: str) -> AbstractContextManager[Server]:
        return replica(url, self._folder, "serve", "--port", "0", *options)

    # -- the table -----------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[report.Line]:
        for name, turns, target in (
            ("same process", self.same, SAME_TARGET),
            ("another process, SQLite", self.file, FILE_TARGET),
            ("another replica, PostgreSQL", self.replica, REPLICA_TARGET),
        ):
            yield report.at_most(f"{name}, p50", turns.values(lambda turn: _p50(turn.listening)), target, _MS)
            yield _measured("  p99", turns.values(lambda turn: _p99(turn.listening)), _MS)
            yield _measured("  with the commit, p50", turns.values(lambda turn: _p50(turn.whole)), _MS)
            yield _measured("  polled, p50", turns.values(lambda turn: _p50(turn.polling)), _MS)
        yield from self._crowd_lines()
        yield from self._burst_lines()
        yield report.measured("streams opened and hung up on", f"{self._options.connects:,}, {self.rate:,.0f} a second")
        for what, count in (
            ("streams", self.left.streams),
            ("tasks of asyncio", self.left.tasks),
            ("file handles", self.left.handles),
        ):
            yield report.at_most(f"  {what} left over", [count], 0, _WHOLE)
        yield report.measured("used by others, latencies", noise([self.same, self.file, self.replica]))
        yield report.measured("used by others, streams", noise([self.crowds]))

    def _crowd_lines(self) -> Iterator[report.Line]:
        crowds = self.crowds
        yield _measured(f"{self._options.streams:,} streams, each", crowds.values(lambda turn: turn.ours), _KIB)
        yield _measured("  each of the SDK's own", crowds.values(lambda turn: turn.sdks), _KIB)
        above = crowds.values(lambda turn: turn.ours - turn.sdks)
        yield report.at_most("  above the SDK's own", above, MEMORY_TARGET, _KIB)
        yield _measured("  change of one task, p50", crowds.values(lambda turn: _p50(turn.latencies)), _MS)
        late = crowds.values(lambda turn: _p99(turn.latencies))
        yield report.at_most("  change of one task, p99", late, CROWD_TARGET, _MS)

    def _burst_lines(self) -> Iterator[report.Line]:
        given, bursts = self._options, self.bursts
        name = f"burst of {given.burst_seconds:g} s to {given.burst_streams:,} streams"
        rates = bursts.values(lambda turn: turn.rate)
        yield report.at_least(name, rates, 0.9 * given.burst_rate, "{:,.0f} changes/s".format)
        frames = bursts.values(lambda turn: len(turn.latencies) / turn.changes)
        yield _measured("  frames a change", frames, "{:.2f}".format)
        yield _measured("  with the commit, p50", bursts.values(lambda turn: _p50(turn.latencies)), _MS)
        yield _measured("  with the commit, p99", bursts.values(lambda turn: _p99(turn.latencies)), _MS)
        cut_off, behind = (sum(map(of, bursts.everything)) for of in (_cut_off, _behind))
        yield report.at_most("  streams cut off", [cut_off], 0, _WHOLE)
        yield report.at_most("  streams not at the newest state", [behind], 0, _WHOLE)


_MS: Final = "{:.1f} ms".format
_KIB: Final = "{:.1f} KiB".format
_WHOLE: Final = "{:.0f}".format


def _measured(name: str, values: Sequence[float], form: Callable[[float], str]) -> report.Line:
    return report.measured(name, report.spread(values, form))


def _p50(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[49]


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98]


def _cut_off(turn: Burst) -> int:
    return turn.cut_off


def _behind(turn: Burst) -> int:
    return turn.behind


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--turns", type=int, default=3, help="that count, of each figure")
    parser.add_argument("--tasks", type=int, default=20, help="that are listened to and polled")
    parser.add_argument("--changes", type=int, default=320, help="of those, in a turn")
    parser.add_argument("--rate", type=float, default=16.0, help="changes a second")
    parser.add_argument("--polled-every", type=float, default=1.0, help="seconds")
    parser.add_argument("--streams", type=int, default=5_000, help="open at once")
    parser.add_argument("--crowd-changes", type=int, default=400, help="while those are open")
    parser.add_argument("--burst-streams", type=int, default=1_000)
    parser.add_argument("--burst-rate", type=float, default=1_000.0, help="changes a second, of all tasks in turn")
    parser.add_argument("--burst-seconds", type=float, default=5.0)
    parser.add_argument("--connects", type=int, default=10_000, help="streams that are opened and hung up on")
    options = parser.parse_args(arguments)
    # A handle a stream, here and in the servers, which inherit the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        figures = Figures(options, Path(folder))
        with PostgreSQL(Path(folder)) as backend:
            figures.measure(backend)
            title = (
                f"Listening: {options.tasks} tasks, {options.rate:g} changes a second; PostgreSQL {backend.describe()}"
            )
    return report.conclude(title, figures.lines(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
