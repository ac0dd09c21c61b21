"""An app as `deploy/` starts it: a tool that runs in workers, and plain ones that tell which server answers.

EFFECTS=effects.log PERDURE_STORE=postgresql://… perdure serve tests.acceptance.deployed:mcp --no-worker
"""

import asyncio
import os

from mcp.server.mcpserver import Context

from perdure import TaskContext, Tasks
from tests.acceptance.crash_server import Result, Run, opened

tasks = Tasks("sqlite:////nowhere/tasks.db")
mcp = tasks.server("deployed", version="1.0")


@tasks.tool(poll_interval="100ms")
async def short(label: str, task: TaskContext) -> Result:
    run = Run(task)
    await asyncio.sleep(0.01)
    return run.end()


@mcp.tool()
def who() -> int:
    return os.getpid()


@mcp.tool()
async def counted(gate: str, ctx: Context) -> str:
    """Say that it has begun, and wait for the file `gate`."""
    await ctx.report_progress(1, 2)
    while not opened(gate):  # noqa: ASYNC110 - by another process
        await asyncio.sleep(0.01)
    return "done"
