"""Input before there is a task: every round is over, and only then is anything created (contract 2)."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

from perdure import ConfigurationError, SyncTaskContext, TaskContext, Tasks
from tests.wire.envelopes import INPUT, JSON, NOTHING, TASKS
from tests.wire.support import stage
from tests.wire.tools import Form

SCHEMA: JSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Prepared(BaseModel):
    name: str
    sizes: tuple[int, ...] = (1, 2)


class Preparing:
    """A tool whose `prepare` asks for a name in an ordinary round trip."""

    def __init__(self) -> None:
        self.prepared: list[Any] = []

    def declare(self, tasks: Tasks) -> None:
        tasks.tool(prepare=self.ask_name)(self.greet)
        tasks.tool(mode="task", prepare=self.ask_name)(self.must_greet)

    async def ask_name(self, greeting: str, ctx: Context[Any, Any]) -> Prepared | InputRequiredResult:
        self.prepared.append(greeting)
        given = (ctx.input_responses or {}).get("name")
        if isinstance(given, ElicitResult) and given.content:
            return Prepared(name=str(given.content["name"]))
        form = ElicitRequestFormParams(message="Who?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)}, request_state="round 1")

    async def greet(self, greeting: str, task: TaskContext, times: int = 1) -> list[Any]:
        return [greeting, times, task.prepared]

    async def must_greet(self, greeting: str, task: TaskContext) -> str:
        answer = await task.elicit("sure", "Sure?", Form)
        return f"{greeting}, {task.prepared['name']}: {answer.action}"


NAME: JSON = {"name": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.mark.parametrize("capabilities", [INPUT, INPUT | TASKS])
async def test_nothing_is_stored_until_the_rounds_are_over(tmp_path: Path, capabilities: JSON) -> None:
    tool = Preparing()
    async with stage(tmp_path, tool.declare) as up:
        empty = up.dump()
        call: JSON = {"greeting": "Hello"}
        first = await up.client.call("greet", call, capabilities=capabilities)
        assert first.result["resultType"] == "input_required"
        assert list(first.result["inputRequests"]) == ["name"]
        assert up.dump() == empty
        params = {"requestState": first.result["requestState"], "inputResponses": NAME}
        second = await up.client.call("greet", call, params=params, capabilities=capabilities)
        if capabilities == INPUT:
            result = second.result
        else:
            assert second.result["resultType"] == "task"
            result = (await up.client.until(second.result["taskId"]))["result"]
        assert result["structuredContent"] == {"result": ["Hello", 1, {"name": "Ada", "sizes": [1, 2]}]}


async def test_input_before_and_input_during_the_task(tmp_path: Path) -> None:
    async with stage(tmp_path, Preparing().declare) as up:
        call: JSON = {"greeting": "Hello"}
        first = await up.client.call("must_greet", call)
        params = {"requestState": first.result["requestState"], "inputResponses": NAME}
        task_id = await up.client.start("must_greet", call, params=params)
        task = await up.client.until(task_id, "input_required")
        assert list(task["inputRequests"]) == ["sure"]
        await up.client.update(task_id, {"sure": {"action": "decline"}})
        done = await up.client.until(task_id)
        assert done["result"]["content"][0]["text"] == "Hello, Ada: decline"


async def test_a_client_that_can_not_be_served_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    tool = Preparing()
    async with stage(tmp_path, tool.declare) as up:
        assert (await up.client.call("must_greet", {"greeting": "Hello"}, capabilities=INPUT)).required == TASKS
        assert tool.prepared == []


async def test_arguments_are_validated_before_anything_is_asked(tmp_path: Path) -> None:
    tool = Preparing()
    async with stage(tmp_path, tool.declare) as up:
        before = up.dump()
        for arguments in ({}, {"greeting": 5}, {"greeting": "Hello", "times": "many"}):
            assert (await up.client.call("greet", arguments)).result["isError"] is True
        assert tool.prepared == []
        assert up.dump() == before


async def prepare_nan() -> float:
    return float("nan")


async def prepare_surrogate() -> str:
    return "\ud800"


async def prepare_object() -> Any:
    return object()


def prepare_crash() -> None:
    raise RuntimeError("secret")


@pytest.mark.parametrize("prepare", [prepare_nan, prepare_surrogate, prepare_object, prepare_crash])
@pytest.mark.parametrize("capabilities", [NOTHING, TASKS])
async def test_a_preparation_that_breaks_is_a_tool_error_and_nothing_is_stored(
    tmp_path: Path, prepare: Any, capabilities: JSON
) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool(prepare=prepare)
        async def tool() -> str:
            return "never"

    async with stage(tmp_path, declare) as up:
        before = up.dump()
        reply = await up.client.call("tool", capabilities=capabilities)
        assert reply.result["isError"] is True
        assert "secret" not in reply.raw.decode()
        assert up.dump() == before


async def test_a_preparation_may_refuse(tmp_path: Path) -> None:
    def gently(how: str) -> None:
        raise ToolError(f"not {how}")

    def declare(tasks: Tasks) -> None:
        def firmly(how: str) -> None:
            raise MCPError(-32099, how)

        @tasks.tool("gently", prepare=gently)
        @tasks.tool("firmly", prepare=firmly)
        async def tool(how: str) -> str:
            return how

    async with stage(tmp_path, declare) as up:
        before = up.dump()
        refused = await up.client.call("gently", {"how": "today"})
        assert refused.result["isError"] is True
        assert "not today" in refused.text
        assert (await up.client.call("firmly", {"how": "no"})).error == {"code": -32099, "message": "no"}
        assert up.dump() == before


async def test_a_preparation_that_refuses_arguments_does_so_in_the_tools_name(tmp_path: Path) -> None:
    def inner(n: Annotated[int, Field(le=5)]) -> int:
        return n

    async with stage(tmp_path, lambda tasks: tasks.tool("doubled", prepare=inner)(lambda_free) and None) as up:
        refused = await up.client.call("doubled", {"n": 9})
        assert refused.result["isError"] is True
        assert refused.text.startswith("Error executing tool doubled: 1 validation error for doubledArguments\nn\n")
        assert "inner" not in refused.text
        assert (await up.client.finish("doubled", {"n": 5}))["result"]["structuredContent"] == {"result": 10}


async def test_what_a_preparation_crashed_with_stays_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path, lambda tasks: tasks.tool("doubled", prepare=prepare_crash)(lambda_free) and None) as up:
        assert (await up.client.call("doubled", {"n": 1})).text == "Error executing tool doubled"
    assert "RuntimeError: secret" in caplog.text


def test_a_preparation_that_names_an_argument_that_there_is_not_is_refused_at_declaration(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match="prepare names an argument 'm', which the tool lacks; it has 'n'"):
        tasks.tool(prepare=other_argument)(lambda_free)


def other_argument(m: int) -> int:
    return m


async def test_a_plain_function_prepares_a_plain_tool(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool(prepare=lambda_free)
        def doubled(n: int, task: SyncTaskContext) -> int:
            return task.prepared

    async with stage(tmp_path, declare) as up:
        assert (await up.client.finish("doubled", {"n": 4}))["result"]["structuredContent"] == {"result": 8}


def lambda_free(n: int) -> int:
    return 2 * n


async def test_what_was_prepared_is_there_again_when_the_tool_runs_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def once() -> int:
        calls.append("prepare")
        return len(calls)

    def declare(tasks: Tasks) -> None:
        @tasks.tool(prepare=once)
        async def tool(task: TaskContext) -> int:
            await task.elicit("form", "All right?", Form)
            return task.prepared

    async with stage(tmp_path, declare) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"form": {"action": "cancel"}})
        assert (await up.client.until(task_id))["result"]["structuredContent"] == {"result": 1}
    assert calls == ["prepare"]
