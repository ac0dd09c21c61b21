"""An app whose tasks are run by workers apart from its server, and which comes in versions.

    EFFECTS=effects.log perdure serve tests.acceptance.fleet:mcp --no-worker --store sqlite:///tasks.db
    EFFECTS=effects.log perdure worker tests.acceptance.fleet:mcp --store sqlite:///tasks.db

The log of effects is that of `crash_server.py`. In the environment: LEASE, GRACE and CLEANUP are durations, VERSION is
that of the tool `report`, and KEEPS, if there, keeps the code of it that had no version yet.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer

from perdure import SyncTaskContext, TaskContext, Tasks
from tests.acceptance.crash_server import Result, Run, never_cancelled, opened

VERSION = os.environ.get("VERSION", "")


@asynccontextmanager
async def lifespan(server: MCPServer[Any]) -> AsyncGenerator[dict[str, str]]:
    yield {"pool": f"of {server.name}"}


tasks = Tasks(
    "sqlite:///tasks.db",
    lease=os.environ.get("LEASE", "30s"),
    grace=os.environ.get("GRACE", "10s"),
    cleanup=os.environ.get("CLEANUP", "10s"),
)
mcp = tasks.server("fleet", version="1.0", lifespan=lifespan)
tool = tasks.tool(poll_interval="100ms")


async def gone_through(gate: str) -> None:
    while not opened(gate):  # noqa: ASYNC110 - by another process
        await asyncio.sleep(0.01)


@tool
async def short(label: str, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(0.01)
    return run.end(pool=task.lifespan_context["pool"])


@tool
async def waiting(label: str, gate: str, task: TaskContext) -> Result:
    """Wait until the file `gate` is there, or one that ends in this process's id."""
    run = Run(task)
    await gone_through(gate)
    return run.end()


@tool
def threaded(label: str, seconds: float, task: SyncTaskContext) -> Result:
    run = Run(task)
    time.sleep(seconds)
    return run.end()


@tool
async def cancellable(label: str, task: TaskContext) -> Result:
    run = Run(task)
    try:
        await asyncio.Event().wait()
    finally:
        run.note("told to stop")
    return run.end()


@tasks.tool(poll_interval="100ms", timeout="300ms")
async def hung(label: str, gate: str, task: TaskContext) -> Result:
    """Wait for the gate, and do not stop when told to."""
    run = Run(task)
    await never_cancelled(gate)
    return run.end()


@tasks.tool(poll_interval="100ms", queue="slow")
async def slow(label: str, task: TaskContext) -> Result:
    return Run(task).end()


@tasks.tool(poll_interval="100ms", version=VERSION or None)
async def report(label: str, gate: str, task: TaskContext) -> Result:
    run = Run(task)
    await gone_through(gate)
    return run.end(version=VERSION)


if "KEEPS" in os.environ:

    @tasks.retired("report", version=None)
    async def former_report(label: str, gate: str, task: TaskContext) -> Result:
        run = Run(task)
        await gone_through(gate)
        return run.end(version="")
