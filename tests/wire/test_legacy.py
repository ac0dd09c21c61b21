"""The tasks of revision 2025-11-25 over HTTP, read by the client of `mcp` 1.x (contract 10).

One server, with three of its clients: two users of the old era, and the raw client of the new one for the first user.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp_types import CallToolResult, TextContent
from pydantic import AnyHttpUrl

from perdure import Elicit, Limits, TaskContext, Tasks
from perdure.engine.pace import Pace
from tests.support import eventually
from tests.wire.envelopes import JSON, RELATED_TASK
from tests.wire.handshake import Old
from tests.wire.old_sdk import OldClient, OldError, old_client, text
from tests.wire.support import Client, Stage, stage
from tests.wire.tools import ENTRY, FORM, Entry, Form, Tools

UNKNOWN = "tsk_" + "a" * 32
MALFORMED = "786512e2-9e0d-44bd-8f29-789f320fe840"

# The first test that needs the old SDK installs it.
pytestmark = pytest.mark.timeout(300)


class Verifier:
    """Tokens are names here."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="app", scopes=[], subject=token, claims={"iss": "https://id.example"})


class Everything:
    """Tools that ask for all there is to ask for."""

    def declare(self, tasks: Tasks) -> None:
        for function in (self.visit, self.think, self.look_around, self.nap, self.numbers):
            tasks.tool()(function)
        tasks.tool(mode="task", poll_interval="50ms")(self.two_forms)

    async def visit(self, task: TaskContext) -> str:
        return (await task.elicit_url("page", "Go there", "https://example.org")).action

    async def think(self, task: TaskContext) -> str:
        thought = await task.sample("thought", ["What now?"])
        return f"{thought and thought.content}"

    async def look_around(self, task: TaskContext) -> str:
        found = await task.list_roots("roots")
        return f"{found and [str(root.uri) for root in found.roots]}"

    async def numbers(self) -> CallToolResult:
        return CallToolResult(content=[TextContent(text="one and two")], structured_content=[1, 2])

    async def nap(self) -> None:
        await asyncio.Event().wait()

    async def two_forms(self, task: TaskContext) -> str:
        await task.report("asking")
        asked = await task.ask({"form": Elicit("All right?", Form), "entry": Elicit("Who?", Entry)})
        return ", ".join(answer.action for answer in asked.values())


@pytest.fixture(scope="module")
def tools() -> Tools:
    return Tools()


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> AsyncGenerator[Stage]:
    def declare(tasks: Tasks) -> None:
        tools.declare(tasks)
        Everything().declare(tasks)

    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    server: dict[str, Any] = {"auth": auth, "token_verifier": Verifier()}
    async with stage(tmp_path_factory.mktemp("legacy"), declare, server=server, legacy=True) as up:
        up.mcp.add_tool(plain)
        yield up


def plain() -> str:
    """No task tool."""
    return "plain"


@pytest.fixture(scope="module")
async def ada(scene: Stage) -> AsyncGenerator[OldClient]:
    async with old_client(url=scene.client.url, token="ada") as client:
        yield client


@pytest.fixture(scope="module")
async def bob(scene: Stage) -> AsyncGenerator[OldClient]:
    """Somebody else, whose client can answer nothing."""
    async with old_client(url=scene.client.url, token="bob", silent=True) as client:
        yield client


@pytest.fixture(scope="module")
def new(scene: Stage) -> Client:
    return scene.client.bearing("ada")


# -- what is said of it ------------------------------------------------------------------------------------------------


async def test_the_server_and_its_tools_say_that_they_take_tasks(ada: OldClient) -> None:
    everything: JSON = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert (ada.hello["protocolVersion"], ada.hello["capabilities"]["tasks"]) == ("2025-11-25", everything)
    assert "extensions" not in ada.hello["capabilities"]
    listed = {tool["name"]: tool.get("execution") for tool in (await ada.do("list_tools"))["tools"]}
    assert (listed["hello"], listed["must"]) == ({"taskSupport": "optional"}, {"taskSupport": "required"})
    assert listed["plain"] is None


async def test_the_era_after_it_sees_nothing_of_it(scene: Stage, new: Client) -> None:
    assert "tasks" not in (await new.request("server/discover")).result["capabilities"]
    assert all("execution" not in tool for tool in (await new.request("tools/list")).result["tools"])
    task_id = await new.start("nap", params={"task": {"ttl": 60_000}})
    for method in ("tasks/result", "tasks/list", "tasks/status"):
        assert (await new.request(method, {"taskId": task_id})).code == -32601
    assert (await new.get(task_id)).result["ttlMs"] is None
    await new.cancel(task_id)


