"""Calls a task tool of `examples/report_server.py`, answers its question by hand, and says why it can't be reached.

python examples/by_hand.py http://127.0.0.1:8000/mcp [TOKEN]
"""

import asyncio
import sys
from contextlib import aclosing

import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from perdure.client import HTTP, TaskHandle, Tasks


async def nobody(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Never called, since nobody waits with `result()` before the answer; but the server asks whom it may ask."""
    return ElicitResult(action="cancel")


async def answer(handle: TaskHandle) -> None:
    async with aclosing(handle.updates()) as states:
        async for state in states:
            for key, question in state.questions.items():
                print(question["params"]["message"])
                yes = ElicitResult(action="accept", content={"approved": True})
                print("answered:", *await handle.answer({key: yes}))
                return


async def main(url: str, token: str | None = None) -> None:
    tasks, headers = Tasks(), {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        async with Client(HTTP(url, headers=headers), extensions=[tasks], elicitation_callback=nobody) as client:
            handle = await tasks.start(client, "generate_report", {"size": "large"})
            await answer(handle)
            result = await handle.result()
            print("the tool refused" if result.is_error else result.structured_content)
    except* httpx2.TransportError as away:
        print("no connection:", reason(away))
    except* MCPError as refused:
        print("refused:", reason(refused))


def reason(error: BaseException) -> BaseException:
    """The first that is no group of others: the SDK's task groups lie in one another."""
    of_a_group: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return reason(of_a_group[0]) if of_a_group else error


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
