"""A task tool for a client that knows no tasks: the same durable task below, an ordinary tool call above."""

import asyncio
import json
import logging
import secrets
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import RequestStateSecurity

from perdure import Owner, TaskContext, Tasks
from perdure.domain import ids
from perdure.domain.model import NewTask, Operation, Task
from perdure.engine.backlog import Backlog
from perdure.engine.runtime import Options, Runtime
from perdure.engine.unanswered import Unanswered
from perdure.store.sqlite import SQLiteStore
from perdure.wire.identity import ANONYMOUS
from perdure.wire.inline import Caller, Inline
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import INPUT, JSON, NOTHING, TASKS, envelope, headers, meta
from tests.wire.support import Client, Reply, Stage, dump, serving, stage, tasks_on
from tests.wire.tools import ENTRY, FORM, Form, Tools

FORMS: JSON = {"elicitation": {}}


async def answer(client: Client, name: str, reply: Reply, responses: JSON, **options: Any) -> Reply:
    """The retry that carries answers, as multi round-trip requests want it."""
    assert reply.result["resultType"] == "input_required", reply.body
    params = {"requestState": reply.result["requestState"], "inputResponses": responses} | options.pop("params", {})
    return await client.call(name, params=params, **{"capabilities": INPUT} | options)


def statuses(scene: Stage) -> list[str]:
    return [row[7] for row in dict(scene.dump())["task"]]


async def test_the_result_is_an_ordinary_one(scene: Stage) -> None:
    result = (await scene.client.call("report", {"size": "large"}, capabilities=NOTHING)).result
    assert {name for name in result if name != "_meta"} == {"resultType", "content", "structuredContent", "isError"}
    assert result["structuredContent"] == {"size": "large", "pages": 7}


async def test_below_it_lies_a_durable_task_that_does_not_outlive_its_use(scene: Stage) -> None:
    await scene.client.call("hello", {"name": "you"}, capabilities=NOTHING)
    [row] = dict(scene.dump())["task"]
    assert (row[7], row[12]) == ("completed", 3_600_000)


async def test_a_tool_error_is_a_result_and_a_protocol_error_is_an_error(scene: Stage) -> None:
    refused = await scene.client.call("refuse", {"reason": "no ink"}, capabilities=NOTHING)
    assert refused.result["isError"] is True
    assert "no ink" in refused.text
    broken = await scene.client.call("broken", {"code": -32050, "message": "out of paper"}, capabilities=NOTHING)
    assert broken.error == {"code": -32050, "message": "out of paper", "data": {"hint": "none"}}


async def test_a_question_goes_out_as_a_round_trip_and_the_retry_carries_on_with_the_same_task(
    scene: Stage, tools: Tools
) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    assert list(first.result["inputRequests"]) == ["form"]
    assert statuses(scene) == ["input_required"]
    last = await answer(scene.client, "ask", first, {"form": FORM})
    assert last.text == "accept True"
    assert statuses(scene) == ["completed"]
    assert tools.ran == ["ask", "ask"]


async def test_several_rounds_and_partial_answers(scene: Stage) -> None:
    first = await scene.client.call("ask_two", capabilities=INPUT)
    second = await answer(scene.client, "ask_two", first, {"entry": ENTRY})
    assert list(second.result["inputRequests"]) == ["form"]
    assert (await answer(scene.client, "ask_two", second, {"form": FORM})).text == "form=accept, entry=accept"

    first = await scene.client.call("ask_twice", capabilities=INPUT)
    second = await answer(scene.client, "ask_twice", first, {"form": FORM})
    assert list(second.result["inputRequests"]) == ["entry"]
    assert (await answer(scene.client, "ask_twice", second, {"entry": ENTRY})).text == "accept, accept"
    assert statuses(scene) == ["completed", "completed"]


async def test_the_handle_is_sealed(scene: Stage) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    state = first.result["requestState"]
    [row] = dict(scene.dump())["task"]
    assert row[1] not in state
    before = scene.dump()
    for forged in (state[:-1] + ("A" if state[-1] != "A" else "B"), f"perdure/inline:{row[1]}", row[1], "", "x" * 9999):
        params = {"requestState": forged, "inputResponses": {"form": FORM}}
        assert (await scene.client.call("ask", params=params, capabilities=INPUT)).code == -32602
    # Sealed for this tool and these arguments.
    params = {"requestState": state, "inputResponses": {"form": FORM}}
    assert (await scene.client.call("ask_two", params=params, capabilities=INPUT)).code == -32602
    assert (await scene.client.call("ask", {"other": 1}, params=params, capabilities=INPUT)).code == -32602
    assert scene.dump() == before


