"""Tasks and the core's own kinds on one stream: the SDK's handler runs beside ours, and the client sees one of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from perdure.store.sqlite import SQLiteStore
from tests.support import eventually
from tests.wire.envelopes import JSON, NOTHING, envelope
from tests.wire.listening import Listener, claimed, listen_request, listeners, listening, refused
from tests.wire.support import Client, Stage, serving, stage, tasks_on
from tests.wire.tools import Tools


class Bus(InMemorySubscriptionBus):
    """One whose listeners are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners = 0

    def subscribe(self, listener: Any) -> Any:
        self.listeners += 1
        really = super().subscribe(listener)

        def unsubscribe() -> None:
            self.listeners -= 1
            really()

        return unsubscribe


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
async def idle(tmp_path: Path, tools: Tools, bus: Bus) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, tools.declare, worker=False, server={"subscriptions": bus}) as up:
        yield up


async def test_both_are_acknowledged_in_one_frame(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    kinds: JSON = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["file:///a"]}
    async with listening(idle.client, task_id, **kinds) as stream:
        assert await stream.begun() == [task_id]
        honored = stream.judge.honored
        assert honored == {"taskIds": [task_id], "toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        assert (await stream.snapshot())["taskId"] == task_id


async def test_what_nobody_knows_is_not_acknowledged_and_keeps_no_stream_open(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, somethingNew=True) as stream:
        await stream.begun()
        assert stream.judge.honored == {"taskIds": [task_id]}
        await stream.snapshot()
        await idle.client.cancel(task_id)
        assert [task["status"] for task in await stream.ends()] == ["cancelled"]


@pytest.mark.parametrize(
    ("kinds", "event", "method"),
    [
        ({"toolsListChanged": True}, ToolsListChanged(), "notifications/tools/list_changed"),
        ({"promptsListChanged": True}, PromptsListChanged(), "notifications/prompts/list_changed"),
        ({"resourcesListChanged": True}, ResourcesListChanged(), "notifications/resources/list_changed"),
        ({"resourceSubscriptions": ["file:///a"]}, ResourceUpdated("file:///a"), "notifications/resources/updated"),
    ],
)
async def test_what_the_core_says_comes_between_the_snapshots(
    idle: Stage, bus: Bus, kinds: JSON, event: ServerEvent, method: str
) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id, **kinds) as stream:
        await stream.begun()
        await stream.snapshot()
        await bus.publish(event)
        assert (await stream.frame())["method"] == method
        await idle.store.report(claim, "after it")
        assert (await stream.snapshot())["statusMessage"] == "after it"


async def test_kinds_that_nobody_asked_for_do_not_come(idle: Stage, bus: Bus) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, toolsListChanged=True) as stream:
        await stream.begun()
        await stream.snapshot()
        await bus.publish(PromptsListChanged())
        await bus.publish(ResourceUpdated("file:///a"))
        await idle.client.cancel(task_id)
        assert (await stream.snapshot())["status"] == "cancelled"


async def test_it_goes_on_when_the_tasks_are_over(idle: Stage, bus: Bus) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, toolsListChanged=True) as stream:
        await stream.begun()
        await idle.client.cancel(task_id)
        await stream.reaches("cancelled")
        for _ in range(2):
            await bus.publish(ToolsListChanged())
            assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_without_an_accepted_task_it_is_the_cores_stream(idle: Stage, bus: Bus) -> None:
    async with listening(idle.client, "x", toolsListChanged=True) as stream:
        assert await stream.begun() == []
        await bus.publish(ToolsListChanged())
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("kinds", [{"toolsListChanged": False}, {"resourceSubscriptions": []}])
async def test_who_asks_for_a_kind_by_saying_no_asks_for_tasks_only(idle: Stage, bus: Bus, kinds: JSON) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, **kinds) as stream:
        await stream.begun()
        assert stream.judge.honored == {"taskIds": [task_id]}
        assert bus.listeners == 0
        await idle.client.cancel(task_id)
        await stream.ends()


async def test_it_ends_with_its_result_when_the_server_does(idle: Stage, bus: Bus) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, toolsListChanged=True) as stream:
        await stream.begun()
        await stream.snapshot()
        idle.tasks.assembly.stop_working()
        assert await stream.ends() == []
    assert (listeners(idle), bus.listeners) == (0, 0)


async def test_a_client_that_hangs_up_leaves_neither_of_the_two_behind(idle: Stage, bus: Bus) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, toolsListChanged=True) as stream:
        await stream.begun()
        assert (listeners(idle), bus.listeners) == (1, 1)
    await eventually(lambda: (listeners(idle), bus.listeners) == (0, 0), "something is left")


async def test_a_server_without_core_kinds_acknowledges_the_tasks_only(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare, worker=False, server={"subscriptions": False}) as up:
        task_id = await up.client.start("gated")
        async with listening(up.client, task_id, toolsListChanged=True) as stream:
            assert await stream.begun() == [task_id]
            assert stream.judge.honored == {"taskIds": [task_id]}
            await stream.snapshot()
            await up.client.cancel(task_id)
            assert [task["status"] for task in await stream.ends()] == ["cancelled"]


