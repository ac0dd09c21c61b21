"""Steps as a tool's author has them: done once, kept, read back, failed, and refused."""

import asyncio
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from perdure import (
    JournalMismatch,
    LimitExceeded,
    Limits,
    NotStorable,
    Retry,
    StepFailed,
    StepInterrupted,
    SyncTaskContext,
    TaskContext,
    Tasks,
)
from perdure.domain.journal import EntryState
from perdure.domain.timeline import EventKind
from tests.support import eventually
from tests.wire.envelopes import JSON, NOTHING
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Form

SOON = Retry(max_attempts=3, backoff="1ms")


class Page(BaseModel):
    number: int


def only(fn: Callable[..., Any], **options: Any) -> Callable[[Tasks], None]:
    """A server with this tool, under the name "tool"."""
    return lambda tasks: tasks.tool("tool", **options)(fn) and None


async def through_a_wait(up: Stage, key: str = "form") -> JSON:
    """What becomes of a task of "tool" that asks once on its way."""
    task_id = await up.client.start("tool")
    await up.client.until(task_id, "input_required")
    await up.client.update(task_id, {key: FORM})
    return await up.client.until(task_id)


def text(task: JSON) -> str:
    return task["result"]["content"][0]["text"]


# -- done once ---------------------------------------------------------------------------------------------------------


async def test_a_step_that_ran_is_not_run_again_and_its_result_is_what_it_was(tmp_path: Path) -> None:
    ran: list[str] = []
    seen: list[Any] = []

    async def fetch(number: int) -> Page:
        ran.append("fetch")
        return Page(number=number)

    def count(words: str) -> tuple[int, str]:
        ran.append(threading.current_thread().name)
        return len(words), words

    async def tool(task: TaskContext) -> list[int]:
        page = await task.step("fetch", fetch, 7)
        counted = await task.step("count", count, "two words")
        seen.append((page, counted))
        await task.elicit("form", "Go on?", Form)
        more = await task.step("fetch", fetch, page.number + 1)
        return [page.number, counted[0], more.number]

    async with stage(tmp_path, only(tool)) as up:
        task = await through_a_wait(up)
        assert task["result"]["structuredContent"] == {"result": [7, 9, 8]}
    assert seen == [(Page(number=7), (9, "two words"))] * 2
    assert (ran[0], ran[2], len(ran)) == ("fetch", "fetch", 3)
    assert ran[1] != "MainThread"


async def test_a_plain_tool_has_steps_too(tmp_path: Path) -> None:
    ran: list[str] = []

    async def fetch(number: int) -> Page:
        ran.append(threading.current_thread().name)
        return Page(number=number)

    def count(page: Page, *, times: int) -> int:
        ran.append(threading.current_thread().name)
        return page.number * times

    def tool(task: SyncTaskContext) -> int:
        page = task.step("fetch", fetch, 7)
        counted = task.step("count", functools.partial(count, page, times=2))
        task.elicit("form", "Go on?", Form)
        return task.step("add", lambda: counted + 1)

    async with stage(tmp_path, only(tool)) as up:
        task = await through_a_wait(up)
        assert task["result"]["structuredContent"] == {"result": 15}
    assert ran[0] == "MainThread"
    assert ran[1] != "MainThread"
    assert len(ran) == 2


async def test_a_function_may_be_anything_that_can_be_called(tmp_path: Path) -> None:
    async def fetch(number: int) -> Page:
        return Page(number=number)

    class Counter(BaseModel):
        async def __call__(self, number: int) -> int:
            assert asyncio.get_running_loop()
            return number

        async def method(self) -> bytes:
            return b"\xff"

    async def tool(task: TaskContext) -> list[str]:
        results = [
            await task.step("lambda", lambda: fetch(1)),
            await task.step("lambda", lambda: fetch(1), returns=Page),
            await task.step("partial", functools.partial(fetch, number=2)),
            await task.step("object", Counter(), 3),
            await task.step("method", Counter().method),
            await task.step("class", Page.model_validate, {"number": 4}),
            await task.step("made", Counter),
            await task.step("nothing", lambda: None),
        ]
        return [repr(result) for result in results]

    async with stage(tmp_path, only(tool)) as up:
        task = await up.client.finish("tool")
        assert task["result"]["structuredContent"]["result"] == [
            "{'number': 1}",
            "Page(number=1)",
            "Page(number=2)",
            "3",
            r"b'\xff'",
            "Page(number=4)",
            "Counter()",
            "None",
        ]