async def test_an_answer_that_does_not_fit_is_refused_and_may_be_given_again(scene: Stage) -> None:
    first = await scene.client.call("ask_two", capabilities=INPUT)
    before = scene.dump()
    bad: JSON = {"entry": ENTRY, "form": {"action": "accept", "content": {"ok": 5}}}
    refused = await answer(scene.client, "ask_two", first, bad)
    assert refused.code == -32602
    assert "'form'" in refused.error["message"]
    assert scene.dump() == before
    last = await answer(scene.client, "ask_two", first, {"entry": ENTRY, "form": FORM})
    assert last.text == "form=accept, entry=accept"


async def test_however_much_the_answers_of_a_retry_hold_is_refused_before_anybody_judges_it(scene: Stage) -> None:
    """Before the SDK does, which tries each of them with all shapes that an answer may have."""
    first = await scene.client.call("ask", capabilities=FORMS)
    crowd: dict[str, Any] = {f"{number}": [[]] for number in range(70_000)}
    reply = await answer(scene.client, "ask", first, {"form": {"action": "accept", "content": crowd}})
    assert (reply.code, "hold more than 5000 values" in reply.error["message"]) == (-32602, True)
    assert (await answer(scene.client, "ask", first, {"form": FORM})).text == "accept True"


async def test_a_repeated_retry_gets_the_same_result_and_runs_nothing_again(scene: Stage, tools: Tools) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    replies = [await answer(scene.client, "ask", first, {"form": FORM}) for _ in range(3)]
    assert [reply.text for reply in replies] == ["accept True"] * 3
    assert tools.ran == ["ask", "ask"]


async def test_a_retry_that_can_no_longer_be_asked_hears_what_is_missing(scene: Stage) -> None:
    first = await scene.client.call("ask_twice", capabilities=INPUT)
    narrowed = await answer(scene.client, "ask_twice", first, {"form": FORM}, capabilities=NOTHING)
    assert narrowed.required == {"elicitation": {}}
    last = await answer(scene.client, "ask_twice", first, {"entry": ENTRY})
    assert last.text == "accept, accept"


async def test_a_question_of_a_kind_that_was_not_declared_is_refused(scene: Stage) -> None:
    reply = await scene.client.call("ask", capabilities=NOTHING)
    assert reply.required == {"elicitation": {}}
    assert statuses(scene) == ["failed"]


async def test_a_client_that_knows_tasks_may_come_back_for_a_call_it_made_without(scene: Stage) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    last = await answer(scene.client, "ask", first, {"form": FORM}, capabilities=INPUT | TASKS)
    assert last.text == "accept True"


async def test_past_the_deadline_the_client_hears_what_it_lacks_and_the_work_is_cancelled(
    tmp_path: Path, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path, tools.declare, inline_timeout="1500ms") as up:
        reply = await up.client.call("gated", capabilities=NOTHING)
        assert reply.required == TASKS
        assert reply.error["message"].startswith("The tool did not finish within 1.5 s, and the client did not declare")
        [row] = dict(up.dump())["task"]
        assert "Tool 'gated' did not finish within 1.5 s" in caplog.text
        assert row[1] not in caplog.text
        await eventually(lambda: statuses(up) == ["cancelled"], "the work went on")
        assert tools.ended == ["cancelled"]


async def test_past_the_deadline_a_client_that_knows_tasks_gets_the_handle(tmp_path: Path, tools: Tools) -> None:
    def declare(tasks: Tasks) -> None:
        tasks.tool(when=never)(tools.gated)

    async with stage(tmp_path, declare, inline_timeout="300ms") as up:
        task_id = await up.client.start("gated")
        tools.gate.set()
        assert (await up.client.until(task_id))["result"]["structuredContent"] == {"result": "through"}


