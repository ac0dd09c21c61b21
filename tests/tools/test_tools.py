"""Tools as the SDK makes them: arguments, schemas, results; and what a task changes about them."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Icon, ImageContent, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, field_validator

from perdure import ConfigurationError, Elicit, ListRoots, PerdureError, SyncTaskContext, TaskContext, Tasks
from tests.wire.envelopes import INPUT, JSON, NOTHING, TASKS
from tests.wire.support import Stage, stage
from tests.wire.tools import ENTRY, FORM, Entry, Form


async def outcome(tmp_path: Path, fn: Callable[..., Any], arguments: JSON = None, **options: Any) -> JSON:
    """What `tasks/get` says in the end of a call of `fn` as a task."""
    async with stage(tmp_path, lambda tasks: tasks.tool("tool", **options)(fn) and None) as up:
        return await up.client.finish("tool", arguments)


# -- arguments ---------------------------------------------------------------------------------------------------------


class Order(BaseModel):
    kind: str
    count: Annotated[int, Field(ge=1)]

    @field_validator("kind")
    @classmethod
    def known(cls, kind: str) -> str:
        if kind == "crash":
            raise ZeroDivisionError("secret")
        if kind != "tea":
            raise ValueError("only tea is served")
        return kind


async def test_arguments_that_do_not_fit_are_an_immediate_tool_error_and_nothing_is_stored(tmp_path: Path) -> None:
    async def tool(order: Order) -> int:
        return order.count

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        before = up.dump()
        bad: list[JSON] = [
            None,
            {},
            {"order": None},
            {"order": "tea"},
            {"order": {"kind": "tea"}},
            {"order": {"kind": "tea", "count": 0}},
            {"order": {"kind": "tea", "count": "many"}},
            {"order": {"kind": "beer", "count": 1}},
            {"order": {"kind": "crash", "count": 1}},
        ]
        for capabilities in (TASKS, NOTHING):
            for arguments in bad:
                reply = await up.client.call("tool", arguments, capabilities=capabilities)
                assert reply.result["isError"] is True, arguments
                assert reply.text.startswith("Error executing tool tool")
                assert "secret" not in reply.text
        assert up.dump() == before
        assert "only tea is served" in (await up.client.call("tool", bad[7])).text
        task = await up.client.finish("tool", {"order": {"kind": "tea", "count": 2}})
        assert task["result"]["structuredContent"] == {"result": 2}


async def test_arguments_that_are_no_object_are_invalid_params(scene: Stage) -> None:
    before = scene.dump()
    values: list[JSON] = ["text", 5, [], [1], True]
    for value in values:
        assert (await scene.client.call("hello", value)).code == -32602
    assert scene.dump() == before


async def test_defaults_and_missing_arguments(tmp_path: Path) -> None:
    async def tool(n: int = 3, *, deep: bool = False) -> list[Any]:
        return [n, deep]

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        for arguments, expected in ((None, [3, False]), ({}, [3, False]), ({"n": 4, "deep": True}, [4, True])):
            task = await up.client.finish("tool", arguments)
            assert task["result"]["structuredContent"] == {"result": expected}


# -- results -----------------------------------------------------------------------------------------------------------


class Weather(TypedDict):
    celsius: float
    words: list[str]


async def test_a_tool_is_listed_and_answers_as_the_same_tool_of_the_sdk_would(tmp_path: Path) -> None:
    async def weather(city: str) -> Weather:
        """How is it outside?"""
        return {"celsius": 21.5, "words": ["sunny", city]}

    options: dict[str, Any] = {
        "title": "Weather",
        "annotations": ToolAnnotations(read_only_hint=True),
        "icons": [Icon(src="https://example.org/i.png")],
        "meta": {"com.example/price": 1},
    }
    plain: MCPServer[Any] = MCPServer("plain")
    plain.tool(**options)(weather)
    [expected] = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in await plain.list_tools()]
    expected["_meta"]["dev.perdure/idempotency"] = {}
    async with stage(tmp_path, lambda tasks: tasks.tool(**options)(weather) and None) as up:
        [listed] = (await up.client.request("tools/list")).result["tools"]
        assert listed == expected
        assert listed["outputSchema"]["required"] == ["celsius", "words"]
        task = await up.client.finish("weather", {"city": "Oslo"})
        assert task["result"]["structuredContent"] == {"celsius": 21.5, "words": ["sunny", "Oslo"]}


async def test_without_structured_output_there_is_content_only(tmp_path: Path) -> None:
    async def tool() -> dict[str, int]:
        return {"n": 1}

    task = await outcome(tmp_path, tool, structured_output=False)
    assert "structuredContent" not in task["result"]


async def test_a_result_that_breaks_its_own_output_schema_is_a_tool_error(tmp_path: Path) -> None:
    async def tool() -> Weather:
        return {"celsius": "warm"}  # pyright: ignore[reportReturnType] - the point

    task = await outcome(tmp_path, tool)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)


async def test_a_whole_tool_result_passes_as_it_is(tmp_path: Path) -> None:
    image = ImageContent(type="image", data="aGk=", mime_type="image/png")

    async def tool() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="seen"), image], is_error=True)

    task = await outcome(tmp_path, tool)
    assert [block["type"] for block in task["result"]["content"]] == ["text", "image"]
    assert task["result"]["isError"] is True


async def test_returning_nothing_is_a_result(tmp_path: Path) -> None:
    async def tool() -> None:
        return None

    task = await outcome(tmp_path, tool)
    assert (task["status"], task["result"]["isError"]) == ("completed", False)


def cyclic() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def deep() -> Any:
    value: Any = 0
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {"a": object()},
        float("nan"),
        [float("inf")],
        "\ud800",
        {"\udfff": 1},
        b"\xff\xfe",
        cyclic(),
        deep(),
        {1, 2},
    ],
    ids=["object", "inside", "nan", "infinity", "surrogate", "key", "bytes", "cycle", "deep", "set"],
)
async def test_a_result_without_json_form_is_a_tool_error_or_json_and_the_server_goes_on(
    tmp_path: Path, value: Any
) -> None:
    async def unstructured() -> Any:
        return value

    async def structured() -> dict[str, Any]:
        return {"value": value}

    def declare(tasks: Tasks) -> None:
        tasks.tool(structured_output=False)(unstructured)
        tasks.tool()(structured)

    async with stage(tmp_path, declare) as up:
        for name in ("unstructured", "structured"):
            assert (await up.client.finish(name))["status"] == "completed"
            assert "isError" in (await up.client.call(name, capabilities=NOTHING)).result
        assert (await up.client.finish("structured"))["status"] == "completed"


class Measured(BaseModel):
    value: float


async def nan_alone() -> float:
    return float("nan")


async def infinity_inside() -> dict[str, float]:
    return {"value": float("-inf")}


async def nan_in_a_model() -> Measured:
    return Measured(value=float("nan"))


async def nan_in_a_whole_result() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"values": [1.0, float("nan")]})


async def infinity_in_meta() -> CallToolResult:
    return CallToolResult(content=[], _meta={"com.example/cost": float("inf")})


@pytest.mark.parametrize(
    "fn",
    [nan_alone, infinity_inside, nan_in_a_model, nan_in_a_whole_result, infinity_in_meta],
    ids=lambda fn: fn.__name__,
)
async def test_a_number_without_json_form_is_a_tool_error_and_never_null(
    tmp_path: Path, fn: Callable[..., Any]
) -> None:
    task = await outcome(tmp_path, fn)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert "can't be represented as JSON" in task["result"]["content"][0]["text"]
    assert "structuredContent" not in task["result"]


# -- exceptions --------------------------------------------------------------------------------------------------------


class Odd(BaseException):
    """What nobody should raise."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret"),
        ExceptionGroup("secret", [ValueError("secret")]),
        Odd("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
        GeneratorExit("secret"),
        BaseExceptionGroup("secret", [Odd("secret")]),
        asyncio.CancelledError("secret"),
        StopIteration("secret"),
        StopAsyncIteration("secret"),
        RecursionError("secret"),
        MemoryError("secret"),
        TimeoutError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_whatever_a_tool_raises_the_task_ends_and_the_server_goes_on(
    tmp_path: Path, error: BaseException, plain: bool
) -> None:
    async def coroutine() -> None:
        raise error

    def function() -> None:
        raise error

    async def fine() -> str:
        return "fine"

    def declare(tasks: Tasks) -> None:
        tasks.tool("raising")(function if plain else coroutine)
        tasks.tool()(fine)

    async with stage(tmp_path, declare) as up:
        task = await up.client.finish("raising")
        if plain and isinstance(error, GeneratorExit):
            # Thrown into a coroutine that waits for a thread, it closes what it passes: nobody below the engine gets to
            # turn it into a result.
            assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        else:
            assert (task["status"], task["result"]["isError"]) == ("completed", True)
            assert task["result"]["content"][0]["text"] == "Error executing tool raising"
        inline = await up.client.call("raising", capabilities=NOTHING)
        assert "secret" not in inline.raw.decode()
        assert (await up.client.finish("fine"))["result"]["content"][0]["text"] == "fine"


@pytest.mark.parametrize("code", [-32603, -32602, -32021, -32000, 0, 1, 2**31])
async def test_a_protocol_error_of_any_code_fails_the_task_with_it(scene: Stage, code: int) -> None:
    task = await scene.client.finish("broken", {"code": code, "message": "why"})
    assert (task["status"], task["error"]["code"], task["error"]["message"]) == ("failed", code, "why")


@pytest.mark.parametrize(
    "data", [object(), float("nan"), "\ud800", {"a": {1}}], ids=["object", "nan", "surrogate", "set"]
)
async def test_a_protocol_error_whose_data_has_no_json_form_still_fails_the_task(tmp_path: Path, data: Any) -> None:
    async def tool() -> None:
        raise MCPError(-32050, "out of paper", data)

    task = await outcome(tmp_path, tool)
    assert (task["status"], type(task["error"]["code"])) == ("failed", int)


@pytest.mark.parametrize(
    "text", ["", "lone \ud800 surrogate", "nul \x00 byte", "x" * 100_000], ids=["empty", "surrogate", "nul", "long"]
)
async def test_any_text_of_an_error_gets_through(tmp_path: Path, text: str) -> None:
    async def tool() -> None:
        raise ToolError(text)

    task = await outcome(tmp_path, tool)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)


