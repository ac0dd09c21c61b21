"""Questions before there is a task whose answers do not come through: nobody is asked twice, and nothing begun twice.

Of a call under a key the server may have a task already while it asks: then that goes on, and asks what the call did.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from perdure import TaskContext
from perdure import Tasks as ServerTasks
from perdure.client import AnswerRefused, TaskFailed, Tasks, Unsure
from tests.client.spy import Spy, always
from tests.client.support import YES, Person, connected, text
from tests.client.test_repeating import CALL, LIST
from tests.client.test_resuming import without_keys
from tests.support import PATIENCE
from tests.wire.support import Stage, stage
from tests.wire.test_idempotency import prepared
from tests.wire.tools import Form, Tools

DISCOVER = "server/discover"
LOST = MCPError(-32001, "Request 'tools/call' timed out")
FULL = MCPError(-32000, "full", {"retryAfterMs": 10})
LATE = MCPError(-32602, "Invalid or expired requestState")
Refusal = Callable[[dict[str, Any]], MCPError | None]


def never() -> bool:
    return False


def at_rounds(error: MCPError, *, after: int = 0, times: int = 1) -> Refusal:
    """`error` in place of so many rounds that carry answers, once there were `after` of them."""
    came = [0]

    def refused(params: dict[str, Any]) -> MCPError | None:
        if "requestState" not in params:
            return None
        came[0] += 1
        return error if after < came[0] <= after + times else None

    return refused


@asynccontextmanager
async def asking(
    tmp_path: Path, tools: Tools, tasks: Tasks, person: Person, *middleware: Any
) -> AsyncGenerator[tuple[Stage, Client]]:
    """A server whose tools ask inside of the call: one has its task then, `tool` will have it after the answer."""

    def declare(server: ServerTasks) -> None:
        for function in (tools.ask, tools.ask_twice):
            server.tool(when=never, poll_interval="100ms")(function)
        prepared(tools)(server)

    async with (
        stage(tmp_path, declare, server={"middleware": [*middleware]}) as up,
        connected(up.client.url, tasks, person) as client,
    ):
        yield up, client


TOOLS = {
    "ask": (["All right?"], "accept True"),
    "ask_twice": (["All right?", "Who?"], "accept, accept"),
    "tool": (["Sure?"], "sure"),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("error", [LOST, FULL, LATE], ids=["lost", "full", "late"])
async def test_a_round_that_does_not_come_through_is_asked_for_once_and_its_call_goes_on(
    tmp_path: Path, tools: Tools, tool: str, error: MCPError
) -> None:
    asked, result = TOOLS[tool]
    spy, tasks, person = Spy(), Tasks(), Person(**{"Sure?": YES})
    spy.refuse[CALL] = at_rounds(error, after=len(asked) - 1)
    async with asking(tmp_path, tools, tasks, person, spy) as (up, client):
        handle = await tasks.start(client, tool, timeout=PATIENCE)
        assert text(await handle.result(PATIENCE)) == result
        assert len(dict(up.dump())["task"]) == 1
    assert person.asked == asked


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("ask", [True, False])
async def test_a_client_that_died_at_a_round_asks_nothing_again(
    tmp_path: Path, tools: Tools, tool: str, ask: bool
) -> None:
    asked, result = TOOLS[tool]
    path, person, come, gate = tmp_path / "journal.db", Person(**{"Sure?": YES}), anyio.Event(), anyio.Event()
    stalls = at_rounds(LOST, after=len(asked) - 1)

    async def stall(ctx: Any, call_next: Any) -> Any:
        if ctx.method == CALL and stalls(ctx.params) is not None:
            come.set()
            await gate.wait()
        return await call_next(ctx)

    dead = Tasks(path)
    async with asking(tmp_path, tools, dead, person, stall) as (up, client):
        start = asyncio.create_task(dead.start(client, tool, idempotency_key="mine"))
        await come.wait()
        start.cancel()
        await asyncio.wait([start])
        dead.journal.close()
        tasks = Tasks(path)
        async with connected(up.client.url, tasks, person) as again:
            handle = await tasks.resume(again, "mine", timeout=PATIENCE)
            assert text(await handle.result(PATIENCE, ask=ask)) == result
        tasks.journal.close()
        assert len(dict(up.dump())["task"]) == 1
        gate.set()
    assert person.asked == asked


async def test_a_task_that_asks_what_a_round_did_asks_it_all_the_same_if_the_round_came_through(
    tmp_path: Path, tools: Tools
) -> None:
    """The rounds of the call that became the task are over, and so are their answers."""
    question = ElicitRequest(params=ElicitRequestFormParams(message="Sure?", requested_schema=Form.model_json_schema()))

    async def prepare(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        if ctx.input_responses:
            return "sure"
        return InputRequiredResult(input_requests={"form": question}, request_state="asked")

    async def insisting(task: TaskContext) -> str:
        answer = await task.elicit("form", "Sure?", Form)
        return f"{task.prepared}, {answer.action}"

    tasks, person = Tasks(), Person(**{"Sure?": YES})
    async with (
        stage(tmp_path, lambda server: server.tool(prepare=prepare, poll_interval="100ms")(insisting) and None) as up,
        connected(up.client.url, tasks, person) as client,
    ):
        handle = await tasks.start(client, "insisting")
        assert text(await handle.result(PATIENCE)) == "sure, accept"
    assert person.asked == ["Sure?", "Sure?"]


async def test_a_server_without_room_for_an_answer_is_waited_for_also_if_it_knows_no_keys(
    tmp_path: Path, tools: Tools
) -> None:
    """It is sent the same round again, and not the call from its beginning."""
    spy, tasks, person = Spy(change={DISCOVER: without_keys}), Tasks(), Person(**{"Sure?": YES})
    spy.refuse[CALL] = at_rounds(FULL, times=2)
    async with asking(tmp_path, tools, tasks, person, spy) as (_, client):
        assert text(await (await tasks.start(client, "tool")).result(PATIENCE)) == "sure"
    assert ["requestState" in one.params for one in spy.asked if one.method == CALL] == [False, True, True, True]
    assert person.asked == ["Sure?"]


async def test_a_server_that_has_no_room_for_an_answer_in_time_leaves_the_call_on_record(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks, person = Spy(refuse={CALL: at_rounds(FULL, times=10**6)}), Tasks(), Person()
    async with asking(tmp_path, tools, tasks, person, spy) as (_, client):
        with pytest.raises(Unsure):
            await tasks.start(client, "ask", idempotency_key="mine", timeout=1.0)
        spy.refuse.clear()
        assert text(await (await tasks.resume(client, "mine")).result(PATIENCE)) == "accept True"
    assert person.asked == ["All right?"]


async def test_a_token_that_ran_out_while_somebody_thought_costs_no_answer(tmp_path: Path, tools: Tools) -> None:
    """Nothing is heard from the server any more, not even whether it knows the call by its key."""
    gone = MCPError(-32600, "HTTP status 401")
    spy, tasks, person = Spy(refuse={CALL: at_rounds(gone), LIST: always(gone.code, str(gone))}), Tasks(), Person()
    async with asking(tmp_path, tools, tasks, person, spy) as (_, client):
        with pytest.raises(Unsure, match="401"):
            await tasks.start(client, "ask", idempotency_key="mine")
        spy.refuse.clear()
        assert text(await (await tasks.resume(client, "mine")).result(PATIENCE)) == "accept True"
    assert person.asked == ["All right?"]


async def test_an_error_of_a_tool_after_its_question_is_its_task_s_and_the_tool_is_not_run_again(
    tmp_path: Path, tools: Tools
) -> None:
    async def fussy(task: TaskContext) -> str:
        await task.elicit("form", "All right?", Form)
        tools.ran.append("fussy")
        raise MCPError(-32050, "out of paper")

    tasks, person = Tasks(), Person()
    async with (
        stage(tmp_path, lambda server: server.tool(when=never, poll_interval="100ms")(fussy) and None) as up,
        connected(up.client.url, tasks, person) as client,
    ):
        handle = await tasks.start(client, "fussy")
        with pytest.raises(TaskFailed, match="out of paper"):
            await handle.result(PATIENCE)
    assert (person.asked, tools.ran) == (["All right?"], ["fussy"])
    assert [record.status for record in tasks.journal.records()] == ["failed"]


async def test_an_answer_that_the_server_takes_neither_time_ends_the_call(tmp_path: Path, tools: Tools) -> None:
    spy, tasks, person = Spy(refuse={CALL: at_rounds(LATE, times=10**6)}), Tasks(), Person(**{"Sure?": YES})
    async with asking(tmp_path, tools, tasks, person, spy) as (_, client):
        with pytest.raises(MCPError, match="requestState"):
            await tasks.start(client, "tool")
    assert (tasks.journal.records(), person.asked) == ([], ["Sure?"])


async def test_an_answer_that_does_not_fit_the_question_of_a_task_is_asked_for_again(
    tmp_path: Path, tools: Tools
) -> None:
    no = YES.model_copy(update={"content": {"ok": "perhaps"}})
    tasks, person = Tasks(), Person(**{"All right?": no})
    async with asking(tmp_path, tools, tasks, person) as (_, client):
        handle = await tasks.start(client, "ask")
        with pytest.raises(AnswerRefused):
            await handle.result(PATIENCE)
        person.answers["All right?"] = YES
        assert text(await handle.result(PATIENCE)) == "accept True"
    assert person.asked == ["All right?", "All right?"]


@pytest.mark.parametrize("keys", [True, False])
async def test_a_refusal_of_an_answer_is_the_call_s_where_its_tool_does_not_honour_keys(
    tmp_path: Path, tools: Tools, keys: bool
) -> None:
    def unmarked(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "tools": [{**tool, "_meta": {}} for tool in answer["tools"]]}

    spy, tasks, person = Spy(refuse={CALL: at_rounds(LATE)}), Tasks(), Person(**{"Sure?": YES})
    spy.change = {LIST: unmarked} if keys else {DISCOVER: without_keys}
    async with asking(tmp_path, tools, tasks, person, spy) as (_, client):
        with pytest.raises(MCPError, match="requestState"):
            await tasks.start(client, "tool")
    assert (spy.came[CALL], tasks.journal.records()) == (2, [])
