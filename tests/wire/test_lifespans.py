"""How a server is put together: the engine lives as long as the server, around whatever lifespan is the user's own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client as SDKClient
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer

from perdure import ConfigurationError, StoreUnavailable, TaskContext, Tasks
from perdure.store.sqlite import SQLiteStore
from tests.wire import checker
from tests.wire.envelopes import NOTHING
from tests.wire.support import Client, serving, stage, tasks_on
from tests.wire.tools import Tools

UNKNOWN = "tsk_" + "a" * 32


class Life:
    """A user's own lifespan, and a tool that uses what it yields."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @asynccontextmanager
    async def lifespan(self, server: MCPServer[Any]) -> AsyncGenerator[dict[str, str]]:
        self.events.append(f"up {server.name}")
        try:
            yield {"pool": "of connections"}
        finally:
            self.events.append("down")

    def declare(self, tasks: Tasks) -> None:
        @tasks.tool()
        async def pool(task: TaskContext) -> str:
            assert "down" not in self.events
            return task.lifespan_context["pool"]


async def test_a_tool_uses_what_the_users_own_lifespan_yields(tmp_path: Path) -> None:
    life = Life()
    async with stage(tmp_path, life.declare, server={"lifespan": life.lifespan}) as up:
        assert life.events == ["up wire"]
        for result in (
            (await up.client.finish("pool"))["result"],
            (await up.client.call("pool", capabilities=NOTHING)).result,
        ):
            assert result["content"][0]["text"] == "of connections"
    assert life.events == ["up wire", "down"]


async def test_the_users_lifespan_ends_after_the_last_tool_of_the_engine(tmp_path: Path) -> None:
    """What tools use is there until the last of them is done."""
    life, seen = Life(), list[str]()

    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def until_the_end() -> None:

            seen.append("entered")
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("unwound before" if "down" not in life.events else "unwound after")

    async with stage(tmp_path, declare, server={"lifespan": life.lifespan}) as up:
        await up.client.start("until_the_end")
        from tests.support import eventually

        await eventually(lambda: seen == ["entered"], "never started")
    assert seen == ["entered", "unwound before"]


