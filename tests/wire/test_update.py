"""Contract 4: answers. Which count, which are ignored, and which are refused with nothing stored."""

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import TaskContext
from tests.support import eventually
from tests.wire.checker import instant
from tests.wire.support import Stage, replica
from tests.wire.tools import ENTRY, FORM, Tools

UNKNOWN = "tsk_" + "a" * 32
ANYTHING: list[Any] = [None, 5, "text", [], [1], {}, True, {"action": "dance"}, {"action": "accept", "content": 5}]


async def asked(scene: Stage, tool: str = "ask") -> str:
    task_id = await scene.client.start(tool)
    await scene.client.until(task_id, "input_required")
    return task_id


async def test_an_answer_is_acknowledged_and_the_next_look_shows_no_question(scene: Stage, tools: Tools) -> None:
    """Read-your-writes on this replica."""
    for _ in range(5):
        task_id = await asked(scene)
        reply = await scene.client.update(task_id, {"form": FORM})
        assert {name for name in reply.result if name != "_meta"} == {"resultType"}
        assert (await scene.client.get(task_id)).result["status"] != "input_required"
        assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == "accept True"
    assert tools.ran == ["ask", "ask"] * 5


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_no_is_an_answer(scene: Stage, action: str) -> None:
    task_id = await asked(scene)
    await scene.client.update(task_id, {"form": {"action": action}})
    assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == f"{action} None"


async def test_a_response_to_a_key_that_was_never_issued_is_ignored_whatever_it_is(scene: Stage) -> None:
    task_id = await asked(scene)
    before = scene.dump()
    for value in ANYTHING:
        await scene.client.update(task_id, {"other": value, "": value, "Form": value})
        assert scene.dump() == before
    await scene.client.update(task_id, {"form": FORM} | {f"other {value}": value for value in ANYTHING})
    assert (await scene.client.until(task_id))["status"] == "completed"


async def test_a_response_to_an_answered_key_is_ignored_whatever_it_is(scene: Stage) -> None:
    task_id = await asked(scene, "ask_two")
    await scene.client.update(task_id, {"form": FORM})
    before = scene.dump()
    for value in (*ANYTHING, FORM):
        await scene.client.update(task_id, {"form": value})
        assert scene.dump() == before
    await scene.client.update(task_id, {"form": None, "entry": ENTRY})
    assert (await scene.client.until(task_id))["status"] == "completed"


MISFITS: list[tuple[Any, str]] = [
    (None, "response"),
    (5, "response"),
    ("accept", "response"),
    ([], "response"),
    ({}, "action"),
    ({"action": "dance", "content": {"ok": True}}, "action"),
    ({"action": None}, "action"),
    ({"action": "accept"}, "content"),
    ({"action": "accept", "content": None}, "content"),
    ({"action": "accept", "content": "yes"}, "content"),
    ({"action": "accept", "content": {}}, "content"),
    ({"action": "accept", "content": {"ok": "secret"}}, "content.ok"),
    ({"action": "accept", "content": {"ok": None}}, "content.ok"),
    ({"action": "accept", "content": {"ok": {"nested": True}}}, "content.ok"),
]


async def test_a_response_that_does_not_fit_is_refused_with_the_reason_and_nothing_is_stored(scene: Stage) -> None:
    task_id = await asked(scene, "ask_two")
    before = scene.dump()
    for value, reason in MISFITS:
        for responses in ({"form": value}, {"entry": ENTRY, "form": value}, {"form": value, "entry": ENTRY}):
            reply = await scene.client.update(task_id, responses)
            assert reply.code == -32602, value
            assert "'form'" in reply.error["message"]
            assert reason in reply.error["message"]
            assert "secret" not in reply.error["message"]
        assert scene.dump() == before, value
    await scene.client.update(task_id, {"form": FORM, "entry": ENTRY})
    assert (await scene.client.until(task_id))["status"] == "completed"


async def test_the_schema_of_the_question_is_checked_beyond_types(scene: Stage) -> None:
    task_id = await asked(scene, "ask_two")
    reply = await scene.client.update(task_id, {"entry": {"action": "accept", "content": {"name": "far too long"}}})
    assert reply.code == -32602
    assert "maxLength" in reply.error["message"]


