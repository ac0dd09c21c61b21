# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false, reportAssignmentType=false
"""A client of 2025-11-25, with `mcp` 1.x. For `examples/report_server.py`, whose `Tasks` was given `legacy=True`.

python old_client.py http://127.0.0.1:8000/mcp          calls the tool
python old_client.py http://127.0.0.1:8000/mcp TASK     goes on with a task that there is
"""

import asyncio
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client


async def approve(context, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Asked while it waits for a result, and at no other time."""
    print(params.message)
    return types.ElicitResult(action="accept", content={"approved": True})


async def result_of(session: ClientSession, task_id: str) -> types.CallToolResult:
    """Poll, until the task is over or has a question; the request for its result waits, and is when that is put."""
    async for task in session.experimental.poll_task(task_id):
        print(task.status, task.statusMessage or "")
        if task.status == "input_required":
            break
    return await session.experimental.get_task_result(task_id, types.CallToolResult)


async def main(url: str, task_id: str = "") -> None:
    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=approve) as session,
    ):
        await session.initialize()
        if not task_id:
            made = await session.experimental.call_tool_as_task("generate_report", {"size": "large"})
            task_id = made.task.taskId
        result = await result_of(session, task_id)
        print(result.structuredContent or result.content)

        other = await session.experimental.call_tool_as_task("generate_report", {"size": "small"})
        print((await session.experimental.cancel_task(other.task.taskId)).status)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