async def test_any_text_of_a_protocol_error_gets_through(tmp_path: Path) -> None:
    async def tool() -> None:
        raise MCPError(-32050, "out of \0 and \ud800")

    task = await outcome(tmp_path, tool)
    assert (task["status"], task["error"]) == ("failed", {"code": -32050, "message": "out of ? and ?"})


async def test_a_message_that_no_store_takes_is_refused_to_the_tool(tmp_path: Path) -> None:
    async def tool(task: TaskContext) -> str:
        await task.report("fine")
        for message in ("\ud800", "nul \0 byte"):
            with pytest.raises(PerdureError, match="stored"):
                await task.report(message)
        return "refused"

    assert (await outcome(tmp_path, tool))["result"]["structuredContent"] == {"result": "refused"}


# -- contexts ----------------------------------------------------------------------------------------------------------


async def test_a_plain_function_has_the_same_verbs_and_they_block(tmp_path: Path) -> None:
    threads: list[str] = []

    def tool(task: SyncTaskContext) -> list[Any]:

        threads.append(threading.current_thread().name)
        task.report("asking")
        form = task.elicit("form", "All right?", Form)
        both = task.ask({"entry": Elicit("Who?", Entry), "roots": ListRoots()})
        url = task.elicit_url("url", "Go there", "https://example.org")
        sampled = task.sample("poem", ["A poem, please"], max_tokens=5)
        roots = task.list_roots("again")
        return [
            form.accepted,
            both["entry"].data.name,
            len(both["roots"].roots),
            url.action,
            sampled.model,
            len(roots.roots),
            task.attempt,
            task.id.startswith("tsk_"),
            task.owner.principal,
            task.cancelled,
        ]

    responses: JSON = {
        "form": FORM,
        "entry": ENTRY,
        "roots": {"roots": [{"uri": "file:///tmp"}]},
        "url": {"action": "decline"},
        "poem": {"role": "assistant", "content": {"type": "text", "text": "Roses"}, "model": "m"},
        "again": {"roots": []},
    }
    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        task_id = await up.client.start("tool")
        task = await up.client.until(task_id, "input_required")
        assert task["statusMessage"] == "asking"
        while (task := await up.client.until(task_id, "input_required", "completed"))["status"] != "completed":
            await up.client.update(task_id, {key: responses[key] for key in task["inputRequests"]})
        assert task["result"]["structuredContent"] == {
            "result": [True, "Ada", 1, "decline", "m", 0, 1, True, "anonymous", False]
        }
    assert "MainThread" not in threads


