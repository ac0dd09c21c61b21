"""Connections of the handshake era (2025-11-25 and before): they know no tasks, and their tools run inside the request.

The pinned adapter of contract 10 is off unless asked for, and is not part of this.
"""

from typing import Any

import pytest
from mcp.client import Client as SDKClient

from tests.wire.envelopes import JSON, SERVER_INFO
from tests.wire.handshake import Old
from tests.wire.support import Stage
from tests.wire.tools import Tools

ERAS = ["2025-03-26", "2025-06-18", "2025-11-25"]
UNKNOWN = "tsk_" + "a" * 32


@pytest.fixture(params=ERAS)
async def old(scene: Stage, request: pytest.FixtureRequest) -> Old:
    client = Old(scene, request.param, {"elicitation": {}, "roots": {}, "sampling": {}})
    initialized = await client.shake_hands()
    # Nothing of this extension shows in what the server says of itself.
    assert initialized["protocolVersion"] == request.param
    assert "extensions" not in initialized["capabilities"]
    assert "tasks" not in initialized["capabilities"]
    return client


async def test_the_task_methods_do_not_exist(scene: Stage, old: Old) -> None:
    task_id = await scene.client.start("gated")
    for method in ("tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result", "subscriptions/listen"):
        shapes: list[JSON] = [{"taskId": task_id, "inputResponses": {}}, {"taskId": UNKNOWN}, {"taskId": 5}, {}]
        for params in shapes:
            assert (await old.request(method, params)).code == -32601, (method, params)
    assert (await scene.client.get(task_id)).result["status"] == "working"


async def test_a_tool_runs_inside_the_request_and_its_result_is_of_that_era(old: Old) -> None:
    reply = await old.request("tools/call", {"name": "hello", "arguments": {"name": "you"}})
    assert reply.text == "Hello, you!"
    assert not {"resultType", "taskId", "ttlMs", "status"} & set(reply.result)
    assert SERVER_INFO not in reply.result.get("_meta", {})


async def test_declaring_the_extension_or_a_task_makes_no_difference(scene: Stage, old: Old) -> None:
    params: JSON = {"name": "hello", "arguments": {"name": "you"}, "task": {"ttl": 60_000}}
    assert (await old.request("tools/call", params)).text == "Hello, you!"
    client = Old(scene, ERAS[-1], {"extensions": {"io.modelcontextprotocol/tasks": {}}, "tasks": {"list": {}}})
    await client.shake_hands()
    assert (await client.request("tools/call", params)).text == "Hello, you!"


async def test_what_a_call_holds_has_the_same_bounds_as_in_the_era_after_it(scene: Stage, old: Old) -> None:
    deep: JSON = 0
    for _ in range(110):
        deep = [deep]
    for wrong, words in ((deep, "nest deeper than 100"), ([0] * 250_000, "hold more than 250000 values")):
        reply = await old.request("tools/call", {"name": "hello", "arguments": {"name": "you", "more": wrong}})
        assert (reply.code, words in reply.error["message"]) == (-32602, True)


async def test_a_tool_that_must_be_a_task_is_refused(scene: Stage, old: Old) -> None:
    before = scene.dump()
    assert (await old.request("tools/call", {"name": "must", "arguments": {}})).code == -32021
    assert scene.dump() == before


async def test_a_tool_that_asks_is_refused_since_there_is_no_way_to_ask(old: Old) -> None:
    reply = await old.request("tools/call", {"name": "ask", "arguments": {}})
    assert reply.code == -32021


async def test_errors_of_tools_are_as_ever(old: Old) -> None:
    refused = await old.request("tools/call", {"name": "refuse", "arguments": {"reason": "no ink"}})
    assert refused.result["isError"] is True
    broken = await old.request("tools/call", {"name": "broken", "arguments": {"code": -32050, "message": "no paper"}})
    assert broken.error == {"code": -32050, "message": "no paper", "data": {"hint": "none"}}
    bad = await old.request("tools/call", {"name": "hello", "arguments": {}})
    assert bad.result["isError"] is True


async def test_the_tools_are_listed_as_in_the_new_era(scene: Stage, old: Old) -> None:
    new = [tool["name"] for tool in (await scene.client.request("tools/list")).result["tools"]]
    assert [tool["name"] for tool in (await old.request("tools/list", {})).result["tools"]] == new


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdks_own_client_gets_results_in_either_era(scene: Stage, tools: Tools, mode: str) -> None:
    async with SDKClient(scene.client.url, mode=mode) as client:
        result: Any = await client.call_tool("hello", {"name": mode})
        assert result.content[0].text == f"Hello, {mode}!"
    assert tools.ran == ["hello"]