@pytest.mark.parametrize("era", ["2025-03-26", "2025-06-18"])
async def test_an_earlier_revision_sees_nothing_of_it(scene: Stage, new: Client, era: str) -> None:
    task_id = await new.start("nap")
    old = Old(scene, era, {}, "ada")
    assert "tasks" not in (await old.shake_hands())["capabilities"]
    for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"):
        assert (await old.request(method, {"taskId": task_id})).code == -32601
    hello: JSON = {"name": "hello", "arguments": {"name": "you"}, "task": {}}
    assert (await old.request("tools/call", hello)).text == "Hello, you!"
    assert (await old.request("tools/call", {"name": "must", "arguments": {}})).code == -32021
    assert all("execution" not in tool for tool in (await old.request("tools/list", {})).result["tools"])
    await new.cancel(task_id)


# -- a call that becomes a task ----------------------------------------------------------------------------------------


async def test_a_task_is_made_polled_and_its_result_fetched(ada: OldClient) -> None:
    made = await ada.do("call_tool_as_task", name="hello", arguments={"name": "you"})
    assert set(made) == {"task"}
    assert set(made["task"]) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    task_id = made["task"]["taskId"]
    assert (await ada.do("poll_task", task_id=task_id))[-1] == "completed"
    assert set(await ada.do("get_task", task_id=task_id)) == set(made["task"])
    result = await ada.do("get_task_result", task_id=task_id)
    assert result == {
        "content": [{"type": "text", "text": "Hello, you!"}],
        "structuredContent": {"result": "Hello, you!"},
        "isError": False,
        "_meta": {RELATED_TASK: {"taskId": task_id}},
    }


async def test_what_that_revision_has_no_shape_for_is_left_out_of_a_result(ada: OldClient, new: Client) -> None:
    task_id = await ada.start("numbers")
    result = await ada.do("get_task_result", task_id=task_id)
    assert (text(result), "structuredContent" in result) == ("one and two", False)
    assert (await new.get(task_id)).result["result"]["structuredContent"] == [1, 2]


async def test_the_result_is_waited_for(ada: OldClient, tools: Tools) -> None:
    tools.entered.clear()
    task_id = await ada.start("gated")
    await eventually(tools.entered.is_set, "the tool does not run")
    waiting = asyncio.create_task(ada.do("get_task_result", task_id=task_id))
    assert (await ada.do("get_task", task_id=task_id))["status"] == "working"
    tools.gate.set()
    assert text(await waiting) == "through"
    tools.gate.clear()


