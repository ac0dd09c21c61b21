"""Contract 3: what `tasks/get` says of a task in each status. The fields themselves are the checker's business."""

from pathlib import Path

import pytest
from mcp_types import CallToolResult, TextContent

from perdure import Tasks
from perdure.domain.model import Demand
from tests.support import eventually
from tests.wire.envelopes import RELATED_TASK, SERVER_INFO
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Tools


async def test_a_working_task_is_complete_as_a_response(scene: Stage) -> None:
    result = (await scene.client.get(await scene.client.start("gated"))).result
    assert (result["resultType"], result["status"]) == ("complete", "working")


async def test_looking_moves_nothing(scene: Stage) -> None:
    task_id = await scene.client.start("ask")
    seen = await scene.client.until(task_id, "input_required")
    again = [(await scene.client.get(task_id)).result for _ in range(5)]
    for look in (seen, *again):
        assert look.pop("pollIntervalMs") >= 1000  # the advice of the moment, and no part of the task
    assert again == [seen] * 5


async def test_a_change_moves_the_time_of_the_last_update_and_nothing_else_does(tmp_path: Path, tools: Tools) -> None:
    now = 1_800_000_000_000
    async with stage(tmp_path, tools.declare, clock=lambda: now) as up:
        task_id = await up.client.start("say", {"words": ["one"]})
        await tools.entered.wait()
        first = (await up.client.get(task_id)).result
        assert (first["status"], first["statusMessage"]) == ("working", "one")
        assert first["lastUpdatedAt"] == first["createdAt"] == "2027-01-15T08:00:00.000Z"
        now += 61_005
        assert (await up.client.get(task_id)).result == first
        tools.gate.set()
        last = await up.client.until(task_id)
    assert (last["createdAt"], last["lastUpdatedAt"]) == ("2027-01-15T08:00:00.000Z", "2027-01-15T08:01:01.005Z")


async def test_a_message_is_of_the_present_and_gone_when_the_work_is_done(scene: Stage, tools: Tools) -> None:
    tools.gate.set()
    task = await scene.client.finish("say", {"words": ["one", "two"]})
    assert "statusMessage" not in task


async def test_a_completed_task_holds_a_full_tool_result(scene: Stage) -> None:
    discovered = (await scene.client.request("server/discover")).result["_meta"][SERVER_INFO]
    task = await scene.client.finish("report", {"size": "large"})
    result = task["result"]
    assert result["resultType"] == "complete"
    assert result["isError"] is False
    assert result["structuredContent"] == {"size": "large", "pages": 7}
    assert result["_meta"] == {SERVER_INFO: discovered}


async def test_the_nested_identity_is_the_whole_identity_of_the_server(tmp_path: Path, tools: Tools) -> None:
    server = {"title": "Wire tests", "description": "Says who it is", "website_url": "https://example.org"}
    async with stage(tmp_path, tools.declare, server=server) as up:
        task = await up.client.finish("hello", {"name": "you"})
    info = {"name": "wire", "version": "1.0", "title": "Wire tests", "description": "Says who it is"}
    assert task["result"]["_meta"][SERVER_INFO] == info | {"websiteUrl": "https://example.org"}


async def test_the_nested_result_is_what_the_call_itself_would_have_returned(scene: Stage) -> None:
    inline = (await scene.client.call("report", {"size": "small"}, capabilities={})).result
    assert (await scene.client.finish("report", {"size": "small"}))["result"] == inline


@pytest.mark.parametrize("capabilities", [None, {}])
async def test_meta_of_a_tools_own_is_kept_but_for_what_is_not_its_to_say(
    tmp_path: Path, capabilities: dict[str, object] | None
) -> None:
    own = {"com.example/cost": 3, RELATED_TASK: {"taskId": "x"}, SERVER_INFO: None}

    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def stamped() -> CallToolResult:
            return CallToolResult(content=[TextContent(type="text", text="done")], _meta=own)

    async with stage(tmp_path, declare) as up:
        if capabilities is None:
            result = (await up.client.finish("stamped"))["result"]
        else:
            result = (await up.client.call("stamped", capabilities=capabilities)).result
    assert result["_meta"] == {"com.example/cost": 3, SERVER_INFO: {"name": "wire", "version": "1.0"}}


async def test_a_tool_error_is_a_completed_task(scene: Stage) -> None:
    task = await scene.client.finish("refuse", {"reason": "no ink"})
    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert "no ink" in task["result"]["content"][0]["text"]
    assert "error" not in task


async def test_a_protocol_error_is_a_failed_task_with_that_error(scene: Stage) -> None:
    task = await scene.client.finish("broken", {"code": -32050, "message": "out of paper"})
    assert task["status"] == "failed"
    assert task["error"] == {"code": -32050, "message": "out of paper", "data": {"hint": "none"}}
    assert task["statusMessage"] == "out of paper"


async def test_all_outstanding_questions_are_shown_each_time(scene: Stage) -> None:
    task_id = await scene.client.start("ask_two")
    task = await scene.client.until(task_id, "input_required")
    assert list(task["inputRequests"]) == ["form", "entry"]
    assert {request["method"] for request in task["inputRequests"].values()} == {"elicitation/create"}
    assert (await scene.client.get(task_id)).result["inputRequests"] == task["inputRequests"]


async def test_a_terminal_task_never_changes(scene: Stage) -> None:
    task_id = await scene.client.start("hello", {"name": "you"})
    task = await scene.client.until(task_id)
    await scene.client.cancel(task_id)
    await scene.client.update(task_id, {"form": FORM})
    assert (await scene.client.get(task_id)).result == task


async def test_a_task_whose_workers_all_died_fails_and_says_so(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool(max_attempts=2)
        async def fatal() -> None: ...

    async with stage(tmp_path, declare, worker=False) as up:
        task_id = await up.client.start("fatal")
        for _ in range(2):
            session = await up.store.open_session(60_000, {})
            assert await up.store.claim(session.id, [Demand("tools/call:fatal", 1)], 1)
            await up.store.take_over([session.id])
        task = (await up.client.get(task_id)).result
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert "died or went silent 2 times" in task["statusMessage"]


async def test_a_result_survives_its_server(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare) as up:
        task = await up.client.finish("hello", {"name": "you"})
    async with stage(tmp_path, Tools().declare) as again:
        assert (await again.client.get(task["taskId"])).result == task


async def test_what_was_running_runs_again_after_a_restart(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare) as up:
        task_id = await up.client.start("gated")
        await eventually(tools.entered.is_set, "it never started")
    later = Tools()
    later.gate.set()
    async with stage(tmp_path, later.declare) as again:
        task = await again.client.until(task_id)
    assert (task["status"], tools.ended, later.ended) == ("completed", ["cancelled"], ["returned"])
