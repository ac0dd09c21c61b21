"""A command that goes on while the server is restarted."""

from pathlib import Path
from typing import Literal

from perdure import TaskContext, Tasks, serve
from perdure.adapters.process import run_process

tasks = Tasks("sqlite:///jobs.db")
mcp = tasks.server("jobs")

JOBS = Path.home() / "jobs"
PLACES = {"logs": Path("/var/log"), "programs": Path("/usr")}


@tasks.tool(mode="task", ttl="7d")
async def disk_usage(place: Literal["logs", "programs"], task: TaskContext) -> int:
    """Find out how many kilobytes a place takes up."""
    command = ["du", "-s", "-k", PLACES[place]]
    job = await run_process(task, "du", command, folder=JOBS, timeout="2h")
    if not job.ok:
        task.decline(f"du ended with {job.exit_status}: {job.stderr_tail}")
    return int(job.stdout_tail.split()[0])


if __name__ == "__main__":
    serve(mcp)
