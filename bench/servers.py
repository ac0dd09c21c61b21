"""The servers that are measured: a bare SDK server, and one with Perdure; alike in all else.

    python -m bench.servers bare
    python -m bench.servers listened        bare as well, but for many listen streams at once
    python -m bench.servers perdure --store sqlite:////tmp/tasks.db [--worker/--no-worker]

Serves `/mcp` on a free port of 127.0.0.1 and prints the port. Both go through the SDK's own `streamable_http_app` and
the same uvicorn with the same settings, which is the one of `perdure serve`: what that gains by sparing the garbage
collector the start-up's objects, the bare server gains too. Logs are off: what they cost is the same for both, and
would flatter the ratio.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from pydantic import BaseModel

from perdure import TaskContext, Tasks
from perdure.ops.http import HTTPServer


class Approval(BaseModel):
    approved: bool


async def nothing() -> str:
    """Do nothing."""
    return "done"


async def ask(task: TaskContext) -> str:
    """Wait for a person."""
    answer = await task.elicit("approve", "Go on?", Approval)
    return "approved" if answer.data is not None and answer.data.approved else "refused"


def bare() -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer("bench", version="1", log_level="WARNING")
    mcp.tool()(nothing)
    return mcp


def listened() -> Server[Any]:
    """`MCPServer` would refuse the 1,025th stream, and can't be told otherwise."""
    handler = ListenHandler(InMemorySubscriptionBus(), max_subscriptions=1_000_000)
    return Server("bench", version="1", on_subscriptions_listen=handler)


def perdure(store: str, *, worker: bool) -> MCPServer[Any]:
    tasks = Tasks(store, worker=worker)
    tasks.tool()(nothing)
    tasks.tool()(ask)
    return tasks.server("bench", version="1", log_level="WARNING")


def serve(mcp: MCPServer[Any] | Server[Any]) -> None:
    # The protocol has to be named: asyncio turns Nagle's algorithm off only on sockets that say that they are TCP, and
    # with it each answer, being sent as head and body, would wait 40 ms for an acknowledgement.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(mcp.streamable_http_app(), log_level="warning", access_log=False)
        HTTPServer(config, told=lambda: None).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve what is measured.")
    parser.add_argument("kind", choices=["bare", "listened", "perdure"])
    parser.add_argument("--store", default="", help="store URL of the server with tasks")
    parser.add_argument("--worker", action=argparse.BooleanOptionalAction, default=True, help="run tasks here")
    options = parser.parse_args()
    match options.kind:
        case "bare":
            serve(bare())
        case "listened":
            serve(listened())
        case _:
            serve(perdure(options.store, worker=options.worker))


if __name__ == "__main__":
    main()
