"""`retry=`, `timeout=`, `version=` and the rest of what a tool is declared with, and what becomes of its tasks."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from perdure import ConfigurationError, InvalidDuration, Retry, StepFailed, SyncTaskContext, TaskContext, Tasks
from perdure.domain import ids
from perdure.domain.timeline import EventKind
from perdure.engine.handler import Placement
from perdure.testing import Harness
from tests.support import eventually
from tests.wire.envelopes import JSON, NOTHING
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Form

SOON = Retry(max_attempts=3, backoff="1ms")


def only(fn: Callable[..., Any], **options: Any) -> Callable[[Tasks], None]:
    return lambda tasks: tasks.tool("tool", **options)(fn) and None


def text(task: JSON) -> str:
    return task["result"]["content"][0]["text"]


async def notes(up: Stage, task: JSON) -> list[str]:
    """The timeline's notes of the failed attempts."""
    events = (await up.store.inspect(task["taskId"])).events
    return [event.detail for event in events if event.kind is EventKind.RETRY]


# -- retry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_another_attempt_begins_at_the_step_that_failed_and_keeps_what_came_before(
    tmp_path: Path, plain: bool
) -> None:
    ran: list[str] = []

    def work(name: str, bad: int) -> str:
        ran.append(name)
        if ran.count(name) <= bad:
            raise ConnectionError("refused")
        return name

    async def coroutine(task: TaskContext) -> list[Any]:
        ran.append(f"attempt {task.attempt}")
        results = [await task.step("first", work, "first", 0), await task.step("flaky", work, "flaky", 2)]
        return [*results, task.attempt]

    def function(task: SyncTaskContext) -> list[Any]:
        ran.append(f"attempt {task.attempt}")
        return [task.step("first", work, "first", 0), task.step("flaky", work, "flaky", 2), task.attempt]

    async with stage(tmp_path, only(function if plain else coroutine, retry=SOON)) as up:
        task = await up.client.finish("tool")
        assert task["result"]["structuredContent"]["result"] == ["first", "flaky", 3]
        assert await notes(up, task) == ["The step 'flaky' failed: ConnectionError: refused"] * 2
        assert "refused" not in str(task)
    assert ran == ["attempt 1", "first", "flaky", "attempt 2", "flaky", "attempt 3", "flaky"]


async def test_an_attempt_that_is_not_the_last_is_one_line_in_the_log_and_the_last_one_has_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool() -> None:
        raise ConnectionError("refused,\nand so on")

    caplog.set_level(logging.INFO, "perdure")
    async with stage(tmp_path, only(tool, retry=Retry(max_attempts=2, backoff="1ms"))) as up:
        task = await up.client.finish("tool")
    who = f"task {ids.abbreviated(task['taskId'])}: Tool 'tool'"
    first, last = (each for each in caplog.records if each.name.startswith("perdure.tools"))
    assert first.getMessage().startswith(f"{who} failed in attempt 1, and is tried again in ")
    assert first.getMessage().endswith(" s: ConnectionError: refused, and so on")
    assert (first.levelname, first.exc_info) == ("WARNING", None)
    assert last.getMessage() == f"{who} raised an unexpected exception"
    assert last.exc_info is not None
    assert task["taskId"] not in caplog.text, "without authentication it is the key to the task"


async def test_the_traceback_of_each_attempt_is_there_for_who_wants_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool() -> None:
        raise ConnectionError("refused")

    caplog.set_level(logging.DEBUG, "perdure.tools.handler")
    async with stage(tmp_path, only(tool, retry=Retry(max_attempts=2, backoff="1ms"))) as up:
        await up.client.finish("tool")
    debug = [each for each in caplog.records if each.levelname == "DEBUG" and each.name == "perdure.tools.handler"]
    assert [each.exc_info is not None for each in debug] == [True]


async def test_an_error_that_came_from_no_step_repeats_none_and_the_last_one_is_the_end(tmp_path: Path) -> None:
    ran: list[str] = []

    async def tool(task: TaskContext) -> None:
        await task.step("first", lambda: ran.append("first"))
        ran.append("raise")
        raise OSError("secret")

    async with stage(tmp_path, only(tool, retry=SOON)) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert text(task) == "Error executing tool tool"
        assert await notes(up, task) == ["OSError: secret"] * 2
        inline = await up.client.call("tool", capabilities=NOTHING)
        assert inline.text == "Error executing tool tool"
    assert ran == ["first", "raise", "raise", "raise"] * 2


