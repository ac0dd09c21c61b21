"""The backend without tasks: the SDK's own server.

python plain_server.py PORT
"""

import sys
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer

mcp: MCPServer[Any] = MCPServer("plain", version="1", log_level="WARNING")


@mcp.tool()
async def work(label: str, seconds: float) -> dict[str, str]:
    await anyio.sleep(seconds)
    return {"label": label}


if __name__ == "__main__":
    mcp.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