async def test_steps_work_inside_the_request_as_well(tmp_path: Path) -> None:
    async def tool(task: TaskContext) -> int:
        return await task.step("one", lambda: 1, returns=int)

    async with stage(tmp_path, only(tool)) as up:
        assert (await up.client.call("tool", capabilities=NOTHING)).result["structuredContent"] == {"result": 1}


async def test_a_crash_costs_the_step_in_flight_and_one_that_may_run_at_most_once_is_not_repeated(
    tmp_path: Path,
) -> None:
    ran: list[str] = []
    hang = True

    async def work(name: str) -> str:
        ran.append(name)
        if hang and name != "before":
            await asyncio.Event().wait()
        return name

    async def again(task: TaskContext) -> list[str]:
        return [await task.step("before", work, "before"), await task.step("again", work, "again")]

    async def once(task: TaskContext) -> str:
        await task.step("before", work, "before", at_most_once=True)
        try:
            return await task.step("once", work, "once", at_most_once=True)
        except StepInterrupted as interrupted:
            return str(interrupted)

    async def uncaught(task: TaskContext) -> str:
        return await task.step("uncaught", work, "uncaught", at_most_once=True)

    def declare(tasks: Tasks) -> None:
        for function in (again, once, uncaught):
            tasks.tool()(function)

    async with stage(tmp_path, declare) as up:
        ids = [await up.client.start(name) for name in ("again", "once", "uncaught")]
        await eventually(lambda: len(ran) == 5, "all three are in their step")
    hang = False
    async with stage(tmp_path, declare) as up:
        texts = [text(await up.client.until(task_id)) for task_id in ids]
    assert texts[0] == "before"
    assert texts[1].startswith("The step 'once' may run at most once, and was begun before")
    assert texts[2].startswith("Error executing tool uncaught: The step 'uncaught' may run at most once")
    assert sorted(ran) == sorted(["before", "before", "again", "again", "once", "uncaught"])


# -- failed ------------------------------------------------------------------------------------------------------------


async def no_ink() -> None:
    raise ToolError("no ink")


async def no_paper() -> None:
    raise MCPError(-32050, "no paper", {"trays": [1]})


def out_of_order() -> None:
    raise RuntimeError("secret")


async def cancelled() -> None:
    raise asyncio.CancelledError("secret")


def exiting() -> None:
    raise SystemExit("secret")


def stopped() -> None:
    raise StopIteration("secret")


FAILING = {fn.__name__: fn for fn in (no_ink, no_paper, out_of_order, cancelled, exiting, stopped)}


class Failing:
    """A tool that raises the failure of its step, at once or in a later run."""

    def __init__(self, late: bool) -> None:
        self.late = late

    async def coroutine(self, name: str, task: TaskContext) -> None:
        failed: StepFailed | None = None
        try:
            await task.step(name, FAILING[name])
        except StepFailed as error:
            failed = error
        if self.late:
            await task.elicit("form", "Go on?", Form)
        if failed:
            raise failed

    def function(self, name: str, task: SyncTaskContext) -> None:
        failed: StepFailed | None = None
        try:
            task.step(name, FAILING[name])
        except StepFailed as error:
            failed = error
        if self.late:
            task.elicit("form", "Go on?", Form)
        if failed:
            raise failed