@pytest.mark.parametrize(("ttl", "shown"), [(None, 3_600_000), ("1d", 3_600_000), ("2m", 120_000)])
async def test_a_call_inside_the_request_lives_an_hour_at_most_and_its_handle_says_so(
    tmp_path: Path, tools: Tools, ttl: str | None, shown: int
) -> None:
    """Whoever called: while the request is under way nobody has a handle, and it may never come to that."""

    def declare(tasks: Tasks) -> None:
        tasks.tool(when=never, ttl=ttl)(tools.hello)
        tasks.tool(when=never, ttl=ttl)(tools.gated)

    async with stage(tmp_path, declare, inline_timeout="300ms") as up:
        handle = (await up.client.call("gated")).result
        assert (handle["resultType"], handle["ttlMs"]) == ("task", shown)
        assert (await up.client.get(handle["taskId"])).result["ttlMs"] == shown
        await up.client.call("hello", {"name": "you"})
        assert [row[12] for row in dict(up.dump())["task"]] == [shown, shown]


async def test_a_store_that_is_away_for_a_moment_costs_time_only(
    scene: Stage, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="perdure.engine.patience")
    call = asyncio.create_task(scene.client.call("gated", capabilities=NOTHING))
    await tools.entered.wait()
    await scene.store.close()
    await eventually(lambda: "trying again" in caplog.text, "nobody noticed")
    await scene.store.open()
    tools.gate.set()
    assert (await call).text == "through"


class Slow(SQLiteStore):
    """Tells that it is about to create, and does not come back from it: before the task is there, or after."""

    def __init__(self, url: str, *, creates: bool) -> None:
        super().__init__(url)
        self.creating = asyncio.Event()
        self._creates = creates

    async def create(self, new: NewTask) -> Task:
        if self._creates:
            await super().create(new)
        self.creating.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_client_that_hangs_up_during_the_creation_leaves_no_work_behind(tmp_path: Path, tools: Tools) -> None:
    store = Slow(f"sqlite:///{tmp_path / 'tasks.db'}", creates=True)
    tasks = tasks_on(store)
    tools.declare(tasks)
    async with serving(tasks.server("wire", version="1.0")) as (http, url):
        body = envelope("tools/call", {"name": "gated", "arguments": {}}, capabilities=NOTHING)
        call = asyncio.create_task(http.post(url, json=body, headers=headers(body)))
        await store.creating.wait()
        call.cancel()
        await asyncio.wait([call])
        await eventually(
            lambda: [row[7] for row in dict(dump(tmp_path / "tasks.db"))["task"]] == ["cancelled"], "the work went on"
        )


def somebody(_: object) -> Owner:
    return Owner("acme", "ada")


async def no_one(_count: int, _message: str) -> None: ...


async def test_what_fails_in_the_cleanup_never_hides_that_the_call_was_cancelled(tmp_path: Path) -> None:
    """The task that is to be cancelled is not even there."""
    store = Slow(f"sqlite:///{tmp_path / 'tasks.db'}", creates=False)
    runtime = Runtime(store, {}, Options(worker=False))
    new = NewTask(id=ids.mint(secrets.token_bytes), owner=ANONYMOUS, operation=Operation("tools/call", "gated", {}))
    async with runtime.running():
        caller = Caller("gated", frozenset(), declared=False, show=no_one)
        call = asyncio.create_task(Inline(runtime, 60_000).start(new, caller))
        await store.creating.wait()
        call.cancel()
        await asyncio.wait([call])
    assert call.cancelled()


def never() -> bool:
    return False


async def test_when_the_client_hangs_up_the_work_is_cancelled(scene: Stage, tools: Tools) -> None:
    body = envelope("tools/call", {"name": "gated", "arguments": {}}, capabilities=NOTHING)
    call = asyncio.create_task(scene.http.post(scene.client.url, json=body, headers=headers(body)))
    await tools.entered.wait()
    call.cancel()
    await asyncio.wait([call])
    await eventually(lambda: statuses(scene) == ["cancelled"], "the work went on")
    assert tools.ended == ["cancelled"]


async def test_a_small_call_of_a_client_that_knows_tasks_runs_inside_the_request(scene: Stage) -> None:
    result = (await scene.client.call("sized", {"n": 1})).result
    assert result["structuredContent"] == {"result": "1"}
    assert len(await asyncio.gather(*(scene.client.call("sized", {"n": n}) for n in (-1, 0, 1)))) == 3