@pytest.mark.parametrize(
    ("progress", "shown"),
    [((1, 2, "half"), "half"), ((1, 2), "1/2"), ((0.1 + 0.2,), "0.3"), ((1_234_567.0, 2e6, ""), "1234567/2000000")],
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_progress_becomes_the_status_message(
    tmp_path: Path, progress: tuple[Any, ...], shown: str, plain: bool
) -> None:
    async def coroutine(task: TaskContext) -> None:
        await task.report_progress(*progress)
        await task.list_roots()

    def function(task: SyncTaskContext) -> None:
        task.report_progress(*progress)
        task.list_roots()

    async with stage(tmp_path, lambda tasks: tasks.tool("tool")(function if plain else coroutine) and None) as up:
        task = await up.client.until(await up.client.start("tool"), "input_required")
        assert task["statusMessage"] == shown


@pytest.mark.parametrize("name", ["request_context", "session", "request_id", "headers", "client_capabilities"])
async def test_what_belongs_to_a_request_says_so_to_the_author_and_not_to_the_client(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(task: TaskContext) -> None:
        getattr(task, name)

    task = await outcome(tmp_path, tool)
    assert task["result"]["content"][0]["text"] == "Error executing tool tool"
    assert "a task outlives its request: say what the client should see by task.report" in caplog.text


async def test_a_plain_function_that_declines_is_a_tool_error(tmp_path: Path) -> None:
    def tool(task: SyncTaskContext) -> None:
        task.decline("no ink")

    task = await outcome(tmp_path, tool)
    assert "no ink" in task["result"]["content"][0]["text"]


async def test_blocking_work_does_not_hold_up_the_server(tmp_path: Path) -> None:

    release = threading.Event()

    def tool() -> str:
        assert release.wait(30)
        return "released"

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        task_id = await up.client.start("tool")
        assert (await up.client.get(task_id)).result["status"] == "working"
        release.set()
        assert (await up.client.until(task_id))["status"] == "completed"


async def wrong_for_async(task: SyncTaskContext) -> None: ...


def wrong_for_plain(task: TaskContext) -> None: ...


async def the_sdks_own(ctx: Context[Any, Any]) -> None: ...


async def optional(task: TaskContext | None = None) -> None: ...


async def named() -> None: ...


@pytest.mark.parametrize("fn", [wrong_for_async, wrong_for_plain, the_sdks_own, optional])
def test_a_context_of_the_wrong_kind_is_refused_at_declaration(tmp_path: Path, fn: Callable[..., Any]) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match=r"annotate '\w+' with \w*TaskContext"):
        tasks.tool()(fn)


def test_an_optional_context_is_refused_with_what_to_write(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match="annotate 'task' with TaskContext itself, without Optional"):
        tasks.tool()(optional)


async def bare(n: int, task) -> None: ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType] - the mistake