@pytest.mark.parametrize("late", [False, True], ids=["live", "in replay"])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_uncaught_failure_ends_the_tool_as_the_error_itself_would_have(
    tmp_path: Path, plain: bool, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(late)
    async with stage(tmp_path, only(failing.function if plain else failing.coroutine)) as up:
        ended: dict[str, JSON] = {}
        for name in FAILING:
            task_id = await up.client.start("tool", {"name": name})
            if late and name != "cancelled":
                await up.client.until(task_id, "input_required")
                await up.client.update(task_id, {"form": FORM})
            ended[name] = await up.client.until(task_id)
        assert text(ended["no_ink"]) == "Error executing tool tool: no ink"
        assert ended["no_paper"]["error"] == {"code": -32050, "message": "no paper", "data": {"trays": [1]}}
        for name in ("out_of_order", "cancelled", "exiting", "stopped"):
            assert (text(ended[name]), ended[name]["result"]["isError"]) == ("Error executing tool tool", True), name
    assert "The step 'out_of_order' failed: RuntimeError: secret" in caplog.text
    assert ("in out_of_order" in caplog.text) is not late, "the traceback is known where it happened"


async def test_a_failed_step_stays_failed_and_its_cause_is_known_in_its_own_run_only(tmp_path: Path) -> None:
    ran: list[int] = []
    seen: list[tuple[Any, ...]] = []

    def fetch() -> int:
        ran.append(1)
        raise ConnectionError("refused")

    async def tool(task: TaskContext) -> str:
        try:
            await task.step("fetch", fetch)
        except StepFailed as failed:
            seen.append((failed.name, failed.type, failed.message, type(failed.__cause__)))
        await task.elicit("form", "Go on?", Form)
        return "without"

    async with stage(tmp_path, only(tool)) as up:
        assert text(await through_a_wait(up)) == "without"
    name, kind, message, _ = seen[0]
    assert (name, kind, message) == ("fetch", "ConnectionError", "refused")
    assert seen == [(name, kind, message, ConnectionError), (name, kind, message, type(None))]
    assert len(ran) == 1


async def test_a_step_is_tried_again_while_its_retry_says_so(tmp_path: Path) -> None:
    tries: list[str] = []

    async def flaky(error: Exception, good: int) -> int:
        tries.append(type(error).__name__)
        if tries.count(type(error).__name__) < good:
            raise error
        return len(tries)

    async def tool(task: TaskContext) -> list[Any]:
        results: list[Any] = [await task.step("good", flaky, OSError(), 3, retry=SOON)]
        for name, error, retry in (
            ("spent", KeyError(), SOON),
            ("other", ValueError(), Retry(backoff="1ms", on=(OSError,))),
            ("answer", ToolError("no"), SOON),
            ("named", MCPError(1, "no"), Retry(max_attempts=2, backoff="1ms", on=(MCPError,))),
        ):
            with pytest.raises(StepFailed) as failed:
                await task.step(name, flaky, error, 9, retry=retry)
            results.append(failed.value.type)
        return results

    async with stage(tmp_path, only(tool)) as up:
        task = await up.client.finish("tool")
        assert task["result"]["structuredContent"]["result"] == [3, "KeyError", "ValueError", "ToolError", "MCPError"]
        events = (await up.store.inspect(task["taskId"])).events
    assert tries == ["OSError"] * 3 + ["KeyError"] * 3 + ["ValueError", "ToolError"] + ["MCPError"] * 2
    assert [event.kind for event in events] == [EventKind.STEP_RETRY] * 5


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_step_past_its_timeout_fails(tmp_path: Path, plain: bool) -> None:
    release = threading.Event()

    async def coroutine(task: TaskContext) -> str:
        with pytest.raises(StepFailed, match=r"took longer than 0\.01 s") as failed:
            await task.step("hang", asyncio.Event().wait, timeout="10ms")
        with pytest.raises(StepFailed):
            await task.step("hang", release.wait, 30, timeout="10ms")
        return failed.value.type

    def function(task: SyncTaskContext) -> str:
        with pytest.raises(StepFailed, match=r"took longer than 0\.01 s") as failed:
            task.step("hang", release.wait, 30, timeout="10ms")
        return failed.value.type

    async with stage(tmp_path, only(function if plain else coroutine)) as up:
        try:
            assert text(await up.client.finish("tool")) == "TimeoutError"
        finally:
            release.set()


async def test_plain_tools_that_wait_for_their_steps_leave_threads_for_them(tmp_path: Path) -> None:
    """As many tools as the SDK has threads for, each in a step at the same time."""
    together = threading.Barrier(40)

    def meet() -> None:
        together.wait(30)

    def tool(task: SyncTaskContext) -> str:
        task.step("meet", meet)
        return "met"

    async with stage(tmp_path, only(tool), concurrency=50) as up:
        ids = [await up.client.start("tool") for _ in range(40)]
        assert [text(await up.client.until(task_id)) for task_id in ids] == ["met"] * 40


# -- refused -----------------------------------------------------------------------------------------------------------


def opaque() -> object:
    return object()


def large() -> str:
    return "x" * 1000


async def unstorable(task: TaskContext) -> None:
    await task.step("save", opaque)


async def too_large(task: TaskContext) -> None:
    await task.step("save", large)


async def long_name(task: TaskContext) -> None:
    await task.step("x" * 201, large)


async def bad_name(task: TaskContext) -> None:
    await task.step("\ud800", large)


async def too_many(task: TaskContext) -> None:
    for _ in range(4):
        await task.step("same", lambda: None)


async def no_time(task: TaskContext) -> None:
    await task.step("save", large, timeout="-1s")


async def negative(task: TaskContext) -> None:
    await task.sleep("-1s")


@pytest.mark.parametrize(
    ("fn", "kind", "words"),
    [
        (unstorable, NotStorable, "The result of the step 'save' can't be stored as JSON: Unable to serialize"),
        (
            too_large,
            LimitExceeded,
            "The result of the step 'save' takes 1002 bytes as JSON, and 500 is the limit (step_result)",
        ),
        (long_name, LimitExceeded, f"The name '{'x' * 40}'… has 201 characters, and 200 is the limit (step_name)"),
        (bad_name, NotStorable, r"The name '\ud800' can't be stored: "),
        (too_many, LimitExceeded, "The journal of a task has at most 3 entries"),
        (no_time, ValueError, "timeout: '-1s' is no duration"),
        (negative, ValueError, "sleep: '-1s' is no duration"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_can_not_be_is_raised_at_once_and_said_by_name(
    tmp_path: Path, fn: Callable[..., Any], kind: type[Exception], words: str
) -> None:
    raised: list[Exception] = []

    async def tool(task: TaskContext) -> None:
        try:
            await fn(task)
        except Exception as error:
            raised.append(error)
            raise

    limits = Limits(step_result=500, entries=3)
    async with stage(tmp_path, only(tool, retry=Retry(backoff="1ms")), limits=limits) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert text(task).startswith(f"Error executing tool tool: {words}")
        assert "save" not in {entry.name for entry in (await up.store.inspect(task["taskId"])).journal.entries.values()}
    assert [type(error) for error in raised] == [type(raised[0])]
    assert isinstance(raised[0], kind)


async def test_a_result_over_the_limit_is_a_tool_error(tmp_path: Path) -> None:
    async def tool() -> str:
        return "x" * 2000

    async with stage(tmp_path, only(tool), limits=Limits(result=1000)) as up:
        task = await up.client.finish("tool")
        assert task["result"]["isError"] is True
        assert text(task).endswith("bytes as JSON, and 1000 is the limit (result)")


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_verb_inside_a_step_fails_the_task_and_says_why(tmp_path: Path, plain: bool) -> None:
    async def coroutine(task: TaskContext) -> None:
        with suppress(Exception):
            await task.step("outer", lambda: task.step("inner", lambda: None))

    def function(task: SyncTaskContext) -> None:
        with suppress(Exception):
            task.step("outer", lambda: task.step("inner", lambda: None))

    async with stage(tmp_path, only(function if plain else coroutine)) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert "The step 'outer' uses step" in task["error"]["message"]


async def one(number: int) -> int:
    return number


def misused(verb: str) -> Callable[..., Any]:
    """A tool that uses a verb in a way that a type checker would not let pass, and swallows what that raises."""

    async def tool(task: TaskContext) -> None:
        loose: Any = task
        with suppress(Exception):
            match verb:
                case "step of a coroutine":
                    await loose.step("add", one(3))
                case "step of a value":
                    await loose.step("add", 3)
                case "step without a name":
                    await loose.step(one, 3)
                case "gather of a function":
                    await loose.gather(task.step("add", one, 3), lambda: 2)
                case "gather of a list":
                    await loose.gather([task.sleep])
                case "external of a coroutine":
                    await loose.external("render", one(3))
                case "external without a name":
                    await loose.external(one, 3)
                case _:
                    await loose.external("render", one, poll=7)

    return tool


def misused_in_a_thread(verb: str) -> Callable[..., Any]:
    def tool(task: SyncTaskContext) -> None:
        loose: Any = task
        with suppress(Exception):
            if verb == "step":
                loose.step("add", one(3))
            else:
                loose.gather(lambda: 1, task.step("add", one, 3))

    return tool


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (misused("step of a coroutine"), "was given what calling one returned: write task.step('add', one, …)"),
        (misused("step of a value"), "was given a value of type int: write task.step('add', function, …)"),
        (misused("step without a name"), "takes a name first, for the journal, and then a function: write "),
        (misused("gather of a function"), "its branch 2 is a value of type function: write task.gather(task.step(…), "),
        (misused("gather of a list"), "its branch 1 is a value of type list: write task.gather("),
        (
            misused("external of a coroutine"),
            "as its start, and was given what calling one returned: write one without",
        ),
        (misused("external without a name"), "external takes a name first, for the journal, and then a function"),
        (misused("external of a value"), "a function of a handle as its poll, and was given a value of type int"),
        (misused_in_a_thread("step"), "was given what calling one returned: write task.step('add', one, …)"),
        (misused_in_a_thread("gather"), "branch 2 too, and was given a value of type int: write task.gather(lambda: "),
    ],
    ids=[
        *("coroutine", "value", "nameless", "gather", "gather-list", "external", "external-nameless", "external-poll"),
        *("plain", "plain-gather"),
    ],
)
async def test_a_verb_that_is_given_what_is_no_function_fails_the_task_and_says_what_to_write(
    tmp_path: Path, tool: Callable[..., Any], words: str
) -> None:
    async with stage(tmp_path, only(tool)) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert words in task["error"]["message"]


async def renamed(task: TaskContext) -> None:
    await task.step("first", lambda: None)
    await task.step("other", lambda: None)


async def reordered(task: TaskContext) -> None:
    await task.step("second", lambda: None)


async def another_verb(task: TaskContext) -> None:
    await task.step("first", lambda: None)
    await task.sleep("1s")


async def another_question(task: TaskContext) -> None:
    await task.step("first", lambda: None)
    await task.step("second", lambda: None)
    await task.elicit("other", "Go on?", Form)


async def gone(task: TaskContext) -> None:
    await task.step("first", lambda: None)


async def swallowing(task: TaskContext) -> str:
    with suppress(JournalMismatch):
        await task.step("other", lambda: None)
    return "all is well"


async def another_kind(task: TaskContext) -> None:
    await task.step("first", dict, returns=Page)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (renamed, "has step 'second', and the code comes there with step 'other'"),
        (reordered, "has step 'first', and the code comes there with step 'second'"),
        (another_verb, "has step 'second', and the code comes there with sleep"),
        (another_question, "has ask 'form', and the code comes there with ask 'other'"),
        (gone, "has step 'second', and the code ended without coming there"),
        (swallowing, "has step 'first', and the code comes there with step 'other'"),
        (another_kind, r"of the step 'first' the journal has a result of another kind, and the code reads it as Page"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_code_that_is_not_what_began_the_task_fails_it_and_names_both_sides(
    tmp_path: Path, changed: Callable[..., Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    deployed = False

    async def tool(task: TaskContext) -> None:
        if deployed:
            return await changed(task)
        await task.step("first", lambda: None)
        await task.step("second", lambda: None)
        await task.elicit("form", "Go on?", Form)
        return None

    async with stage(tmp_path, only(tool, retry=Retry(backoff="1ms"))) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        deployed = True
        await up.client.update(task_id, {"form": FORM})
        task = await up.client.until(task_id)
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert words in task["error"]["message"]
        assert "give a changed tool another version" in task["error"]["message"]
        if changed is not another_kind:
            assert f"Tool 'tool': {task['error']['message']}" in caplog.text
        entries = (await up.store.inspect(task_id)).journal.entries.values()
        assert {entry.state for entry in entries} == {EntryState.DONE}


async def test_a_name_that_no_store_takes_is_refused_by_what_it_is(tmp_path: Path) -> None:
    async def tool(task: TaskContext) -> None:
        await task.step("na\0me", lambda: None)

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        text = (await up.client.finish("tool"))["result"]["content"][0]["text"]
        assert "The name 'na\\x00me' can't be stored: Text with a null character" in text