async def test_a_request_that_asked_for_progress_is_shown_the_messages_of_its_task(tmp_path: Path) -> None:
    gates = {"one": asyncio.Event(), "two": asyncio.Event()}

    async def tool(task: TaskContext) -> str:
        for message, gate in gates.items():
            await task.report_progress(1, 2, message)
            await gate.wait()
        return "done"

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        params: JSON = {"name": "tool", "_meta": {**meta(NOTHING), "progressToken": "mine"}}
        body = envelope("tools/call", params)
        seen: list[JSON] = []
        async with (
            asyncio.timeout(PATIENCE),
            up.http.stream("POST", up.client.url, json=body, headers=headers(body)) as r,
        ):
            async for line in r.aiter_lines():
                if line.startswith("data: {"):
                    seen.append(json.loads(line.removeprefix("data: ")))
                    gates.get(seen[-1].get("params", {}).get("message"), asyncio.Event()).set()
        *shown, answer = seen
        assert [note["params"] for note in shown] == [
            {"progressToken": "mine", "progress": 1, "message": "one"},
            {"progressToken": "mine", "progress": 2, "message": "two"},
        ]
        assert answer["result"]["structuredContent"] == {"result": "done"}


async def test_many_calls_wait_at_once(scene: Stage) -> None:
    calls = (scene.client.call("hello", {"name": f"{n}"}, capabilities=NOTHING) for n in range(20))
    replies = await asyncio.gather(*calls)
    assert [reply.text for reply in replies] == [f"Hello, {n}!" for n in range(20)]


@pytest.mark.parametrize("capabilities", [INPUT, FORMS])
async def test_the_state_is_good_on_every_replica_that_has_the_key(tmp_path: Path, capabilities: JSON) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def ask(task: TaskContext) -> str:
            return (await task.elicit("form", "All right?", Form)).action

    keys = [b"k" * 32]
    async with stage(tmp_path, declare, server={"request_state_security": RequestStateSecurity(keys=keys)}) as up:
        first = await up.client.call("ask", capabilities=capabilities)
    async with stage(tmp_path, declare, server={"request_state_security": RequestStateSecurity(keys=keys)}) as again:
        assert (await answer(again.client, "ask", first, {"form": FORM}, capabilities=capabilities)).text == "accept"


@pytest.mark.parametrize("life", [None, 60.0], ids=["usual", "own"])
async def test_work_that_nobody_came_back_for_ends_with_what_could_be_answered_and_gives_its_place_back(
    tmp_path: Path, tools: Tools, life: float | None
) -> None:
    security = None if life is None else RequestStateSecurity(keys=[b"k" * 32], ttl=life)

    async with stage(
        tmp_path,
        tools.declare,
        identify=somebody,
        owner_tasks=1,
        server={"request_state_security": security},
    ) as up:
        runtime, time = up.tasks.assembly.runtime, [0.0]
        runtime.unanswered = Unanswered(lambda: runtime.store, lambda: time[0])
        await up.client.call("ask", capabilities=INPUT)
        time[0] = life or 600.0
        await runtime.unanswered.sweep()
        assert statuses(up) == ["input_required"], "an answer may be on its way"
        time[0] += 10.0
        await runtime.unanswered.sweep()
        assert statuses(up) == ["cancelled"]
        runtime.backlog = Backlog(lambda: runtime.store, lambda: runtime.options)  # looks again at once
        assert (await up.client.call("hello", {"name": "you"}, capabilities=INPUT)).text


async def test_work_with_an_idempotency_key_is_not_given_up_since_its_client_may_come_back(
    tmp_path: Path, tools: Tools
) -> None:
    async with stage(tmp_path, tools.declare) as up:
        runtime, time = up.tasks.assembly.runtime, [0.0]
        runtime.unanswered = Unanswered(lambda: runtime.store, lambda: time[0])
        keyed = {"_meta": {**meta(INPUT), "dev.perdure/idempotencyKey": "k"}}
        await up.client.call("ask", params=keyed, capabilities=INPUT)
        time[0] = 3_599.0
        await runtime.unanswered.sweep()
        assert statuses(up) == ["input_required"]


async def test_an_answer_to_a_call_that_was_deleted_is_refused(scene: Stage) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    [row] = dict(scene.dump())["task"]
    await scene.client.cancel(row[1])
    assert (await answer(scene.client, "ask", first, {"form": FORM})).code == -32603
    assert "perdure" not in json.dumps(first.body["result"]["requestState"])