async def test_a_server_that_is_wired_by_hand_is_no_different(tmp_path: Path) -> None:
    seen: list[str] = []

    async def watch(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        seen.append(ctx.method)
        return await call_next(ctx)

    tasks = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    tools = Tools()
    tools.declare(tasks)
    mcp: MCPServer[Any] = MCPServer(
        "by hand", version="2", extensions=[tasks], middleware=[watch, tasks.middleware], lifespan=tasks.lifespan
    )
    async with serving(mcp) as (http, url):
        client = Client(http, url)
        assert (await client.request("server/discover")).result["capabilities"]["extensions"]
        task = await client.finish("hello", {"name": "you"})
        assert task["result"]["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "by hand", "version": "2"}
        assert (await client.get(task["taskId"], extra={"mcp-name": "other"})).code == -32020
    assert {"server/discover", "tools/call", "tasks/get"} <= set(seen)


async def test_a_server_without_the_middleware_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    mcp: MCPServer[Any] = MCPServer("by hand", extensions=[tasks], lifespan=tasks.lifespan)
    with pytest.raises(ConfigurationError, match=r"middleware=\[tasks\.middleware\]"):
        async with tasks.lifespan(mcp):
            pass
    assert not (tmp_path / "tasks.db").exists()


async def test_a_server_without_the_extension_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Its tools would run as plain ones, and nobody would notice."""
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    Tools().declare(tasks)
    mcp: MCPServer[Any] = MCPServer("by hand", middleware=[tasks.middleware], lifespan=tasks.lifespan)
    with pytest.raises(ConfigurationError, match=r"extensions=\[tasks\]"):
        async with tasks.lifespan(mcp):
            pass
    assert not (tmp_path / "tasks.db").exists()


async def report(size: str) -> str:
    return size


@pytest.mark.parametrize(("by_hand", "ordinary_first"), [(False, True), (True, True), (True, False)])
async def test_a_task_tool_and_an_ordinary_one_of_the_same_name_are_refused_at_the_start(
    tmp_path: Path, by_hand: bool, ordinary_first: bool
) -> None:
    """The ordinary one would be listed, and the task tool called."""
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    mcp = MCPServer("wire", **tasks.assembly.attachment.wiring(tasks, None, {})) if by_hand else tasks.server("wire")
    declarations = [lambda: mcp.tool("report")(plain), lambda: tasks.tool()(report)]
    for declare in declarations if ordinary_first else reversed(declarations):
        declare()
    with pytest.raises(ConfigurationError, match="A task tool and an ordinary one are both named 'report'"):
        async with tasks.lifespan(mcp):
            pass
    assert not (tmp_path / "tasks.db").exists()


async def test_a_server_without_the_lifespan_says_once_what_to_do_and_serves_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    Tools().declare(tasks)
    mcp: MCPServer[Any] = MCPServer("by hand", extensions=[tasks], middleware=[tasks.middleware])
    mcp.tool()(plain)
    async with serving(mcp) as (http, url):
        client = Client(http, url)
        for reply in (
            await client.call("hello", {"name": "you"}),
            await client.call("hello", {"name": "you"}, capabilities=NOTHING),
            await client.get(UNKNOWN),
            await client.update(UNKNOWN, {}),
            await client.cancel(UNKNOWN),
        ):
            assert reply.error == {"code": -32603, "message": "Internal error"}
        assert (await client.call("plain")).text == "plain"
    said = [record for record in caplog.records if "lifespan=tasks.lifespan" in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"]


def plain() -> str:
    return "plain"


async def test_one_tasks_serves_one_server(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    tasks.server("one")
    with pytest.raises(ConfigurationError, match="another Tasks"):
        tasks.server("two")


async def test_two_clients_in_memory_share_one_engine_and_the_last_one_out_stops_it(tmp_path: Path) -> None:
    """Each in-memory client enters the server's lifespan once more."""
    store = SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")
    tasks = tasks_on(store)
    tools = Tools()
    tools.declare(tasks)
    mcp = tasks.server("wire", version="1.0")
    async with SDKClient(mcp) as one:
        async with SDKClient(mcp) as two:
            for client in (one, two, one):
                result: Any = await client.call_tool("hello", {"name": "you"})
                assert result.content[0].text == "Hello, you!"
        later: Any = await one.call_tool("hello", {"name": "you"})
        assert later.content[0].text == "Hello, you!"
    assert tools.ran == ["hello"] * 4
    with pytest.raises(StoreUnavailable):
        await store.sessions()


async def test_a_server_may_come_up_again_after_it_went_down(tmp_path: Path) -> None:
    tasks = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    tools = Tools()
    tools.declare(tasks)
    mcp = tasks.server("wire", version="1.0")
    ids: list[str] = []
    for _ in range(2):
        async with serving(mcp) as (http, url):
            client = Client(http, url)
            ids.append((await client.finish("hello", {"name": "you"}))["taskId"])
            for task_id in ids:
                assert (await client.get(task_id)).result["status"] == "completed"


async def test_options_of_the_server_are_the_sdks_and_the_users_extensions_stay(tmp_path: Path) -> None:

    class Other(Extension):
        identifier = "com.example/other"

    hints = {"tools/list": CacheHint(ttl_ms=5, scope="private")}
    server = {"extensions": [Other()], "cache_hints": hints, "instructions": "Be brief"}
    async with stage(tmp_path, Tools().declare, server=server) as up:
        discovered = (await up.client.request("server/discover")).result
        checker.check_discovery(discovered)
        ours = {"io.modelcontextprotocol/tasks", "dev.perdure/idempotency"}
        assert set(discovered["capabilities"]["extensions"]) == {"com.example/other", *ours}
        assert discovered["instructions"] == "Be brief"
        assert (await up.client.request("tools/list")).result["ttlMs"] == 5
