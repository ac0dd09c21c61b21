"""The app that is soaked: tasks that live for a minute, and are deleted soon after.

perdure serve bench.soaking:mcp --store sqlite:////tmp/tasks.db
"""

from __future__ import annotations

import os

from perdure import TaskContext, Tasks

tasks = Tasks(
    "sqlite:///tasks.db",
    linger=os.environ.get("BENCH_LINGER", "10s"),
    tombstone=os.environ.get("BENCH_TOMBSTONE", "30s"),
    backlog=None,
    polls=None,
)
mcp = tasks.server("soak", version="1", log_level="WARNING")


def look(size: int) -> str:
    return "x" * size


@tasks.tool(ttl=os.environ.get("BENCH_TTL", "60s"))
async def work(size: int, task: TaskContext) -> str:
    """A step and a result, of so many characters each."""
    await task.report("on its way")
    return await task.step("look", look, size)
