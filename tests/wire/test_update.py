"""Contract 4: answers. Which count, which are ignored, and which are refused with nothing stored."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import date, datetime
from typing import Any, Literal

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationError, field_validator

from perdure import Limits, TaskContext
from perdure.domain.model import InputRequest, JSONObject
from perdure.wire import answers
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


class Formats(BaseModel):
    when: datetime | None = None
    day: date | None = None
    link: AnyUrl | None = None
    mail: str | None = Field(default=None, json_schema_extra={"format": "email"})
    code: str | None = Field(default=None, pattern=r"^(a+)+$")


async def formats(task: TaskContext) -> str:
    return (await task.elicit("form", "Which?", Formats)).action


async def test_the_formats_and_patterns_of_the_question_are_checked(scene: Stage) -> None:
    scene.tasks.tool()(formats)
    task_id = await asked(scene, "formats")
    before = scene.dump()
    for name, value in (
        ("when", "yesterday"),
        ("when", "2026-11-29"),
        ("when", "2026-13-29T10:00:00Z"),
        ("when", "2026-11-29T10:00:00"),
        ("day", "29.11.2026"),
        ("day", "2026-02-30"),
        ("link", "no link"),
        ("link", "//example.org"),
        ("link", "https://example.org/" + "a" * 20_000),
        ("mail", "nobody"),
        ("code", "aab"),
    ):
        reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": {name: value}}})
        assert reply.code == -32602, (name, value)
        rule = "pattern" if name == "code" else "format"
        assert f"content.{name}: violates '{rule}'" in reply.error["message"]
        assert value not in reply.error["message"]
    assert scene.dump() == before
    right = {"when": "2026-11-29T10:00:00Z", "day": "2026-02-28", "link": "https://example.org/a?b#c"}
    content = right | {"mail": "ada@example.org", "code": "aa"}
    await scene.client.update(task_id, {"form": {"action": "accept", "content": content}})
    assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == "accept"


class Numbers(BaseModel):
    real: float | None = None
    whole: int | None = None
    cents: float | None = Field(default=None, multiple_of=0.01)
    threes: int | None = Field(default=None, multiple_of=3)
    when: datetime | None = None
    link: AnyUrl | None = None


async def numbers(task: TaskContext) -> str:
    return (await task.elicit("form", "How many?", Numbers)).action


UNTAKEN: list[tuple[str, Any]] = [
    ("real", 10**400),
    ("real", -(10**400)),
    ("real", 2**1024),
    ("whole", 1e308),
    ("whole", 2.0**63),
    ("cents", 10**400),
    ("cents", 0.075),
    ("threes", 10**400),
    ("when", "2026-12-31T23:59:60Z"),
    ("link", "https://a:99999"),
]
TAKEN: list[tuple[str, Any]] = [
    ("real", 10**300),
    ("whole", 10**400),
    ("whole", 5.0),
    ("cents", 0.07),
    ("cents", 5),
    ("threes", 3 * 10**400),
    ("when", "2026-12-31T23:59:59.5+01:00"),
    ("link", "urn:isbn:0"),
]


async def test_what_the_plain_types_of_models_can_not_take_is_refused_at_the_answer(scene: Stage) -> None:
    """Once it is stored nobody can take it back, and the tool could do nothing with it."""
    scene.tasks.tool()(numbers)
    task_id = await asked(scene, "numbers")
    before = scene.dump()
    for name, value in UNTAKEN:
        with pytest.raises(ValidationError):
            Numbers.model_validate({name: value})
        reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": {name: value}}})
        assert (reply.code, reply.error["message"].count(f"content.{name}: violates")) == (-32602, 1), (name, value)
    assert scene.dump() == before


async def test_what_they_take_is_accepted(scene: Stage) -> None:
    scene.tasks.tool()(numbers)
    for name, value in TAKEN:
        task_id = await asked(scene, "numbers")
        await scene.client.update(task_id, {"form": {"action": "accept", "content": {name: value}}})
        assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == "accept", (name, value)


def test_an_answer_that_can_not_be_judged_does_not_fit() -> None:
    """Whatever the judges make of a tool's own schema, here one that refers to what is not there."""
    schema: JSONObject = {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}
    request: JSONObject = {"method": "elicitation/create", "params": {"message": "What?", "requestedSchema": schema}}
    response = {"form": {"action": "accept", "content": {"x": 1}}}
    with pytest.raises(MCPError, match="can't be judged") as refused:
        answers.check([InputRequest("form", request, 0)], response, Limits())
    assert refused.value.error.code == -32602


class Choices(BaseModel):
    letters: list[Literal["a", "b"]]


async def choices(task: TaskContext) -> str:
    return (await task.elicit("form", "Which?", Choices)).action