class Ending:
    """Tools that fail for good, each in its way."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def declare(self, tasks: Tasks) -> None:
        for function in (self.answer, self.protocol, self.broken, self.in_step):
            tasks.tool(retry=SOON)(function)
        tasks.tool(retry=Retry(on=(ToolError,)))(self.decline)
        tasks.tool(retry=Retry(on=(OSError,)))(self.other)
        tasks.tool(retry=Retry(max_attempts=2, backoff="1ms", on=(ToolError,)))(self.named)

    async def fail(self, name: str, error: BaseException) -> None:
        self.ran.append(name)
        raise error

    async def answer(self) -> None:
        await self.fail("answer", ToolError("no ink"))

    async def protocol(self) -> None:
        await self.fail("protocol", MCPError(-32050, "no paper"))

    async def broken(self) -> None:
        await self.fail("broken", SystemExit())

    async def in_step(self, task: TaskContext) -> None:
        await task.step("fail", self.fail, "in_step", ToolError("no ink"))

    async def decline(self, task: TaskContext) -> None:
        self.ran.append("decline")
        task.decline("no")

    async def other(self) -> None:
        await self.fail("other", KeyError())

    async def named(self) -> None:
        await self.fail("named", ToolError("no ink"))


async def test_what_is_an_answer_or_not_in_on_ends_the_task_at_once(tmp_path: Path) -> None:
    tools = Ending()
    async with stage(tmp_path, tools.declare) as up:
        names = ("answer", "protocol", "broken", "in_step", "decline", "other", "named")
        ended = {name: await up.client.finish(name) for name in names}
        assert ended["protocol"]["error"]["code"] == -32050
        assert text(ended["in_step"]) == "Error executing tool in_step: no ink"
    assert tools.ran == [*names, "named"]


async def test_arguments_that_the_code_no_longer_takes_are_no_reason_for_another_attempt(tmp_path: Path) -> None:
    async def before(n: int) -> int:
        return n

    async def after(n: str, more: int) -> int:
        return more

    async with stage(tmp_path, only(before), worker=False) as up:
        task_id = await up.client.start("tool", {"n": 1})
    async with stage(tmp_path, only(after, retry=Retry(backoff="1h"))) as up:
        assert "validation error" in text(await up.client.until(task_id))


async def test_a_step_that_may_run_at_most_once_is_not_repeated_by_an_attempt(tmp_path: Path) -> None:
    ran: list[str] = []

    def pay() -> None:
        ran.append("pay")
        raise TimeoutError

    async def tool(task: TaskContext) -> None:
        await task.step("pay", pay, at_most_once=True)

    async with stage(tmp_path, only(tool, retry=SOON)) as up:
        assert text(await up.client.finish("tool")) == "Error executing tool tool"
    assert ran == ["pay"]


async def test_questions_keep_their_answers_in_another_attempt(tmp_path: Path) -> None:
    attempts: list[str] = []

    def flaky() -> int:
        attempts.append("try")
        if len(attempts) < 2:
            raise OSError
        return 1

    async def tool(task: TaskContext) -> str:
        try:
            await task.step("flaky", flaky)
        except StepFailed as failed:
            await task.elicit("form", "It failed. Once more?", Form)
            raise failed from failed.__cause__
        return (await task.elicit("form", "It failed. Once more?", Form)).action

    async with stage(tmp_path, only(tool, retry=SOON)) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"form": FORM})
        assert text(await up.client.until(task_id)) == "accept"
    assert attempts == ["try", "try"]


# -- timeout -----------------------------------------------------------------------------------------------------------


async def test_a_tool_past_its_timeout_is_cancelled_and_that_is_a_tool_error(tmp_path: Path) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with stage(tmp_path, only(hang, timeout="50ms")) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert text(task) == "The tool did not finish within 0.05 s"
        assert ended == ["cancelled"]


async def test_a_timeout_is_a_failure_that_a_retry_may_take_up_and_waiting_is_none(tmp_path: Path) -> None:
    runs: list[int] = []

    async def tool(task: TaskContext) -> int:
        await task.elicit("form", "Go on?", Form)
        runs.append(task.attempt)
        if task.attempt == 1:
            await asyncio.Event().wait()
        return task.attempt

    async def other() -> None:
        await asyncio.Event().wait()

    def declare(tasks: Tasks) -> None:
        tasks.tool("tool", timeout="2s", retry=Retry(backoff="1ms", on=(TimeoutError,)))(tool)
        tasks.tool(timeout="50ms", retry=Retry(backoff="1ms", on=(KeyError,)))(other)

    async with stage(tmp_path, declare) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"form": FORM})
        task = await up.client.until(task_id)
        assert task["result"]["structuredContent"] == {"result": 2}
        assert await notes(up, task) == ["TimeoutError: The tool did not finish within 2 s"]
        assert text(await up.client.finish("other")) == "The tool did not finish within 0.05 s"
    assert runs == [1, 2]


async def test_a_plain_tool_that_does_not_look_is_given_up_when_its_timeout_is_over(tmp_path: Path) -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(30)

    async with stage(tmp_path, only(hang, timeout="50ms"), cleanup="10ms") as up:
        try:
            assert text(await up.client.finish("tool")) == "The tool did not finish within 0.05 s"
        finally:
            release.set()


def until_told(task: SyncTaskContext) -> None:
    """Wait, in a thread, until the run is to end."""
    with suppress(asyncio.CancelledError):
        while True:
            task.checkpoint()
            threading.Event().wait(0.005)


async def test_a_plain_tool_whose_timeout_is_over_begins_no_step_that_its_next_attempt_would_do_again(
    tmp_path: Path,
) -> None:
    charged: list[int] = []

    def tool(task: SyncTaskContext) -> int:
        task.step("slow", until_told, task)
        task.step("charge", charged.append, task.attempt)
        return task.attempt

    # On a busy machine a later attempt may run out of time as well.
    async with stage(tmp_path, only(tool, timeout="50ms", retry=Retry(max_attempts=1_000, backoff="1ms"))) as up:
        assert not (await up.client.finish("tool"))["result"].get("isError")
    assert len(charged) == 1
    assert charged != [1]


@pytest.mark.parametrize("told_by", ["a checkpoint", "a verb"])
async def test_what_a_plain_tool_makes_of_being_stopped_by_a_shutdown_is_not_its_result(
    tmp_path: Path, told_by: str
) -> None:
    """It may catch what it is told by, for the sake of a cancellation. Nobody has cancelled it."""
    started = threading.Event()

    def tool(task: SyncTaskContext) -> str:
        if started.is_set():
            return "all of it"
        started.set()
        try:
            while True:
                task.checkpoint() if told_by == "a checkpoint" else task.report("at it")
                threading.Event().wait(0.005)
        except asyncio.CancelledError:
            return "as far as I got"

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        await eventually(started.is_set, "the tool did not start")
    async with stage(tmp_path, only(tool)) as up:
        assert text(await up.client.until(task_id)) == "all of it"


# -- version -----------------------------------------------------------------------------------------------------------


class Old(BaseModel):
    outline: str


async def first(task: TaskContext) -> str:
    """The code of version 1."""
    await task.step("draft", lambda: "old draft", returns=str)
    await task.elicit("form", "Go on?", Form)
    return "written by the first"


async def second(size: str, task: TaskContext) -> Old:
    """The code of version 2."""
    outline = await task.step("outline", lambda: size, returns=str)
    await task.elicit("form", "Go on?", Form)
    return Old(outline=outline)


async def test_a_task_is_finished_by_the_code_that_began_it(tmp_path: Path) -> None:
    async with stage(tmp_path, lambda tasks: tasks.tool("report", version="1")(first) and None) as up:
        old = await up.client.start("report")
        await up.client.until(old, "input_required")

    def deploy(tasks: Tasks) -> None:
        tasks.tool("report", version="2")(second)
        tasks.retired("report", version="1")(first)

    async with stage(tmp_path, deploy) as up:
        tools = (await up.client.request("tools/list")).result["tools"]
        assert [(tool["name"], tool["description"]) for tool in tools] == [("report", "The code of version 2.")]
        new = await up.client.start("report", {"size": "large"})
        await up.client.until(new, "input_required")
        for task_id in (old, new):
            await up.client.update(task_id, {"form": FORM})
        assert text(await up.client.until(old)) == "written by the first"
        assert (await up.client.until(new))["result"]["structuredContent"] == {"outline": "large"}
        handlers = [(await up.store.inspect(task_id)).operation.handler for task_id in (old, new)]
        assert handlers == ["tools/call:report@1", "tools/call:report@2"]


async def test_without_its_code_a_task_waits_and_is_not_finished_by_another(tmp_path: Path) -> None:
    async with stage(tmp_path, only(first)) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"form": FORM})
        await up.client.until(task_id)
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
    async with stage(tmp_path, only(second, version="2")) as up:
        await up.client.update(task_id, {"form": FORM})
        await up.client.until(await up.client.start("tool", {"size": "small"}), "input_required")
        run = (await up.store.inspect(task_id)).run
        assert run is not None
        assert (run.session, run.handler) == (None, "tools/call:tool")

    def deploy(tasks: Tasks) -> None:
        tasks.retired("tool", version=None)(first)

    async with stage(tmp_path, deploy) as up:
        assert (await up.client.request("tools/list")).result["tools"] == []
        assert text(await up.client.until(task_id)) == "written by the first"


def unused(tmp_path: Path) -> Tasks:
    return Tasks(f"sqlite:///{tmp_path / 'never.db'}")


def test_a_version_is_one_code(tmp_path: Path) -> None:
    tasks = unused(tmp_path)
    tasks.tool("report", version="3")(second)
    tasks.retired("report", version="2")(first)
    tasks.retired("report", version=None)(first)
    for version in ("3", "2"):
        with pytest.raises(ConfigurationError, match=f"There is version '{version}' of the task tool 'report' already"):
            tasks.retired("report", version=version)(first)
    with pytest.raises(ConfigurationError, match="There is code without a version for the task tool 'report' already"):
        tasks.retired("report", version=None)(first)
    tasks.retired("other", version="1")(first)
    with pytest.raises(ConfigurationError, match="There is version '1' of the task tool 'other' already"):
        tasks.tool("other", version="1")(second)
    tasks.tool("other", version="2")(second)


def wrong_context(task: TaskContext) -> None: ...


def test_retired_code_is_looked_at_like_any_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="annotate 'task' with SyncTaskContext"):
        unused(tmp_path).retired("report", version="1")(wrong_context)


# -- the other options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [("retry", 3), ("retry", "always"), ("version", 2), ("version", "a b"), ("version", "@"), ("version", "x" * 101),
     ("queue", ""), ("queue", None), ("priority", "high"), ("priority", True), ("priority", 1.5),
     ("concurrency", 0), ("concurrency", True), ("concurrency", "2")],
)  # fmt: skip
def test_an_option_that_can_not_be_is_refused_when_the_tool_is_declared(
    tmp_path: Path, option: str, value: object
) -> None:
    wrong: dict[str, Any] = {option: value}
    wrong_too: dict[str, Any] = {"version": "1"} | wrong
    with pytest.raises(ConfigurationError, match=f"^{option} is {value!r}: write"):
        unused(tmp_path).tool(**wrong)
    with pytest.raises(ConfigurationError, match=f"^{option} is {value!r}: write"):
        unused(tmp_path).retired("tool", **wrong_too)


@pytest.mark.parametrize("value", ["0s", -1, "soon"])
def test_a_timeout_that_can_not_be_is_refused_when_the_tool_is_declared(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InvalidDuration, match=r"^timeout: "):
        unused(tmp_path).tool(timeout=value)


def test_queue_priority_and_concurrency_say_where_and_when_it_runs(tmp_path: Path) -> None:
    tasks = unused(tmp_path)
    tasks.tool("plain")(first)
    tasks.tool("placed", version="2", queue="slow", priority=-3, concurrency=2)(first)
    tasks.retired("placed", version="1", queue="slow", concurrency=1)(first)
    assert {name: handler.placement for name, handler in tasks.assembly.catalog.handlers.items()} == {
        "tools/call:plain": Placement(),
        "tools/call:placed@2": Placement("slow", -3, 2),
        "tools/call:placed@1": Placement("slow", 0, 1),
    }


async def test_concurrency_bounds_how_many_run_at_once(tmp_path: Path) -> None:
    inside: list[int] = []
    gate = asyncio.Event()

    async def bounded(n: int) -> int:
        inside.append(n)
        await gate.wait()
        return n

    async def free() -> str:
        return "free"

    def declare(tasks: Tasks) -> None:
        tasks.tool(concurrency=2)(bounded)
        tasks.tool()(free)

    async with stage(tmp_path, declare) as up:
        ids = [await up.client.start("bounded", {"n": n}) for n in range(4)]
        await eventually(lambda: len(inside) == 2, "two are running")
        assert text(await up.client.finish("free")) == "free"
        assert len(inside) == 2
        gate.set()
        for task_id in ids:
            await up.client.until(task_id)
    assert sorted(inside) == [0, 1, 2, 3]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_the_clean_up_of_an_attempt_that_failed_is_not_in_the_way_of_the_next_one(
    tmp_path: Path, plain: bool
) -> None:
    ran: list[str] = []

    def fail_once() -> None:
        ran.append("attempt")
        if ran.count("attempt") == 1:
            raise ValueError("Between two steps")

    async def coroutine(task: TaskContext) -> None:
        try:
            await task.step("open", lambda: ran.append("open"))
            fail_once()
            await task.step("use", lambda: ran.append("use"))
        finally:
            await task.step("close", lambda: ran.append("close"))

    def function(task: SyncTaskContext) -> None:
        try:
            task.step("open", lambda: ran.append("open"))
            fail_once()
            task.step("use", lambda: ran.append("use"))
        finally:
            task.step("close", lambda: ran.append("close"))

    tasks = Tasks(f"sqlite:///{tmp_path / 'tasks.db'}")
    tasks.tool("tool", retry=Retry(2, backoff="1s"))(function if plain else coroutine)
    async with Harness(tasks) as harness:
        task = await harness.call("tool")
        await harness.advance("1s")
        assert (await harness.look(task)).result.is_error is not True
    assert ran == ["open", "attempt", "close", "attempt", "use", "close"]
