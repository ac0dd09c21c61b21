"""Contract 2: when a call becomes a task, and what its handle says."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import Tasks
from tests.wire.checker import instant
from tests.wire.envelopes import EVERYTHING, INPUT, NOTHING, TASKS, meta
from tests.wire.support import Stage, replica, stage


async def test_a_handle_is_flat_and_working(scene: Stage) -> None:
    result = (await scene.client.call("gated")).result
    assert {name for name in result if name != "_meta"} == {
        "resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs",
    }  # fmt: skip
    assert (result["resultType"], result["status"]) == ("task", "working")
    assert result["createdAt"] == result["lastUpdatedAt"]


async def test_an_unlimited_ttl_is_null_and_there(scene: Stage) -> None:
    raw = (await scene.client.call("gated")).raw
    assert b'"ttlMs":null' in raw


async def test_ttl_and_interval_are_those_of_the_tool(scene: Stage) -> None:
    result = (await scene.client.call("must")).result
    assert (result["ttlMs"], result["pollIntervalMs"]) == (900_000, 2000)


@pytest.mark.parametrize("capabilities", [TASKS, EVERYTHING])
async def test_a_declaring_client_gets_a_task(scene: Stage, capabilities: Any) -> None:
    task = await scene.client.finish("hello", {"name": "you"}, capabilities=capabilities)
    assert task["result"]["content"] == [{"type": "text", "text": "Hello, you!"}]


@pytest.mark.parametrize("capabilities", [NOTHING, INPUT])
async def test_an_undeclaring_client_never_gets_a_task(scene: Stage, capabilities: Any) -> None:
    await scene.client.start("hello", {"name": "you"})
    reply = await scene.client.call("hello", {"name": "you"}, capabilities=capabilities)
    assert reply.result["resultType"] == "complete"
    assert reply.text == "Hello, you!"


async def test_a_tool_that_must_be_a_task_refuses_an_undeclaring_client_and_stores_nothing(scene: Stage) -> None:
    before = scene.dump()
    reply = await scene.client.call("must", capabilities=INPUT)
    assert reply.required == TASKS
    assert scene.dump() == before


async def test_the_server_decides_call_by_call(scene: Stage) -> None:
    assert (await scene.client.call("sized", {"n": 2})).result["resultType"] == "task"
    small = await scene.client.call("sized", {"n": 1})
    assert (small.result["resultType"], small.text) == ("complete", "1")


async def test_a_plain_tool_is_never_a_task(scene: Stage) -> None:
    @scene.mcp.tool()
    def plain(n: int) -> int:
        return n + 1

    before = scene.dump()
    assert (await scene.client.call("plain", {"n": 1})).text == "2"
    assert scene.dump() == before


async def test_an_unknown_tool_is_answered_as_the_sdk_answers_and_stores_nothing(scene: Stage) -> None:
    before = scene.dump()
    assert "no_such" in (await scene.client.call("no_such")).raw.decode()
    assert scene.dump() == before


async def test_the_task_lies_on_disk_before_its_handle_leaves(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    rows = dict(scene.dump())["task"]
    assert [row[1] for row in rows] == [task_id]


async def test_another_replica_resolves_the_handle_at_once(scene: Stage) -> None:
    """In a process of its own this is the acceptance tests' business; here: another store, another server, one file."""
    async with replica(scene) as client:
        for _ in range(10):
            made = (await scene.client.call("gated")).result
            seen = (await client.get(made["taskId"])).result
            assert {**seen, "resultType": "task"} == made


async def test_arguments_reach_the_tool_as_they_were_sent(tmp_path: Path) -> None:
    got: list[Any] = []

    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def take(value: dict[str, Any]) -> str:
            got.append(value)
            return "taken"

    sent: dict[str, Any] = {
        "": None,
        "😀": [1, 2.5, True, "\u0000\u2028", {"a": {}}],
        "big": 2**53 + 1,
        "deep": [[[[[]]]]],
    }
    async with stage(tmp_path, declare) as up:
        await up.client.finish("take", {"value": sent})
    assert json.dumps(got) == json.dumps([sent])


async def test_every_id_is_new_and_can_go_into_a_header(scene: Stage) -> None:
    ids = {await scene.client.start("gated") for _ in range(20)}
    assert len(ids) == 20
    assert all(task_id.isascii() and task_id.isprintable() and len(task_id) == 36 for task_id in ids)


async def test_times_are_of_this_moment(scene: Stage) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    first = (await scene.client.call("gated")).result
    second = (await scene.client.call("gated")).result
    after = datetime.now(UTC)
    assert before <= instant(first["createdAt"]) <= instant(second["createdAt"]) <= after


async def test_nothing_of_the_request_meta_is_stored(scene: Stage) -> None:
    await scene.client.finish("hello", {"name": "you"}, params={"_meta": meta() | {"com.example/secret": "sesame"}})
    assert "sesame" not in json.dumps(scene.dump())


async def many(numbers: list[int]) -> str:
    return f"{len(numbers)}"


async def test_of_arguments_with_many_faults_it_is_told_how_many_there_are(
    scene: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """In words they would be thirty times what was sent, and nobody would be served until they are written."""
    caplog.set_level("DEBUG")
    scene.tasks.tool()(many)
    wrong = (await scene.client.call("many", {"numbers": [None] * 150_000})).result
    assert (wrong["isError"], "150000 validation errors" in wrong["content"][0]["text"]) == (True, True)
    assert len(wrong["content"][0]["text"]) < 1_000
    assert all(len(record.getMessage()) < 1_000 for record in caplog.records if record.name.startswith("perdure"))
    told = (await scene.client.call("many", {"numbers": [None] * 100})).result["content"][0]["text"]
    assert "numbers.99" in told
