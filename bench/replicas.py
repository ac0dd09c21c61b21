"""The app whose replicas are measured on PostgreSQL, and those replicas as processes.

    BENCH_NOTES=/tmp/notes perdure worker bench.replicas:mcp --store postgresql://…

Its tools note when they got where, each process in a file of its own; the clock is the same in all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from perdure import TaskContext, Tasks

from .processes import ROOT, Server, stop

__all__ = ["Note", "notes", "replica"]

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
def replica(url: str, folder: Path, *command: str) -> Generator[Server]:
    """`perdure COMMAND[0] bench.replicas:mcp …` on that store, for the length of the block; its notes go to `folder`.

    It is up when the block begins. `port` is where it serves, 0 if it doesn't.
    """
    perdure = str(Path(sys.executable).with_name("perdure"))
    arguments = [perdure, command[0], f"{__name__}:mcp", "--store", url, *command[1:]]
    env = {**os.environ, "BENCH_NOTES": str(folder)}
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(arguments, cwd=ROOT, env=env, stderr=log) as process:
        try:
            yield Server(process.pid, _port(log.fileno(), process))
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read(20_000))
            raise
        finally:
            stop(process)


def _port(log: int, process: subprocess.Popen[bytes]) -> int:
    """Where it serves, as it says once it is up."""
    deadline = time.monotonic() + _UP_WITHIN
    while (up := _UP.search(os.pread(log, 20_000, 0))) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the replica did not begin")
        time.sleep(0.01)
    return int(up[1] or 0)