async def test_a_partial_answer_keeps_asking_for_the_rest(scene: Stage) -> None:
    task_id = await asked(scene, "ask_two")
    both = (await scene.client.get(task_id)).result
    await scene.client.update(task_id, {"entry": ENTRY})
    rest = (await scene.client.get(task_id)).result
    assert (rest["status"], list(rest["inputRequests"])) == ("input_required", ["form"])
    assert instant(rest["lastUpdatedAt"]) >= instant(both["lastUpdatedAt"])
    await scene.client.update(task_id, {"form": {"action": "decline"}})
    done = await scene.client.until(task_id)
    assert done["result"]["content"][0]["text"] == "form=decline, entry=accept"


async def test_a_second_question_comes_after_the_first_is_answered(scene: Stage) -> None:
    task_id = await asked(scene, "ask_twice")
    await scene.client.update(task_id, {"form": FORM, "entry": ENTRY})

    async def asks_the_second() -> bool:
        return list((await scene.client.get(task_id)).result.get("inputRequests", {})) == ["entry"]

    await eventually(asks_the_second, "an answer to a key that was not yet issued counts for nothing")
    await scene.client.update(task_id, {"entry": ENTRY})
    assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == "accept, accept"


async def test_the_first_answer_wins_across_replicas(scene: Stage) -> None:
    async with replica(scene) as other:
        for _ in range(5):
            task_id = await asked(scene, "ask_two")
            here = scene.client.update(task_id, {"form": FORM})
            there = other.update(task_id, {"form": {"action": "decline"}})
            await asyncio.gather(here, there)
            first = answered(scene, task_id)
            late = (who.update(task_id, {"form": {"action": "cancel"}}) for who in (scene.client, other))
            await asyncio.gather(*late)
            assert answered(scene, task_id) == first
            await scene.client.update(task_id, {"entry": ENTRY})
            done = await scene.client.until(task_id)
            assert done["result"]["content"][0]["text"] == f"form={json.loads(first)['action']}, entry=accept"


def answered(scene: Stage, task_id: str) -> str:
    """The one response that is stored for the first question of a task."""
    with closing(sqlite3.connect(scene.database)) as connection:
        [(response,)] = connection.execute(
            "SELECT response FROM input JOIN task ON seq = task_seq WHERE id = ? AND input.state = 'answered'",
            (task_id,),
        )
    return response


async def test_a_key_used_for_another_question_fails_the_task_and_is_named(scene: Stage) -> None:
    class Other(BaseModel):
        ok: bool

    @scene.tasks.tool()
    async def confused(task: TaskContext) -> None:
        await task.elicit("key", "One?", Other)
        await task.elicit("key", "Two?", Other)

    task_id = await asked(scene, "confused")
    await scene.client.update(task_id, {"key": FORM})
    task = await scene.client.until(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert "'key'" in task["statusMessage"]


async def test_the_same_question_under_its_key_is_answered_from_the_record(scene: Stage) -> None:
    @scene.tasks.tool()
    async def insistent(task: TaskContext) -> bool:
        class Again(BaseModel):
            ok: bool

        return all([(await task.elicit("key", "Sure?", Again)).accepted for _ in range(3)])

    task_id = await asked(scene, "insistent")
    await scene.client.update(task_id, {"key": FORM})
    assert (await scene.client.until(task_id))["result"]["structuredContent"] == {"result": True}


async def test_answers_to_a_task_that_asks_nothing_are_acknowledged_and_ignored(scene: Stage) -> None:
    working = await scene.client.start("gated")
    parked = await asked(scene)
    await scene.client.cancel(parked)
    over = (await scene.client.finish("hello", {"name": "you"}))["taskId"]
    await eventually(lambda: "gated" in str(scene.dump()), "never stored")
    before = {task_id: (await scene.client.get(task_id)).result for task_id in (working, parked, over)}
    for task_id in before:
        for value in ({}, {"form": FORM}, {"form": 5}):
            await scene.client.update(task_id, value)
    assert {task_id: (await scene.client.get(task_id)).result for task_id in before} == before


async def test_an_unknown_task_takes_no_answers(scene: Stage) -> None:
    reply = await scene.client.update(UNKNOWN, {"form": FORM})
    assert (reply.code, reply.error["message"]) == (-32602, "Task not found")


async def test_any_replica_takes_an_answer(scene: Stage) -> None:
    """No worker has to be there; one that is elsewhere goes on with the task."""
    task_id = await asked(scene)
    async with replica(scene) as other:
        await other.update(task_id, {"form": FORM})
        assert (await other.until(task_id))["result"]["content"][0]["text"] == "accept True"
