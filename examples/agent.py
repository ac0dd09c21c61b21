"""An agent that has a report written by `examples/report_server.py`, dies whenever it likes, and comes back to it.

python examples/agent.py --port 8000
"""

import argparse
import asyncio
import sys

from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from perdure.client import HTTP, TaskError, TaskHandle, Tasks, TaskTimedOut


async def approve(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    said = await typed(f"{params.message} (y/n) ")
    return ElicitResult(action="accept", content={"approved": said == "y"})


async def typed(question: str) -> str:
    """A line, for which the event loop waits: a thread that does would outlive Ctrl-C."""
    print(question, end="", flush=True)
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def follow(handle: TaskHandle) -> None:
    async for state in handle.updates():
        print(state.status, state.message or "", flush=True)


async def finish(handle: TaskHandle) -> None:
    print("waiting for", handle.id, flush=True)
    following = asyncio.create_task(follow(handle))
    try:
        result = await handle.result(timeout=600)
        await following
        print("the tool refused" if result.is_error else result.structured_content)
    except TaskTimedOut:
        print("no result yet: start me again")
    except TaskError as error:
        print(error)
    finally:
        following.cancel()


async def main(port: int, journal: str) -> None:
    tasks = Tasks(journal)
    async with Client(HTTP(f"http://127.0.0.1:{port}/mcp"), extensions=[tasks], elicitation_callback=approve) as client:
        there = await tasks.resume_all(client)
        for unsure in there.unsure:
            print(unsure)
        for handle in there.lost:
            print("the server does not know", handle.id)
        for handle in there.handles or [await tasks.start(client, "generate_report", {"size": "large"})]:
            await finish(handle)
    tasks.journal.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Have a report written.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--journal", default="agent.db")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.port, options.journal))
    except KeyboardInterrupt:
        print("\nstart me again")
