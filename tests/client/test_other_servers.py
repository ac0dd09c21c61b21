"""Servers that are not like ours: without tasks, of the handshake era, over the pipes of a child process."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    HEADER_MISMATCH,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

from perdure import TaskContext
from perdure import Tasks as ServerTasks
from perdure.client import RequestRefused, Tasks
from tests.client.spy import Spy, at_first
from tests.client.support import Person, connected, text
from tests.support import PATIENCE
from tests.wire.support import ROOT, Stage, serving, stage
from tests.wire.tools import Tools


def plain() -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer("plain")

    @mcp.tool()
    def add(a: int, b: int) -> int:
        return a + b

    return mcp


async def test_a_server_without_tasks_is_called_as_ever() -> None:
    tasks = Tasks()
    async with serving(plain()) as (_, url), connected(url, tasks) as client:
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        handle = await tasks.start(client, "add", {"a": 1, "b": 2})
        assert (handle.is_task, text(await handle.result())) == (False, "3")
        with pytest.raises(RequestRefused):
            await (await tasks.resume(client, "tsk_1")).result(PATIENCE)


async def test_a_listing_without_an_end_holds_up_no_call_for_ever(tmp_path: Path) -> None:
    """It is read again where a server does not agree with the headers of a call."""
    spy = Spy(
        refuse={"tools/call": at_first(1, HEADER_MISMATCH, "no")},
        change={"tools/list": lambda answer: {**answer, "tools": [], "nextCursor": "more"}},
    )
    tools, tasks = Tools(), Tasks()
    async with (
        stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        handle = await tasks.start(client, "hello", {"name": "you"}, timeout=PATIENCE)
        assert text(await handle.result(PATIENCE)) == "Hello, you!"
    assert spy.came["tools/list"] == 100


async def test_a_connection_of_the_handshake_era_knows_no_tasks_and_its_calls_wait(scene: Stage) -> None:
    tasks = Tasks()
    async with connected(scene.client.url, tasks, Person(), mode="legacy") as client:
        assert text(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"
        handle = await tasks.start(client, "hello", {"name": "you"})
        assert (handle.is_task, text(await handle.result())) == (False, "Hello, you!")


@pytest.mark.parametrize("listen", [True, False])
async def test_a_child_process_is_a_server_too(listen: bool, tmp_path: Path) -> None:
    child = f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); import report_server; report_server.mcp.run()"
    server = StdioServerParameters(command=sys.executable, args=["-c", child], cwd=str(tmp_path))
    tasks = Tasks(listen=listen)
    person = Person(
        **{"Approve the generated report outline?": ElicitResult(action="accept", content={"approved": True})}
    )
    async with Client(server, extensions=[tasks], elicitation_callback=person) as client:
        result = await client.call_tool("generate_report", {"size": "small"})
        handle = await tasks.start(client, "generate_report", {"size": "large"})
        assert (await handle.result(PATIENCE)).structured_content == {"size": "large", "approved": True}
    assert result.structured_content == {"size": "small", "approved": True}
    assert len(person.asked) == 2


async def test_models_and_roots_are_asked_for_by_the_callbacks_too(tmp_path: Path) -> None:
    def declare(server: ServerTasks) -> None:
        @server.tool(poll_interval="100ms")
        async def both(task: TaskContext) -> str:
            said = await task.sample("poem", ["a poem"], max_tokens=5)
            roots = await task.list_roots("roots")
            return f"{said.content} {roots}"

    async def sample(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="roses"), model="m")

    async def roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/ada"))])

    async with (
        stage(tmp_path, declare) as up,
        connected(up.client.url, Tasks(), sampling_callback=sample, list_roots_callback=roots) as client,
    ):
        said = text(await client.call_tool("both"))
    assert "roses" in said
    assert "file:///home/ada" in said
