"""A server whose tools wait longer than anybody would, for operators who do not want to."""

import asyncio
from pathlib import Path

from perdure import Retry, TaskContext, Tasks

# What another process has cancelled is heard of when the lease is renewed.
tasks = Tasks("sqlite:///tasks.db", worker=True, lease="2s")
mcp = tasks.server("napping")

DAILY = Retry(3, "1d", longest="1d", on=(FileNotFoundError,))


def fragile(file: str) -> str:
    """Fail unless the file is there."""
    return Path(file).read_text()


@tasks.tool(poll_interval="100ms")
async def nap(task: TaskContext) -> str:
    """Sleep for three days."""
    await task.sleep("3 days")
    return "slept"


@tasks.tool(poll_interval="100ms")
async def try_step(file: str, task: TaskContext) -> str:
    """Read a file, trying again after a day."""
    return await task.step("read", fragile, file, retry=DAILY)


@tasks.tool(poll_interval="100ms", retry=DAILY)
async def try_all(file: str) -> str:
    """The same, as a whole."""
    return fragile(file)


@tasks.tool(poll_interval="100ms")
async def for_ever() -> str:
    """Wait until told to stop."""
    await asyncio.Event().wait()
    return ""
