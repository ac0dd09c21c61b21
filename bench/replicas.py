"""The app whose replicas are measured, and those replicas as processes.

    BENCH_NOTES=/tmp/notes perdure worker bench.replicas:mcp --store postgresql://…

Its tools note when they got where, each process in a file of its own; the clock is the same in all of them. Tasks of
`work` change when they are told to: by `say` and `burst`, which are no tasks, and which any process can be asked for.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from perdure import Handle, TaskContext, Tasks

from .processes import ROOT, Server, stop

__all__ = ["Note", "notes", "replica", "running"]

_UP: Final = re.compile(rb"^perdure: (?:working for|serving .* on http://\S*:(\d+)/mcp$)", re.MULTILINE)
_UP_WITHIN: Final = 60.0

tasks = Tasks("sqlite:///tasks.db")
mcp = tasks.server("bench", version="1", log_level="WARNING")


class Approval(BaseModel):
    approved: bool


@tasks.tool()
async def short(task: TaskContext) -> str:
    """Be done at once."""
    note(task.id, "done")
    return "done"


@tasks.tool()
async def ask(task: TaskContext) -> str:
    """Wait for a person."""
    await task.elicit("approve", "Go on?", Approval)
    note(task.id, "answered")
    return "done"


@tasks.tool()
async def hold(task: TaskContext) -> None:
    """Go on until cancelled."""
    note(task.id, "holds")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(task.id, "cancelled")
        raise


@tasks.tool()
async def work(task: TaskContext) -> str:
    """Park, and show what is said."""
    return await task.external("work", _keep, returns=str)


# What is said of those that work --------------------------------------------------------------------------------------

_parked: Final[list[str]] = []


async def _keep(handle: Handle) -> None:
    _parked.append(str(handle))


class Said(BaseModel):
    """When a change was asked for, and when it was known to be committed: nanoseconds of `time.monotonic_ns`."""

    asked: int
    committed: int


class Burst(BaseModel):
    """How many changes were committed, and the seconds from the first until all of them were."""

    changes: int
    seconds: float


class Counts(BaseModel):
    """What this process has just now."""

    tasks: int
    """Of asyncio."""
    streams: int
    """That somebody listens on."""


@mcp.tool()
async def handles() -> list[str]:
    """The handles of the tasks that came to wait in this process."""
    return _parked


@mcp.tool()
async def say(handle: str, message: str) -> Said:
    """Change a task's status message."""
    asked = time.monotonic_ns()
    await tasks.external.report(handle, message)
    return Said(asked=asked, committed=time.monotonic_ns())


@mcp.tool()
async def burst(handles: list[str], rate: float, seconds: float) -> Burst:
    """Change so many status messages a second, of the tasks in turn. Each message is the instant of asking."""
    started, changes = time.monotonic(), int(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for number, handle in zip(range(changes), itertools.cycle(handles), strict=False):
            await asyncio.sleep(started + number / rate - time.monotonic())
            group.create_task(tasks.external.report(handle, str(time.monotonic_ns())))
    return Burst(changes=changes, seconds=time.monotonic() - started)


@mcp.tool()
async def counts() -> Counts:
    return Counts(tasks=len(asyncio.all_tasks()), streams=tasks.assembly.runtime.snapshots.subscribed)


# What they note -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """That a task was there. `at`: seconds, as `time.monotonic` has them in every process."""

    task_id: str
    what: str
    at: float
    process: int


def note(task_id: str, what: str) -> None:
    os.write(_file(), f"{task_id} {what} {time.monotonic_ns()}\n".encode())


@cache
def _file() -> int:
    return os.open(Path(os.environ["BENCH_NOTES"]) / str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def notes(folder: Path) -> list[Note]:
    """All that was noted in `folder` so far."""
    return [
        Note(task_id, what, int(at) / 1e9, int(file.name))
        for file in folder.iterdir()
        for task_id, what, at in map(str.split, file.read_text().splitlines())
    ]


# Processes ------------------------------------------------------------------------------------------------------------


@contextmanager
def replica(url: str, folder: Path, *command: str, app: str = __name__) -> Generator[Server]:
    """`perdure COMMAND[0] APP:mcp …` on that store, for the length of the block; its notes go to `folder`.

    It is up when the block begins. `port` is where it serves, 0 if it doesn't.
    """
    with running([command[0], f"{app}:mcp", "--store", url, *command[1:]], BENCH_NOTES=str(folder)) as server:
        yield server


@contextmanager
def running(arguments: Sequence[str], **environment: str) -> Generator[Server]:
    """`perdure ARGUMENTS`, up when the block begins."""
    perdure, env = str(Path(sys.executable).with_name("perdure")), {**os.environ, **environment}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([perdure, *arguments], cwd=ROOT, env=env, stderr=log) as process,
    ):
        try:
            yield Server(process.pid, _port(log.fileno(), process))
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read(20_000))
            raise
        finally:
            stop(process)


def _port(log: int, process: subprocess.Popen[bytes]) -> int:
    """Where it serves, once it does."""
    deadline = time.monotonic() + _UP_WITHIN
    while (up := _UP.search(os.pread(log, 20_000, 0))) is None or not _accepts(port := int(up[1] or 0)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the replica did not begin")
        time.sleep(0.01)
    return port


def _accepts(port: int) -> bool:
    """A server says where it serves a moment before it does. A worker has no port."""
    with socket.socket() as probe:
        return not port or probe.connect_ex(("127.0.0.1", port)) == 0
