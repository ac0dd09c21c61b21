"""A server that a test starts as a process of its own and talks to over pipes.

python -m tests.wire.child STORE-URL [legacy]
"""

import asyncio
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from perdure import TaskContext, Tasks
from tests.wire.tools import Form


def build(store: str, *, legacy: bool) -> Tasks:
    tasks = Tasks(store, grace="1ms", legacy=legacy)

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


def served(tasks: Tasks) -> MCPServer[Any]:
    """Their server, with an ordinary tool that says that there are others now."""
    mcp = tasks.server("wire", version="1.0")

    @mcp.tool()
    async def grow(ctx: Context[Any, Any]) -> None:
        await ctx.notify_tools_changed()

    return mcp


if __name__ == "__main__":
    tasks_of_child = build(sys.argv[1], legacy="legacy" in sys.argv[2:])
    served(tasks_of_child).run("stdio")