async def test_who_polls_too_often_is_told_longer_and_then_refused(
    scene: Stage, ada: OldClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = scene.tasks.assembly.runtime
    bounds = replace(runtime.options, limits=Limits(polls_per_second=1))
    monkeypatch.setattr(runtime, "pace", Pace(lambda: bounds, clock=lambda: 0.0))
    task_id = await ada.start("nap")
    told = [(await ada.do("get_task", task_id=task_id))["pollInterval"] for _ in range(10)]
    assert told[:6] + told[-1:] == [1000] * 5 + [1200, 2000]
    with pytest.raises(OldError, match="asked for too often") as refused:
        await ada.do("get_task", task_id=task_id)
    assert refused.value.code == -32000
    await ada.do("cancel_task", task_id=task_id)


async def test_the_ttl_is_the_tools_whatever_a_client_asks_for(ada: OldClient) -> None:
    for ttl in (1, 60_000, 10**12):
        task = (await ada.do("call_tool_as_task", name="must", ttl=ttl))["task"]
        assert (task["ttl"], task["pollInterval"]) == (900_000, 2000)
    assert (await ada.do("call_tool_as_task", name="nap", ttl=1))["task"]["ttl"] is None


async def test_who_asks_for_a_task_gets_one_even_if_the_tool_would_not_make_it_one(ada: OldClient) -> None:
    task_id = await ada.start("sized", n=1)
    assert text(await ada.do("get_task_result", task_id=task_id)) == "1"


async def test_an_ordinary_call_is_an_ordinary_call(ada: OldClient) -> None:
    for name, arguments, said in (("hello", {"name": "you"}, "Hello, you!"), ("plain", {}, "plain")):
        result = await ada.do("call_tool", name=name, arguments=arguments)
        assert (text(result), RELATED_TASK in result.get("_meta", {})) == (said, False)


async def test_what_can_be_no_task_and_what_must_be_one_are_told(scene: Stage, ada: OldClient) -> None:
    before = len(dict(scene.dump())["task"])
    for name in ("plain", "no_such_tool"):
        with pytest.raises(OldError, match="called as a task") as refused:
            await ada.start(name)
        assert refused.value.code == -32601
    with pytest.raises(OldError, match="has to be called as a task") as refused:
        await ada.do("call_tool", name="must", arguments={})
    assert refused.value.code == -32601
    assert len(dict(scene.dump())["task"]) == before


async def test_arguments_that_do_not_fit_make_no_task(scene: Stage, ada: OldClient) -> None:
    before = len(dict(scene.dump())["task"])
    with pytest.raises(OldError, match="validation error") as refused:
        await ada.start("hello")
    assert refused.value.code == -32602
    assert len(dict(scene.dump())["task"]) == before


async def test_parameters_that_are_none_are_refused(scene: Stage) -> None:
    old = Old(scene, "2025-11-25", {}, "ada")
    await old.shake_hands()
    wrong: list[tuple[str, JSON]] = [
        ("tools/call", {"name": "hello", "arguments": {"name": "you"}, "task": 5}),
        ("tools/call", {"name": "hello", "arguments": {"name": "you"}, "task": {"ttl": "soon"}}),
        ("tools/call", {"name": ["hello"], "task": {}}),
        ("tools/call", {"task": {}}),
        ("tasks/get", {}),
        ("tasks/result", {"taskId": 5}),
        ("tasks/cancel", {"taskId": None}),
        ("tasks/list", {"cursor": 5}),
    ]
    for method, params in wrong:
        assert (await old.request(method, params)).code == -32602, (method, params)
    assert (await old.request("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}})).code == -32601


async def test_the_limits_of_a_request_are_those_of_the_era_after_it(
    scene: Stage, new: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = scene.tasks.assembly.runtime
    monkeypatch.setattr(runtime, "options", replace(runtime.options, limits=Limits(depth=10, values=100)))
    old = Old(scene, "2025-11-25", {}, "ada")
    await old.shake_hands()
    before = dict(scene.dump())["task"]
    deep: JSON = 0
    for _ in range(30):
        deep = [deep]
    for wrong, words in ((deep, "nest deeper than 10 levels"), ([0] * 101, "hold more than 100 values")):
        call: JSON = {"name": "hello", "arguments": {"name": wrong}}
        requests: list[tuple[str, JSON]] = [
            ("tools/call", call),
            ("tools/call", call | {"task": {}}),
            *((f"tasks/{verb}", {"taskId": UNKNOWN, "more": wrong}) for verb in ("get", "result", "list", "cancel")),
        ]
        for method, params in requests:
            reply = await old.request(method, params)
            assert (reply.code, words in reply.error["message"]) == (-32602, True), (method, reply.error)
        assert words in (await new.call("hello", call["arguments"])).error["message"]
    assert dict(scene.dump())["task"] == before


async def test_the_same_key_finds_the_same_task(ada: OldClient) -> None:
    call: JSON = {"name": "hello", "arguments": {"name": "you"}, "meta": {"dev.perdure/idempotencyKey": "mine"}}
    first, second = await ada.do("call_tool_as_task", **call), await ada.do("call_tool_as_task", **call)
    assert first["task"]["taskId"] == second["task"]["taskId"]


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_a_tool_error_is_a_failed_task_whose_result_says_why(ada: OldClient, new: Client) -> None:
    task_id = await ada.start("refuse", reason="no ink")
    task = await ada.until(task_id, "failed")
    assert task["statusMessage"] == "Error executing tool refuse: no ink"
    result = await ada.do("get_task_result", task_id=task_id)
    assert (result["isError"], text(result)) == (True, "Error executing tool refuse: no ink")
    assert (await new.get(task_id)).result["status"] == "completed"


async def test_a_protocol_error_is_the_answer_to_the_result(ada: OldClient) -> None:
    task_id = await ada.start("broken", code=-32050, message="no paper")
    assert (await ada.until(task_id, "failed"))["statusMessage"] == "no paper"
    with pytest.raises(OldError, match="no paper") as broken:
        await ada.do("get_task_result", task_id=task_id)
    assert broken.value.code == -32050


async def test_a_task_is_cancelled_once(ada: OldClient, new: Client) -> None:
    task_id = await ada.start("nap")
    assert (await ada.do("cancel_task", task_id=task_id))["status"] == "cancelled"
    with pytest.raises(OldError, match="it is cancelled") as refused:
        await ada.do("cancel_task", task_id=task_id)
    assert refused.value.code == -32602
    with pytest.raises(OldError, match="cancelled"):
        await ada.do("get_task_result", task_id=task_id)
    assert (await new.until(task_id))["status"] == "cancelled"


async def test_a_task_that_is_over_is_not_cancelled(ada: OldClient) -> None:
    for name, arguments, status in (("hello", {"name": "you"}, "completed"), ("refuse", {"reason": "x"}, "failed")):
        task_id = await ada.start(name, **arguments)
        await ada.until(task_id, status)
        with pytest.raises(OldError, match=f"it is {status}") as refused:
            await ada.do("cancel_task", task_id=task_id)
        assert refused.value.code == -32602
        assert (await ada.do("get_task", task_id=task_id))["status"] == status


async def test_a_cancelled_task_stays_cancelled_though_its_code_goes_on(
    ada: OldClient, new: Client, tools: Tools
) -> None:
    tools.entered.clear()
    task_id = await ada.start("stubborn")
    await eventually(tools.entered.is_set, "the tool does not run")
    assert (await ada.do("cancel_task", task_id=task_id))["status"] == "cancelled"
    assert (await new.get(task_id)).result["status"] == "working"
    assert (await ada.do("get_task", task_id=task_id))["status"] == "cancelled"
    tools.gate.set()
    result = await ada.do("get_task_result", task_id=task_id)
    assert text(result) == "finished all the same"
    assert (await ada.do("get_task", task_id=task_id))["status"] == "cancelled"
    tools.gate.clear()


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_put_to_the_client_that_waits_for_the_result(ada: OldClient) -> None:
    task_id = await ada.start("ask")
    await ada.until(task_id, "input_required")
    ada.asked.clear()
    await ada.answer(FORM)
    assert text(await ada.do("get_task_result", task_id=task_id)) == "accept True"
    [asked] = ada.asked
    assert (asked["mode"], asked["message"]) == ("form", "All right?")
    assert asked["requestedSchema"]["required"] == ["ok"]
    assert asked["_meta"][RELATED_TASK] == {"taskId": task_id}


async def test_several_questions_are_put_one_after_the_other(ada: OldClient) -> None:
    ada.asked.clear()
    for name in ("two_forms", "ask_twice"):
        await ada.answer(FORM)
        await ada.answer(ENTRY)
        result = await ada.do("get_task_result", task_id=await ada.start(name))
        assert text(result) == "accept, accept"
    assert [asked["message"] for asked in ada.asked] == ["All right?", "Who?"] * 2


async def test_all_kinds_of_questions_are_put(ada: OldClient) -> None:
    ada.asked.clear()
    answers: list[tuple[str, JSON, str]] = [
        ("visit", {"action": "accept"}, "accept"),
        ("think", {"role": "assistant", "content": {"type": "text", "text": "tea"}, "model": "m"}, "tea"),
        ("look_around", {"roots": [{"uri": "file:///home"}]}, "file:///home"),
    ]
    for name, answer, said in answers:
        await ada.answer(answer)
        assert said in text(await ada.do("get_task_result", task_id=await ada.start(name)))
    assert (ada.asked[0]["mode"], bool(ada.asked[0]["elicitationId"])) == ("url", True)


async def test_a_client_that_waits_is_told_of_changes(ada: OldClient) -> None:
    ada.told.clear()
    task_id = await ada.start("ask")
    await ada.answer(FORM)
    await ada.do("get_task_result", task_id=task_id)
    told = [(each["method"], each["params"]) for each in ada.told]
    assert told[-1][1]["status"] == "completed"
    for method, params in told:
        assert (method, params["taskId"], params["ttl"]) == ("notifications/tasks/status", task_id, None)
        assert "_meta" not in params


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(ada: OldClient) -> None:
    task_id = await ada.start("ask")
    await ada.answer({"action": "accept", "content": {"ok": "perhaps"}})
    with pytest.raises(OldError, match="does not fit") as refused:
        await ada.do("get_task_result", task_id=task_id)
    assert (refused.value.code, "perhaps" in refused.value.message) == (-32602, False)
    await ada.answer({"error": {"code": -32050, "message": "nobody is here"}})
    with pytest.raises(OldError, match="nobody is here"):
        await ada.do("get_task_result", task_id=task_id)
    assert (await ada.do("get_task", task_id=task_id))["status"] == "input_required"
    await ada.answer({"action": "decline"})
    assert text(await ada.do("get_task_result", task_id=task_id)) == "decline None"


async def test_a_client_that_can_answer_nothing_is_never_asked(bob: OldClient) -> None:
    task_id = await bob.start("ask")
    assert "elicitation" in (await bob.until(task_id, "failed"))["statusMessage"]
    with pytest.raises(OldError) as failed:
        await bob.do("get_task_result", task_id=task_id)
    assert failed.value.code == -32021


async def test_a_task_that_asks_what_the_client_can_not_answer_is_working_to_it(scene: Stage, bob: OldClient) -> None:
    new = scene.client.bearing("bob")
    task_id = await new.start("ask")
    await new.until(task_id, "input_required")
    assert (await bob.do("get_task", task_id=task_id))["status"] == "working"
    assert (await bob.do("list_tasks"))["tasks"][0]["status"] == "working"
    waiting = asyncio.create_task(bob.do("get_task_result", task_id=task_id))
    await new.update(task_id, {"form": FORM})
    assert text(await waiting) == "accept True"


# -- one store, one ownership ------------------------------------------------------------------------------------------


async def test_each_era_sees_the_tasks_of_the_other(ada: OldClient, new: Client) -> None:
    theirs = await new.start("ask")
    await ada.until(theirs, "input_required")
    await ada.answer(FORM)
    assert text(await ada.do("get_task_result", task_id=theirs)) == "accept True"
    assert RELATED_TASK not in (await new.get(theirs)).result["result"]["_meta"]
    ours = await ada.start("ask")
    await new.until(ours, "input_required")
    await new.update(ours, {"form": FORM})
    await new.until(ours, "completed")
    assert text(await ada.do("get_task_result", task_id=ours)) == "accept True"


async def test_a_question_that_was_answered_elsewhere_is_taken_back(ada: OldClient, new: Client) -> None:
    task_id = await ada.start("ask")
    ada.asked.clear()
    waiting = asyncio.create_task(ada.do("get_task_result", task_id=task_id))
    await eventually(lambda: bool(ada.asked), "nobody was asked")
    await new.update(task_id, {"form": FORM})
    await new.until(task_id, "completed")
    # The old client reads nothing while it asks its user, so it sees that it need not only once that one has answered.
    await ada.answer({"action": "decline"})
    assert text(await waiting) == "accept True"


async def test_foreign_unknown_and_malformed_ids_are_refused(ada: OldClient, bob: OldClient) -> None:
    hers = await ada.start("nap")
    for task_id in (hers, UNKNOWN, MALFORMED, ""):
        for method in ("get_task", "get_task_result", "cancel_task"):
            with pytest.raises(OldError) as refused:
                await bob.do(method, task_id=task_id)
            known = "Malformed task id" if task_id in (MALFORMED, "") else "Task not found"
            assert (refused.value.code, refused.value.message) == (-32602, known)
    assert (await ada.do("get_task", task_id=hers))["status"] == "working"


async def test_only_ones_own_tasks_are_listed_all_of_them_and_the_newest_first(scene: Stage, ada: OldClient) -> None:
    async with old_client(url=scene.client.url, token="carol") as carol:
        assert (await carol.do("list_tasks")) == {"tasks": []}
        made = [await scene.client.bearing("carol").start("hello", {"name": "x"}) for _ in range(48)]
        made += [await carol.start("refuse", reason="x"), await carol.start("ask")]
        await carol.until(made[-2], "failed")
        await carol.until(made[-1], "input_required")
        page = await carol.do("list_tasks")
        assert [task["taskId"] for task in page["tasks"]] == made[::-1]
        assert "nextCursor" not in page
        for task in page["tasks"][:3]:
            polled = await carol.do("get_task", task_id=task["taskId"])
            assert {**task, "pollInterval": polled["pollInterval"]} == polled  # which may be longer for who polls often
        made.append(await carol.start("nap"))
        page = await carol.do("list_tasks")
        rest = await carol.do("list_tasks", cursor=page["nextCursor"])
        assert [task["taskId"] for task in page["tasks"] + rest["tasks"]] == made[::-1]
        assert (len(rest["tasks"]), "nextCursor" in rest) == (1, False)
        for cursor in ("nonsense", UNKNOWN, (await ada.do("list_tasks"))["tasks"][0]["taskId"]):
            with pytest.raises(OldError, match="Invalid cursor") as refused:
                await carol.do("list_tasks", cursor=cursor)
            assert refused.value.code == -32602
    assert not {task["taskId"] for task in (await ada.do("list_tasks"))["tasks"]} & set(made)