CROWDS: dict[str, Any] = {
    "items": {"letters": ["a"] * 262_000 + ["c"]},
    "lists": {"letters": [[]] * 262_000},
    "members": {f"{number}": 1 for number in range(90_000)},
    "members that are lists": {f"{number}": [[]] for number in range(70_000)},
}


@pytest.mark.parametrize("crowd", CROWDS)
async def test_however_much_an_answer_holds_is_refused_before_each_of_it_is_judged(scene: Stage, crowd: str) -> None:
    """Judged one by one it takes up to half a minute, and nobody else is served meanwhile."""
    scene.tasks.tool()(choices)
    task_id = await asked(scene, "choices")
    before = scene.dump()
    reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": CROWDS[crowd]}})
    assert (reply.code, "values, which is the limit" in reply.error["message"]) == (-32602, True)
    assert scene.dump() == before


async def test_of_an_answer_with_many_faults_not_all_are_told(scene: Stage) -> None:
    scene.tasks.tool()(choices)
    task_id = await asked(scene, "choices")
    content: dict[str, Any] = {f"{number}": [[]] for number in range(1_000)}
    reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": content}})
    assert (reply.code, len(reply.raw) < 500) == (-32602, True)


async def test_an_item_that_does_not_fit_is_found_behind_many_that_do(scene: Stage) -> None:
    scene.tasks.tool()(choices)
    task_id = await asked(scene, "choices")
    for wrong in (["a", "b"] * 1_000 + ["c"], ["a", "c", "c"]):
        reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": {"letters": wrong}}})
        assert f"content.letters.{wrong.index('c')}: violates 'enum'" in reply.error["message"]
    await scene.client.update(task_id, {"form": {"action": "accept", "content": {"letters": ["a", "b", "a"]}}})
    assert (await scene.client.until(task_id))["result"]["content"][0]["text"] == "accept"


async def test_no_answer_makes_a_pattern_take_long(scene: Stage) -> None:
    """Backtracking, this would not end before the test is given up."""
    scene.tasks.tool()(formats)
    task_id = await asked(scene, "formats")
    reply = await scene.client.update(task_id, {"form": {"action": "accept", "content": {"code": "a" * 100_000 + "b"}}})
    assert "pattern" in reply.error["message"]


class Looking(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")

    word: str = Field(pattern="^(?!no)")


async def looking(task: TaskContext) -> str:
    answer = await task.elicit("form", "Which?", Looking)
    return answer.data.word if answer.data else ""


async def test_a_pattern_that_only_the_model_can_match_is_judged_by_the_model(scene: Stage) -> None:
    scene.tasks.tool()(looking)
    for word, said in (
        ("yes", "yes"),
        ("nothing", "The answer to 'form' can't be used: word: String should match pattern '^(?!no)'"),
    ):
        task_id = await asked(scene, "looking")
        await scene.client.update(task_id, {"form": {"action": "accept", "content": {"word": word}}})
        assert said in (await scene.client.until(task_id))["result"]["content"][0]["text"]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


async def even(task: TaskContext) -> int:
    answer = await task.elicit("first", "Which?", Even)
    return answer.data.number if answer.data else 0


async def even_again(task: TaskContext) -> int:
    try:
        answer = await task.elicit("first", "Which?", Even)
    except ToolError:
        answer = await task.elicit("second", "Which? An even one.", Even)
    return answer.data.number if answer.data else 0


async def test_an_answer_that_only_the_model_refuses_is_a_tool_error_that_does_not_quote_it(
    scene: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "perdure")
    scene.tasks.tool()(even)
    task_id = await asked(scene, "even")
    await scene.client.update(task_id, {"first": {"action": "accept", "content": {"number": 424243}}})
    done = await scene.client.until(task_id)
    assert (done["status"], done["result"]["isError"]) == ("completed", True)
    text = done["result"]["content"][0]["text"]
    assert text == "Error executing tool even: The answer to 'first' can't be used: number: value_error"
    assert "424243" not in caplog.text


async def test_a_tool_may_ask_again_under_another_key_when_its_model_refuses_an_answer(scene: Stage) -> None:
    scene.tasks.tool()(even_again)
    task_id = await asked(scene, "even_again")
    await scene.client.update(task_id, {"first": {"action": "accept", "content": {"number": 1}}})

    async def asks_the_second() -> bool:
        return list((await scene.client.get(task_id)).result.get("inputRequests", {})) == ["second"]

    await eventually(asks_the_second, "never asked again")
    await scene.client.update(task_id, {"second": {"action": "accept", "content": {"number": 2}}})
    assert (await scene.client.until(task_id))["result"]["structuredContent"] == {"result": 2}


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
