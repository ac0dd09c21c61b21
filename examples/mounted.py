"""A server that you build yourself, with a lifespan of your own, inside a bigger Starlette application.

uvicorn --app-dir examples mounted:app
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

from perdure import Tasks

tasks = Tasks("sqlite:///mounted.db")


@asynccontextmanager
async def lifespan(server: MCPServer) -> AsyncGenerator[dict[str, str]]:
    pool = {"greeting": "Hello"}  # what tools need for as long as any of them runs: open it first
    async with tasks.lifespan(server):
        yield pool


mcp = MCPServer("mounted", extensions=[tasks], middleware=[tasks.middleware], lifespan=lifespan)


@mcp.tool()
def greeting(ctx: Context) -> str:
    """An ordinary tool reads what the lifespan yielded."""
    return ctx.request_context.lifespan_context["greeting"]


@tasks.tool()
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


inner = mcp.streamable_http_app()


@asynccontextmanager
async def outer(app: Starlette) -> AsyncGenerator[None]:
    async with mcp.session_manager.run():  # Starlette starts nothing in what it mounts
        yield


app = Starlette(routes=[Mount("/tools", app=inner)], lifespan=outer)  # clients call /tools/mcp
