"""A server to be killed while its jobs go on.

JOBS=/path python tests/adapters/job_server.py --port 8000 --store sqlite:///tasks.db
"""

import os
from typing import Any

from perdure import TaskContext, Tasks, serve
from perdure.adapters.process import run_process

tasks = Tasks("sqlite:///tasks.db", lease="1h", grace="1ms")
mcp = tasks.server("jobs")


@tasks.tool(poll_interval="50ms", max_attempts=1000)
async def job(command: list[str], task: TaskContext, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
    """Run a command."""
    result = await run_process(task, "job", command, folder=os.environ["JOBS"], timeout=timeout, poll="200ms")
    return {"exit_status": result.exit_status, "timed_out": result.timed_out, "stdout": result.stdout_tail}


if __name__ == "__main__":
    serve(mcp)
