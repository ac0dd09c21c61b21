"""The tasks of revision 2025-11-25 on other servers: without users, without sessions, over pipes, begun anew."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from perdure import TaskContext, Tasks
from tests.support import eventually
from tests.wire.envelopes import JSON, RELATED_TASK
from tests.wire.handshake import Old
from tests.wire.old_sdk import OldClient, OldError, old_client, text
from tests.wire.support import Stage, hosting, piped, stage
from tests.wire.tools import FORM, Tools

UNKNOWN = "tsk_" + "a" * 32

# The first test that needs the old SDK installs it.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tools() -> Tools:
    return Tools()


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> AsyncGenerator[Stage]:
    """A server that knows no users."""

    def declare(tasks: Tasks) -> None:
        tools.declare(tasks)
        tasks.tool(prepare=ask_first)(prepared)

    async with stage(tmp_path_factory.mktemp("legacy"), declare, legacy=True) as up:
        assert up.tasks.middleware.legacy is not None
        up.tasks.middleware.legacy.look_every = 0.01
        yield up


@pytest.fixture(scope="module")
async def client(scene: Stage) -> AsyncGenerator[OldClient]:
    async with old_client(url=scene.client.url) as client:
        yield client


def ask_first(context: Context, rounds: int) -> dict[str, Any] | InputRequiredResult:
    """Ask that many times, and keep count in the state that goes round."""
    asked = int(context.request_state or 0)
    if asked < rounds:
        params = ElicitRequestFormParams(
            message=f"Question {asked + 1}?",
            requested_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}},
        )
        return InputRequiredResult(input_requests={"ok": ElicitRequest(params=params)}, request_state=str(asked + 1))
    last = (context.input_responses or {}).get("ok")
    return {"last": last.content if isinstance(last, ElicitResult) else None}


async def prepared(rounds: int, task: TaskContext) -> str:
    return f"{task.prepared['last']} after {rounds}"


# -- without users -----------------------------------------------------------------------------------------------------


async def test_without_authentication_nobodys_tasks_are_listed_and_everything_else_works(client: OldClient) -> None:
    assert client.hello["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
    task_id = await client.start("ask")
    await client.until(task_id, "input_required")
    with pytest.raises(OldError, match="authentication") as refused:
        await client.do("list_tasks")
    assert refused.value.code == -32601
    await client.answer(FORM)
    assert text(await client.do("get_task_result", task_id=task_id)) == "accept True"


async def test_the_adapter_is_off_unless_asked_for_and_the_log_says_once_who_wants_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path, Tools().declare) as up:
        old = Old(up, "2025-11-25", {})
        assert "tasks" not in (await old.shake_hands())["capabilities"]
        assert all("execution" not in tool for tool in (await old.request("tools/list", {})).result["tools"])
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"):
            assert (await old.request(method, {"taskId": UNKNOWN})).code == -32601
        hello: JSON = {"name": "hello", "arguments": {"name": "you"}, "task": {}}
        assert "legacy=True" not in caplog.text
        for _ in range(2):
            assert (await old.request("tools/call", hello)).text == "Hello, you!"
        assert caplog.text.count("legacy=True") == 1


# -- what a tool asks before there is a task ---------------------------------------------------------------------------


async def test_what_a_tool_asks_first_is_put_to_the_client_before_there_is_a_task(client: OldClient) -> None:
    client.asked.clear()
    await client.answer(FORM)
    await client.answer({"action": "accept", "content": {"ok": False}})
    task_id = await client.start("prepared", rounds=2)
    assert text(await client.do("get_task_result", task_id=task_id)) == "{'ok': False} after 2"
    assert [asked["message"] for asked in client.asked] == ["Question 1?", "Question 2?"]
    assert all(RELATED_TASK not in asked.get("_meta", {}) for asked in client.asked)
    for _ in range(10):
        await client.answer(FORM)
    with pytest.raises(OldError, match="asked 10 times") as refused:
        await client.start("prepared", rounds=99)
    assert refused.value.code == -32602


async def test_who_can_not_be_asked_first_is_refused_and_a_state_of_its_own_making_does_not_help(scene: Stage) -> None:
    before = len(dict(scene.dump())["task"])
    old = Old(scene, "2025-11-25", {})
    await old.shake_hands()
    call: JSON = {"name": "prepared", "arguments": {"rounds": 1}, "task": {}}
    assert (await old.request("tools/call", call)).code == -32021
    assert (await old.request("tools/call", {**call, "requestState": "1"})).code == -32602
    assert len(dict(scene.dump())["task"]) == before


# -- other ways over HTTP ----------------------------------------------------------------------------------------------


async def test_where_a_response_holds_nothing_else_questions_come_over_the_other_stream(scene: Stage) -> None:
    app = scene.mcp.streamable_http_app(json_response=True)
    async with hosting(app) as (_, url), old_client(url=f"{url}/mcp") as client:
        await client.answer(FORM)
        task_id = await client.start("ask")
        assert text(await client.do("get_task_result", task_id=task_id)) == "accept True"


async def test_without_sessions_nobody_can_be_asked_and_everything_else_works(scene: Stage) -> None:
    app = scene.mcp.streamable_http_app(stateless_http=True)
    async with hosting(app) as (_, url), old_client(url=f"{url}/mcp") as client:
        assert "tasks" in client.hello["capabilities"]
        task_id = await client.start("hello", name="you")
        assert text(await client.do("get_task_result", task_id=task_id)) == "Hello, you!"
        asking = await client.start("ask")
        assert "elicitation" in (await client.until(asking, "failed"))["statusMessage"]


async def test_over_the_transport_of_before_a_result_is_waited_for_as_long_as_it_takes(
    scene: Stage, tools: Tools
) -> None:
    async with hosting(scene.mcp.sse_app()) as (_, url), old_client(sse=f"{url}/sse") as client:
        tools.gate.clear()
        task_id = await client.start("gated")
        waiting = asyncio.create_task(client.do("get_task_result", task_id=task_id))
        listening = scene.tasks.assembly.runtime.snapshots
        await eventually(lambda: listening.subscribed == 1, "nobody waits")
        for _ in range(20):
            assert (await client.do("get_task", task_id=task_id))["status"] == "working"
        assert not waiting.done()
        tools.gate.set()
        assert text(await waiting) == "through"


async def begun(up: Stage, name: str, query: str = "") -> tuple[Old, str]:
    """A raw client of the era, and a task of its making."""
    old = Old(up, "2025-11-25", {"elicitation": {}}, query=query)
    await old.shake_hands()
    made = await old.request("tools/call", {"name": name, "arguments": {}, "task": {"ttl": 60_000}})
    return old, made.result["task"]["taskId"]


async def test_who_hangs_up_while_waiting_leaves_nothing_behind_and_the_task_alone(scene: Stage) -> None:
    listening = scene.tasks.assembly.runtime.snapshots
    old, task_id = await begun(scene, "ask")
    await scene.client.until(task_id, "input_required")
    waiting = asyncio.create_task(old.request("tasks/result", {"taskId": task_id}))
    await eventually(lambda: listening.subscribed == 1, "nobody waits")
    waiting.cancel()
    await eventually(lambda: listening.subscribed == 0, "somebody still waits")
    assert (await old.request("tasks/get", {"taskId": task_id})).result["status"] == "input_required"
    await scene.client.update(task_id, {"form": FORM})
    assert (await old.request("tasks/result", {"taskId": task_id})).text == "accept True"


@pytest.mark.parametrize("query", ["", "?session_id=x"])
async def test_who_hangs_up_before_anybody_looks_is_missed_too(
    scene: Stage, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Whatever a client writes into the query, where an older transport names its sessions."""
    runtime = scene.tasks.assembly.runtime
    old, task_id = await begun(scene, "ask", query)
    others, changed, first_look, hung_up = served(), runtime.store.changed, asyncio.Event(), asyncio.Event()

    async def held_up(*asked: Any) -> Any:
        first_look.set()
        await hung_up.wait()
        return await changed(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(runtime.store, "changed", held_up)
        waiting = asyncio.create_task(old.request("tasks/result", {"taskId": task_id}))
        await first_look.wait()
        waiting.cancel()
        await eventually(lambda: served() == others, "the server has not heard of it")
        hung_up.set()
    await eventually(lambda: runtime.snapshots.subscribed == 0, "somebody still waits")


async def test_who_hangs_up_while_being_asked_first_leaves_nothing_behind_and_makes_no_task(scene: Stage) -> None:
    before = len(dict(scene.dump())["task"])
    old = Old(scene, "2025-11-25", {"elicitation": {}})
    await old.shake_hands()
    call: JSON = {"name": "prepared", "arguments": {"rounds": 1}, "task": {}}
    waiting = asyncio.create_task(old.request("tools/call", call))
    await eventually(lambda: begins() == 1, "nobody is asked")
    waiting.cancel()
    await eventually(lambda: begins() == 0, "somebody is still asked")
    assert len(dict(scene.dump())["task"]) == before


def served() -> int:
    """How many requests this process is about to answer."""
    return sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())


