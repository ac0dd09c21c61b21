# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportMissingImports=false
"""The client of `mcp` 1.x, driven line by line. Run by the interpreter of `old_sdk`: checkers see the SDK of today.

python tests/wire/old_client.py '{"url": …, "token": …}' | '{"sse": URL}' | '{"command": […]}'

A line in is `{"id": 1, "do": METHOD, "with": {…}}`; a line out is `{"id": 1, "result": …}` or `{"id": 1, "error": …}`,
or tells what the server said by itself: `{"asked": …}` and `{"told": …}`.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import httpx
import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def say(line):
    print(json.dumps(line), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Human:
    """Who answers the server's questions: with what was put aside for that, in order."""

    def __init__(self):
        self.answers = asyncio.Queue()

    async def elicit(self, context, params):
        return await self._answer(params, types.ElicitResult)

    async def sample(self, context, params):
        return await self._answer(params, types.CreateMessageResult)

    async def roots(self, context):
        return await self._answer(None, types.ListRootsResult)

    async def _answer(self, params, kind):
        say({"asked": None if params is None else plain(params)})
        answer = await self.answers.get()
        return types.ErrorData(**answer["error"]) if "error" in answer else kind.model_validate(answer)


async def told(message):
    if isinstance(message, types.ServerNotification):
        say({"told": plain(message.root)})


class Commands:
    def __init__(self, session, human):
        self.session = session
        self.human = human

    async def answer(self, **answer):
        self.human.answers.put_nowait(answer)

    async def list_tools(self):
        return plain(await self.session.list_tools())

    async def call_tool(self, name, arguments):
        return plain(await self.session.call_tool(name, arguments))

    async def call_tool_as_task(self, **options):
        return plain(await self.session.experimental.call_tool_as_task(**options))

    async def get_task(self, task_id):
        return plain(await self.session.experimental.get_task(task_id))

    async def get_task_result(self, task_id):
        return plain(await self.session.experimental.get_task_result(task_id, types.CallToolResult))

    async def list_tasks(self, cursor=None):
        return plain(await self.session.experimental.list_tasks(cursor))

    async def cancel_task(self, task_id):
        return plain(await self.session.experimental.cancel_task(task_id))

    async def poll_task(self, task_id):
        """Poll as the SDK does: every status that was seen."""
        return [each.status async for each in self.session.experimental.poll_task(task_id)]


@asynccontextmanager
async def connected(to):
    if "command" in to:
        command, *args = to["command"]
        async with stdio_client(StdioServerParameters(command=command, args=args)) as streams:
            yield streams
    elif "sse" in to:
        async with sse_client(to["sse"]) as streams:
            yield streams
    else:
        headers = {"authorization": f"Bearer {to['token']}"} if to.get("token") else {}
        async with (
            httpx.AsyncClient(headers=headers, timeout=60, trust_env=False, verify=False) as http,
            streamable_http_client(to["url"], http_client=http) as (read, write, _),
        ):
            yield read, write


async def obey(commands, line):
    try:
        say({"id": line["id"], "result": await getattr(commands, line["do"])(**line["with"])})
    except McpError as error:
        say({"id": line["id"], "error": plain(error.error)})
    except BaseException as error:
        say({"id": line["id"], "broken": repr(error)})
        raise


async def main():
    to = json.loads(sys.argv[1])
    human = Human()
    answering = {
        "elicitation_callback": human.elicit,
        "sampling_callback": human.sample,
        "list_roots_callback": human.roots,
    }
    async with (
        connected(to) as (read, write),
        ClientSession(read, write, message_handler=told, **({} if to.get("silent") else answering)) as session,
    ):
        say({"id": 0, "result": plain(await session.initialize())})
        commands, running = Commands(session, human), set()
        while line := await asyncio.to_thread(sys.stdin.readline):
            running.add(asyncio.create_task(obey(commands, json.loads(line))))
        for each in running:
            each.cancel()


asyncio.run(main())
