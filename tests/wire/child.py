"""A server that a test starts as a process of its own and talks to over pipes.

python -m tests.wire.child STORE-URL
"""

import asyncio
import sys

from perdure import TaskContext, Tasks
from tests.wire.tools import Form


def build(store: str) -> Tasks:
    tasks = Tasks(store, grace="1ms")

    @tasks.tool(poll_interval="50ms")
    async def greet(name: str, task: TaskContext) -> list[str]:
        """Ask before greeting."""
        await task.report("asking")
        answer = await task.elicit("form", f"Greet {name}?", Form)
        return [answer.action, name, task.owner.principal]

    @tasks.tool()
    async def nap() -> None:
        """Sleep until somebody stops it."""
        await asyncio.Event().wait()

    @tasks.tool()
    def noisy() -> str:
        """What a tool prints is not a message."""
        print("to standard output")
        return "printed"

    @tasks.tool(mode="task")
    async def must() -> str:
        return "done"

    return tasks


if __name__ == "__main__":
    tasks_of_child = build(sys.argv[1])
    tasks_of_child.server("wire", version="1.0").run("stdio")