async def test_a_listener_for_core_kinds_alone_is_the_sdks(idle: Stage, bus: Bus) -> None:
    """Whether it declared the extension or not: nothing of ours has a say."""
    declarations: list[JSON] = [NOTHING, {"extensions": {}}]
    for capabilities in declarations:
        body = envelope(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, capabilities=capabilities
        )
        async with idle.client.streaming(body) as response:
            lines = response.aiter_lines()
            found = [await anext(lines) for _ in range(2)]
            assert '"toolsListChanged":true' in found[1]
            assert "taskIds" not in found[1]
            assert (listeners(idle), bus.listeners) == (0, 1)
        await eventually(lambda: bus.listeners == 0, "it is still open")


# -- other handlers and middlewares ------------------------------------------------------------------------------------


@asynccontextmanager
async def within(tmp_path: Path, middleware: Any, **kinds: bool) -> AsyncGenerator[tuple[Client, str, Listener]]:
    """A server with a middleware within ours, a task on it, and a listener for that and for the core's `kinds`."""
    asked = {"toolsListChanged": True, **kinds}
    async with by_hand(tmp_path, middleware) as (client, task_id), listening(client, task_id, **asked) as stream:
        yield client, task_id, stream


@asynccontextmanager
async def by_hand(tmp_path: Path, middleware: Any) -> AsyncGenerator[tuple[Client, str]]:
    """The same before anybody listens."""
    tasks = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"), worker=False)
    Tools().declare(tasks)
    mcp: MCPServer[Any] = MCPServer(
        "by hand", extensions=[tasks], middleware=[tasks.middleware, middleware], lifespan=tasks.lifespan
    )
    async with serving(mcp) as (http, url):
        client = Client(http, url)
        yield client, await client.start("gated")


Context = ServerRequestContext[Any, Any]


async def test_a_core_that_refuses_before_it_acknowledges_refuses_the_whole(tmp_path: Path) -> None:
    async def refuse(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen":
            raise MCPError(-32050, "not today")
        return await call_next(ctx)

    async with by_hand(tmp_path, refuse) as (client, task_id):
        reply = await refused(client, listen_request([task_id], toolsListChanged=True))
        assert (reply.code, reply.error["message"]) == (-32050, "not today")


async def test_a_core_that_ends_its_stream_ends_the_whole(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def bounded(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method != "subscriptions/listen":
            return await call_next(ctx)
        assert ctx.params is not None
        assert "taskIds" not in ctx.params["notifications"]
        serving = asyncio.ensure_future(call_next(ctx))
        await over.wait()
        serving.cancel()
        return {"resultType": "complete", "_meta": {}}

    async with (
        by_hand(tmp_path, bounded) as (client, task_id),
        listening(client, task_id, toolsListChanged=True) as stream,
    ):
        await stream.begun()
        await stream.snapshot()
        over.set()
        assert await stream.ends() == []


async def test_a_core_that_fails_in_the_middle_fails_the_whole(tmp_path: Path) -> None:
    broken = asyncio.Event()

    async def fail(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method != "subscriptions/listen":
            return await call_next(ctx)
        serving = asyncio.ensure_future(call_next(ctx))
        await broken.wait()
        serving.cancel()
        raise MCPError(-32601, "gone")

    async with (
        by_hand(tmp_path, fail) as (client, task_id),
        listening(client, task_id, toolsListChanged=True) as stream,
    ):
        await stream.begun()
        await stream.snapshot()
        broken.set()
        assert (await stream.frame())["error"] == {"code": -32601, "message": "gone"}


async def test_a_core_that_says_nothing_at_all_leaves_the_tasks(tmp_path: Path) -> None:
    async def silent(ctx: Context, call_next: CallNext) -> HandlerResult:
        return None if ctx.method == "subscriptions/listen" else await call_next(ctx)

    async with (
        by_hand(tmp_path, silent) as (client, task_id),
        listening(client, task_id, toolsListChanged=True) as stream,
    ):
        assert await stream.begun() == [task_id]
        await stream.snapshot()
        await client.cancel(task_id)
        await stream.ends()


async def test_what_else_the_core_does_with_the_session_is_the_sessions_own(tmp_path: Path) -> None:
    seen: list[object] = []

    async def look(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen":
            seen.append(ctx.session.client_capabilities)
            await ctx.session.send_tool_list_changed()  # on no request: this transport has nowhere to put it
        return await call_next(ctx)

    async with (
        by_hand(tmp_path, look) as (client, task_id),
        listening(client, task_id, toolsListChanged=True) as stream,
    ):
        await stream.begun()
        await stream.snapshot()
    assert seen
    assert seen[0] is not None


async def test_a_core_kind_is_promised_only_if_the_core_says_so(tmp_path: Path) -> None:
    """What the client asked for and what it gets are two things; the acknowledgement says the latter."""

    async def without_tools(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen" and ctx.params:
            kinds = {**ctx.params["notifications"], "toolsListChanged": False}
            return await call_next(replace(ctx, params={**ctx.params, "notifications": kinds}))
        return await call_next(ctx)

    async with (
        by_hand(tmp_path, without_tools) as (client, task_id),
        listening(client, task_id, toolsListChanged=True, promptsListChanged=True) as stream,
    ):
        await stream.begun()
        assert stream.judge.honored == {"taskIds": [task_id], "promptsListChanged": True}