async def another_task(task: str) -> str:
    return task


def test_a_task_without_annotation_is_refused_since_clients_would_have_to_pass_it(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match=r"'task' has no annotation.*TaskContext"):
        tasks.tool()(bare)  # pyright: ignore[reportUnknownArgumentType] - the mistake
    tasks.tool()(another_task)


def resolver() -> int:
    return 1


async def resolving(n: Annotated[int, Resolve(resolver)]) -> int:
    return n


async def asking_by_result() -> str | InputRequiredResult:
    return "never"


@pytest.mark.parametrize(("fn", "words"), [(resolving, "Resolve"), (asking_by_result, "InputRequiredResult")])
def test_what_belongs_to_a_request_is_refused_at_declaration(
    tmp_path: Path, fn: Callable[..., Any], words: str
) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match=f"{words}.*prepare"):
        tasks.tool()(fn)


async def test_a_round_trip_that_comes_out_unannounced_is_a_tool_error(tmp_path: Path) -> None:
    async def tool() -> Any:
        return InputRequiredResult(request_state="x")

    async with stage(tmp_path, lambda tasks: tasks.tool(structured_output=False)(tool) and None) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert (await up.client.call("tool", capabilities=INPUT)).result["isError"] is True


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    tasks.tool()(named)
    with pytest.raises(ConfigurationError, match="named"):
        tasks.tool()(named)


def test_a_name_that_no_store_takes_is_refused_at_declaration(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match="valid Unicode"):
        tasks.tool("re\0port")(named)


def test_a_name_that_is_too_long_for_a_key_is_refused_at_declaration(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    tasks.tool("r" * 250)(named)
    with pytest.raises(ConfigurationError, match="at most 250 characters, and this one 251"):
        tasks.tool("r" * 251)(named)


@pytest.mark.parametrize(("name", "words"), [("report@2", "a task tool's name has no '@'"), ("report", "^version is ")])
def test_no_tool_can_be_taken_for_another_ones_version(tmp_path: Path, name: str, words: str) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    version = None if "@" in name else "1@2"
    for declare in (tasks.tool, tasks.retired):
        with pytest.raises(ConfigurationError, match=words):
            declare(name, version=version)(named)


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "taks"), ("mode", None), ("max_attempts", 0), ("max_attempts", -1), ("max_attempts", True)],
)
def test_an_option_that_can_not_be_is_refused_when_the_tool_is_declared(
    tmp_path: Path, option: str, value: object
) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=f"^{option} is {value!r}: write"):
        tasks.tool(**wrong)


