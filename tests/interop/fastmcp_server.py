"""A FastMCP server with background tasks, over HTTP on loopback. Runs in an environment of its own.

    python fastmcp_server.py PORT

Its tasks live in its memory. Its tools ask by returning what they ask, and are run again with the answers.
"""

import asyncio
import sys
from datetime import timedelta

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

TASK = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=100))

mcp = FastMCP("fastmcp")
mcp.add_extension(TasksExtension())


def form(message, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


NAME = {"name": {"type": "string"}}
CONFIRM = {"confirm": {"type": "boolean"}}


@mcp.tool
async def at_once() -> str:
    return "at once"


@mcp.tool(task=TASK)
async def plain(pages: int) -> dict:
    return {"pages": pages}


@mcp.tool(task=TASK)
async def asks(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses or {}
    if "who" not in answers:
        return InputRequiredResult(input_requests={"who": form("Who are you?", **NAME)})
    return f"Hello, {answers['who'].content['name']}!"


@mcp.tool(task=TASK)
async def asks_two(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses or {}
    if not {"who", "sure"} <= set(answers):
        questions = {"who": form("Who are you?", **NAME), "sure": form("Are you sure?", **CONFIRM)}
        return InputRequiredResult(input_requests=questions)
    return f"{answers['who'].content['name']} {answers['sure'].content['confirm']}"


@mcp.tool(task=TASK)
async def wrong() -> str:
    raise ToolError("There is no paper.")


@mcp.tool(task=TASK)
async def breaks() -> str:
    raise MCPError(-32050, "The printer is on fire.")


@mcp.tool(task=TASK)
async def waits() -> str:
    await asyncio.sleep(600)
    return "done"


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="WARNING")
