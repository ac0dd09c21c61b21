"""The app whose workers are measured, and those workers as processes.

BENCH_LEASE=30s perdure worker bench.workers:mcp --store sqlite:////tmp/tasks.db
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure import TaskContext, Tasks
from perdure.domain import ids
from perdure.domain.model import JSONObject, NewTask, Operation, Owner
from perdure.store.base import Store

from .processes import ROOT, Server

WITHIN: Final = 600.0
"""Seconds after which something that must happen is held not to happen."""
_OWNER: Final = Owner("", "bench")

tasks = Tasks("sqlite:///tasks.db", lease=os.environ.get("BENCH_LEASE", "30s"))
mcp = tasks.server("bench", version="1", log_level="WARNING")


@tasks.tool()
async def hold() -> None:
    """Go on until the process ends."""
    await asyncio.Event().wait()


@tasks.tool()
async def nap(seconds: float, task: TaskContext) -> str:
    """Sleep for a while, parked."""
    await task.sleep(seconds)
    return "awake"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process and its lease."""

    process: Server
    session: str


async def create(store: Store, tool: str, all_arguments: Sequence[JSONObject], callers: int = 64) -> None:
    """Make a task of each; so many at once."""
    left = iter(all_arguments)

    async def caller() -> None:
        for arguments in left:
            params: JSONObject = {"arguments": arguments}
            await store.create(NewTask(ids.mint(secrets.token_bytes), _OWNER, Operation("tools/call", tool, params)))

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


def until(found: sqlite3.Connection, query: str, wanted: Any, *values: object, pause: float = 0.01) -> float:
    """Wait until the query's first value is `wanted`; the seconds that it took."""
    started = time.perf_counter()
    while (now := found.execute(query, values).fetchone()[0]) != wanted:
        if time.perf_counter() - started > WITHIN:
            raise TimeoutError(f"{query} is {now}, and not {wanted}")
        time.sleep(pause)
    return time.perf_counter() - started


def reading(store: Path) -> contextlib.closing[sqlite3.Connection]:
    """A connection that reads the store."""
    return closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30, isolation_level=None))


@contextlib.contextmanager
def working(store: Path, *options: str, lease: str = "30s", apart: bool = False) -> Generator[Worker]:
    """`perdure worker` for the length of the block. `apart`: in a PID namespace, which no neighbour sees into.

    Raises:
        PermissionError: this user may make no such namespace.
    """
    perdure = Path(sys.executable).with_name("perdure")
    command = [str(perdure), "worker", f"{__name__}:mcp", "--store", f"sqlite:///{store}", *options]
    if apart:
        command = ["unshare", "--pid", "--fork", "--kill-child", *command]
    env = {**os.environ, "BENCH_LEASE": lease}
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, cwd=ROOT, env=env, stderr=log) as process:
        try:
            session = _session(store, process)
            yield Worker(Server(_worker_pid(process.pid) if apart else process.pid, 0), session)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read(20_000))
            raise
        finally:
            process.kill()


def may_be_apart() -> bool:
    """Whether this user may make PID namespaces."""
    return (
        subprocess.run(["unshare", "--pid", "--fork", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    )


def _session(store: Path, process: subprocess.Popen[bytes]) -> str:
    """The lease that the worker takes out: one that was not there before. Workers are started one after the other."""
    before = _sessions(store)
    started = time.perf_counter()
    while not (new := _sessions(store) - before):
        if process.poll() is not None or time.perf_counter() - started > 60:
            raise RuntimeError("the worker did not begin")
        time.sleep(0.01)
    (session,) = new
    return session


def _sessions(store: Path) -> set[str]:
    with reading(store) as connection:
        return {id_ for (id_,) in connection.execute("SELECT id FROM session")}


def _worker_pid(unshare: int) -> int:
    """What runs inside the namespace, by the pid that it has outside."""
    return int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0])