def begins() -> int:
    """How many calls are about to become a task."""
    return sum("Legacy._begin" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_so_many_wait_and_no_more_and_they_hear_of_a_shutdown(tmp_path: Path) -> None:
    async with stage(tmp_path, Tools().declare, legacy=True, subscriptions=1) as up:
        old, task_id = await begun(up, "gated")
        waiting = asyncio.create_task(old.request("tasks/result", {"taskId": task_id}))
        await eventually(lambda: up.tasks.assembly.runtime.snapshots.subscribed == 1, "nobody waits")
        refused = await old.request("tasks/result", {"taskId": task_id})
        assert (refused.code, refused.error["data"]["retryAfterMs"] > 0) == (-32000, True)
        up.tasks.assembly.stop_working()
        ended = await waiting
        assert (ended.code, ended.error["message"]) == (-32000, "The server is shutting down")


# -- restarts ----------------------------------------------------------------------------------------------------------


async def test_the_next_server_goes_on_with_the_tasks_of_the_last(tmp_path: Path) -> None:
    async with stage(tmp_path, Tools().declare, legacy=True) as up, old_client(url=up.client.url) as client:
        asking, done = await client.start("ask"), await client.start("hello", name="you")
        await client.until(asking, "input_required")
        before = await client.until(done, "completed")
    async with stage(tmp_path, Tools().declare, legacy=True) as up, old_client(url=up.client.url) as client:
        assert await client.do("get_task", task_id=done) == before
        assert text(await client.do("get_task_result", task_id=done)) == "Hello, you!"
        await client.answer(FORM)
        assert text(await client.do("get_task_result", task_id=asking)) == "accept True"


async def test_over_pipes_a_task_outlives_both_the_client_and_the_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    server = [sys.executable, "-m", "tests.wire.child", store, "legacy"]
    async with old_client(command=server) as first:
        assert set(first.hello["capabilities"]["tasks"]) == {"list", "cancel", "requests"}
        asking, sleeping = await first.start("greet", name="you"), await first.start("nap")
        await first.until(asking, "input_required")
        listed = await first.do("list_tasks")
        assert [task["taskId"] for task in listed["tasks"]] == [sleeping, asking]
    async with old_client(command=server) as second:
        assert [task["taskId"] for task in (await second.do("list_tasks"))["tasks"]] == [sleeping, asking]
        await second.answer(FORM)
        result = await second.do("get_task_result", task_id=asking)
        assert result["structuredContent"] == {"result": ["accept", "you", "local"]}
        assert second.asked[0]["_meta"][RELATED_TASK] == {"taskId": asking}
        assert (await second.do("cancel_task", task_id=sleeping))["status"] == "cancelled"


async def test_before_the_handshake_there_are_no_tasks(tmp_path: Path) -> None:
    async with piped("-m", "tests.wire.child", f"sqlite:///{tmp_path / 'tasks.db'}", "legacy") as client:
        for method in ("tasks/list", "tasks/get", "tasks/result"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": UNKNOWN}}
            await client.write(json.dumps(body).encode())
            assert (await client.read())["error"]["code"] == -32601
