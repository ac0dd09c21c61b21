"""The FastMCP backend, in an environment of its own. Its tasks are where FASTMCP_DOCKET_URL says.

python fastmcp_server.py PORT
"""

import asyncio
import sys
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

mcp = FastMCP("fast")
mcp.add_extension(TasksExtension())


@mcp.tool(task=TaskConfig(mode="required", poll_interval=timedelta(milliseconds=200)))
async def work(label: str, seconds: float) -> dict:
    await asyncio.sleep(seconds)
    return {"label": label}


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="WARNING")