def test_an_option_that_there_is_not_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    wrong: dict[str, Any] = {"tll": "1m"}
    with pytest.raises(ConfigurationError, match=r"no option 'tll'.* name, title, description"):
        tasks.tool(**wrong)(named)


def test_a_bare_decorator_is_refused(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(TypeError, match=r"tasks\.tool\(\)"):
        tasks.tool(named)  # pyright: ignore[reportArgumentType] - the mistake


def test_the_function_itself_stays_as_it_was(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    assert tasks.tool()(resolver) is resolver
    assert resolver() == 1


# -- when and mode -----------------------------------------------------------------------------------------------------


async def test_when_sees_the_validated_arguments_that_it_names(tmp_path: Path) -> None:
    seen: list[Any] = []

    def large(order: Order, n: int) -> bool:
        seen.append((order, n))
        return n > 5

    def all_of_them(**arguments: Any) -> bool:
        seen.append(sorted(arguments))
        return False

    async def tool(order: Order, n: int = 9, unused: str = "") -> int:
        return n

    def declare(tasks: Tasks) -> None:
        tasks.tool("large", when=large)(tool)
        tasks.tool("never", when=all_of_them)(tool)

    order: JSON = {"kind": "tea", "count": 1}
    async with stage(tmp_path, declare) as up:
        assert (await up.client.call("large", {"order": order})).result["resultType"] == "task"
        assert (await up.client.call("large", {"order": order, "n": "5"})).result["resultType"] == "complete"
        assert (await up.client.call("never", {"order": order})).result["resultType"] == "complete"
    assert seen == [(Order(kind="tea", count=1), 9), (Order(kind="tea", count=1), 5), ["n", "order", "unused"]]


def another(m: int) -> bool:
    return m > 1


def one_more(n: int, *, m: int) -> bool:
    return n > m


def by_default(n: int, limit: int = 5) -> bool:
    return n > limit


@pytest.mark.parametrize("when", [another, one_more])
def test_a_when_that_names_an_argument_that_there_is_not_is_refused_at_declaration(
    tmp_path: Path, when: Callable[..., bool]
) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match="when names an argument 'm', which the tool lacks; it has 'n'"):
        tasks.tool(when=when)(by_n)
    tasks.tool(when=by_default)(by_n)


async def by_n(n: int) -> int:
    return n


async def test_a_when_that_breaks_is_a_tool_error_and_nothing_is_stored(tmp_path: Path) -> None:
    def broken(n: int) -> bool:
        raise RuntimeError("secret")

    async def tool(n: int) -> int:
        return n

    async with stage(tmp_path, lambda tasks: tasks.tool(when=broken)(tool) and None) as up:
        before = up.dump()
        for capabilities in (TASKS, NOTHING):
            reply = await up.client.call("tool", {"n": 1}, capabilities=capabilities)
            assert (reply.result["isError"], reply.text) == (True, "Error executing tool tool")
        assert up.dump() == before


async def test_mode_task_and_when_together(tmp_path: Path) -> None:
    """A client that knows no tasks is refused whatever the arguments are; small calls of others stay synchronous."""

    def large(n: int) -> bool:
        return n > 5

    async def tool(n: int) -> int:
        return n

    async with stage(tmp_path, lambda tasks: tasks.tool(mode="task", when=large)(tool) and None) as up:
        assert (await up.client.call("tool", {"n": 1}, capabilities=NOTHING)).required == TASKS
        assert (await up.client.call("tool", {"n": 1})).result["resultType"] == "complete"
        assert (await up.client.call("tool", {"n": 9})).result["resultType"] == "task"


async def test_a_tool_may_be_declared_while_the_server_runs(scene: Stage) -> None:
    @scene.tasks.tool("late")
    async def late() -> str:
        return "in time"

    names = [tool["name"] for tool in (await scene.client.request("tools/list")).result["tools"]]
    assert "late" in names
    assert (await scene.client.finish("late"))["result"]["content"][0]["text"] == "in time"
