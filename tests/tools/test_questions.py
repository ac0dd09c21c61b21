"""What a task may ask its client: the kinds, their shapes, and who may be asked what (contract 4)."""

from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import SamplingMessage, TextContent, Tool
from pydantic import BaseModel, Field

from perdure import Elicit, ElicitUrl, ListRoots, Sample, TaskContext, Tasks
from perdure.domain import ids
from perdure.domain.errors import NotStorable
from tests.wire.envelopes import EVERYTHING, INPUT, JSON, NOTHING, TASKS
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Form


class Rich(BaseModel):
    text: str = Field(min_length=1, description="Some text")
    number: float = Field(ge=0, le=10)
    whole: int = 3
    yes: bool = True
    choice: Literal["red", "green"] = "red"
    maybe: str | None = None


POEM: JSON = {"role": "assistant", "content": {"type": "text", "text": "Roses"}, "model": "m", "stopReason": "endTurn"}
TOOL = Tool(name="rhyme", input_schema={"type": "object"})
USE: JSON = {"type": "tool_use", "id": "1", "name": "rhyme", "input": {}}


class Asking:
    """A tool for each kind of question."""

    def declare(self, tasks: Tasks) -> None:
        for function in (
            self.form,
            self.url,
            self.sample,
            self.sample_tools,
            self.roots,
            self.everything,
            self.fallback,
        ):
            tasks.tool(structured_output=False)(function)

    async def form(self, task: TaskContext) -> str:
        answer = await task.elicit("form", "Say", Rich)
        assert answer.accepted is (answer.action == "accept")
        return f"{answer.action} {answer.data!r}"

    async def url(self, task: TaskContext) -> str:
        answer = await task.elicit_url("url", "Go there", "https://example.org/pay?id=1")
        return f"{answer.action} {answer.data}"

    async def sample(self, task: TaskContext) -> str:
        message = SamplingMessage(role="user", content=TextContent(type="text", text="A poem"))
        answer = await task.sample("poem", ["Please", message], max_tokens=7, system_prompt="Be brief", temperature=0.5)
        return f"{answer.model} {answer.stop_reason}"

    async def sample_tools(self, task: TaskContext) -> str:
        answer = await task.sample("poem", ["A poem"], tools=[TOOL])
        return type(answer).__name__

    async def roots(self, task: TaskContext) -> str:
        return " ".join(str(root.uri) for root in (await task.list_roots()).roots)

    async def everything(self, task: TaskContext) -> str:
        answers = await task.ask(
            {
                "form": Elicit("All right?", Form),
                "url": ElicitUrl("Go there", "https://example.org"),
                "poem": Sample(["A poem"]),
                "roots": ListRoots(),
            }
        )
        return " ".join(answers)

    async def fallback(self, task: TaskContext) -> str:
        """Goes on without what the client can't give."""
        try:
            await task.list_roots()
        except MCPError as error:
            return f"no roots: {error.error.code}"
        return "roots"


async def asked(scene: Stage, tool: str, capabilities: JSON = EVERYTHING) -> tuple[str, JSON]:
    """A task of `tool` that waits, and what it asks."""
    task_id = await scene.client.start(tool, capabilities=capabilities)
    return task_id, (await scene.client.until(task_id, "input_required", capabilities=capabilities))["inputRequests"]


async def answered(scene: Stage, task_id: str, responses: JSON) -> str:
    reply = await scene.client.update(task_id, responses)
    assert "result" in reply.body, reply.body
    return (await scene.client.until(task_id))["result"]["content"][0]["text"]


async def test_a_form_shows_its_fields_and_comes_back_as_the_model(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, requests = await asked(up, "form")
        params = requests["form"]["params"]
        assert (requests["form"]["method"], params["mode"], params["message"]) == ("elicitation/create", "form", "Say")
        fields = params["requestedSchema"]["properties"]
        assert {name: field.get("type") for name, field in fields.items()} == {
            "text": "string",
            "number": "number",
            "whole": "integer",
            "yes": "boolean",
            "choice": "string",
            "maybe": "string",
        }
        assert params["requestedSchema"]["required"] == ["text", "number"]
        text = await answered(up, task_id, {"form": {"action": "accept", "content": {"text": "hi", "number": 2}}})
        assert text == f"accept {Rich(text='hi', number=2)!r}"


async def test_the_content_of_a_form_must_fit_the_fields(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, _ = await asked(up, "form")
        before = up.dump()
        right: JSON = {"text": "hi", "number": 2}
        for change in (
            {"text": ""},
            {"number": 11},
            {"number": "2"},
            {"whole": 1.5},
            {"choice": "blue"},
            {"yes": "yes"},
        ):
            content = right | change
            reply = await up.client.update(task_id, {"form": {"action": "accept", "content": content}})
            assert reply.code == -32602, change
            assert f"content.{next(iter(change))}" in reply.error["message"]
        assert up.dump() == before
        assert (await answered(up, task_id, {"form": {"action": "decline", "content": {"text": 5}}})) == "decline None"


async def test_a_url_is_asked_as_one_and_brings_no_content(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        for response, expected in (({"action": "accept"}, "accept None"), ({"action": "cancel"}, "cancel None")):
            task_id, requests = await asked(up, "url")
            params = requests["url"]["params"]
            assert (params["mode"], params["url"]) == ("url", "https://example.org/pay?id=1")
            assert "requestedSchema" not in params
            assert await answered(up, task_id, {"url": response}) == expected


async def test_a_sampling_request_goes_out_whole_and_its_answer_comes_back(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, requests = await asked(up, "sample")
        assert requests["poem"]["method"] == "sampling/createMessage"
        assert requests["poem"]["params"] == {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Please"}},
                {"role": "user", "content": {"type": "text", "text": "A poem"}},
            ],
            "systemPrompt": "Be brief",
            "temperature": 0.5,
            "maxTokens": 7,
        }
        for bad in (
            {},
            {"action": "accept"},
            POEM | {"model": None},
            POEM | {"role": "robot"},
            POEM | {"content": "x"},
        ):
            assert (await up.client.update(task_id, {"poem": bad})).code == -32602
        assert await answered(up, task_id, {"poem": POEM}) == "m endTurn"


async def test_sampling_with_tools_may_be_answered_with_a_tool_call(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, requests = await asked(up, "sample_tools")
        assert requests["poem"]["params"]["tools"][0]["name"] == "rhyme"
        assert await answered(up, task_id, {"poem": POEM | {"content": [USE]}}) == "CreateMessageResultWithTools"


async def test_roots_are_listed(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, requests = await asked(up, "roots")
        assert requests == {"roots": {"method": "roots/list"}}
        misfits: list[JSON] = [None, {}, {"roots": None}, {"roots": [{}]}, {"roots": [{"uri": 5}]}]
        for bad in misfits:
            assert (await up.client.update(task_id, {"roots": bad})).code == -32602
        roots: JSON = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}
        assert await answered(up, task_id, {"roots": roots}) == "file:///a file:///b"


async def test_all_kinds_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, requests = await asked(up, "everything")
        assert list(requests) == ["form", "url", "poem", "roots"]
        responses: JSON = {"roots": {"roots": []}, "poem": POEM, "url": {"action": "accept"}, "form": FORM}
        assert await answered(up, task_id, responses) == "form url poem roots"


# -- who may be asked what ---------------------------------------------------------------------------------------------

KINDS: list[tuple[str, JSON, JSON]] = [
    ("form", {"elicitation": {"url": {}}}, {"elicitation": {}}),
    ("form", NOTHING, {"elicitation": {}}),
    ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
    ("url", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
    ("sample", {"elicitation": {}, "roots": {}}, {"sampling": {}}),
    ("sample_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
    ("roots", {"sampling": {}}, {"roots": {}}),
]


async def test_a_kind_that_the_client_did_not_declare_is_never_surfaced_and_fails_the_task(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        for tool, declared, required in KINDS:
            task = await up.client.until(await up.client.start(tool, capabilities=declared | TASKS))
            assert (task["status"], task["error"]["code"]) == ("failed", -32021)
            assert task["error"]["data"] == {"requiredCapabilities": required}
            inline = await up.client.call(tool, capabilities=declared)
            assert inline.required == required


@pytest.mark.parametrize("elicitation", [{}, {"form": {}}, {"form": {}, "url": {}}])
async def test_an_empty_elicitation_capability_means_forms(tmp_path: Path, elicitation: JSON) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        capabilities: JSON = TASKS | {"elicitation": elicitation}
        _, requests = await asked(up, "form", capabilities)
        assert list(requests) == ["form"]


async def test_a_tool_may_go_on_without_what_the_client_can_not_give(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task = await up.client.until(await up.client.start("fallback", capabilities=TASKS))
        assert task["result"]["content"][0]["text"] == "no roots: -32021"


async def test_the_capabilities_that_count_are_those_of_the_creating_call(tmp_path: Path) -> None:
    """Declaring more later does not make the task ask more."""
    async with stage(tmp_path, Asking().declare) as up:
        task_id = await up.client.start("form", capabilities=TASKS)
        assert (await up.client.until(task_id, capabilities=EVERYTHING))["status"] == "failed"


async def test_a_poll_may_narrow_what_it_is_shown(tmp_path: Path) -> None:
    async with stage(tmp_path, Asking().declare) as up:
        task_id, everything = await asked(up, "everything")
        views: list[tuple[JSON, list[str]]] = [
            ({"elicitation": {}}, ["form"]),
            ({"elicitation": {"url": {}}}, ["url"]),
            ({"sampling": {}, "roots": {}}, ["poem", "roots"]),
            (INPUT, ["form", "url", "poem", "roots"]),
        ]
        for declared, shown in views:
            task = (await up.client.get(task_id, capabilities=declared | TASKS)).result
            assert list(task["inputRequests"]) == shown
        # Who can answer nothing sees a task that works: `input_required` promises questions.
        blind = (await up.client.get(task_id, capabilities=TASKS)).result
        assert (blind["status"], "inputRequests" in blind) == ("working", False)
        assert (await up.client.get(task_id)).result["inputRequests"] == everything


async def test_a_form_whose_model_is_not_flat_is_the_tools_error(tmp_path: Path) -> None:
    class Nested(BaseModel):
        form: Form

    async def tool(task: TaskContext) -> None:
        await task.elicit("form", "Nested?", Nested)

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        task = await up.client.finish("tool")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)


async def test_a_form_without_a_model_is_the_tools_error_and_says_what_it_takes(tmp_path: Path) -> None:
    wrong: list[Any] = [None, Form(ok=True), dict[str, str]]

    async def tool(task: TaskContext) -> None:
        for schema in wrong:
            with pytest.raises(TypeError, match="a pydantic model class, not"):
                await task.elicit("form", "Well?", schema)

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        assert (await up.client.finish("tool"))["result"]["isError"] is False


async def test_two_questions_under_one_key_fail_the_task_and_the_log_names_tool_and_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(task: TaskContext) -> None:
        for message in ("Who?", "Why?"):
            await task.elicit("form", message, Form)

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        task_id, _ = await asked(up, "tool")
        await up.client.update(task_id, {"form": FORM})
        task = await up.client.until(task_id)
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
            f"task {ids.abbreviated(task_id)}: Tool 'tool' asked a different question under the key 'form'"
        ]
        assert task_id not in caplog.text


async def test_keys_are_any_text_that_stores_can_hold(tmp_path: Path) -> None:
    keys = ["", " ", "😀", "a" * 200, "__proto__", "taskId", "\t"]

    async def tool(task: TaskContext) -> list[str]:
        return list(await task.ask({key: ListRoots() for key in keys}))

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        task_id, requests = await asked(up, "tool")
        assert list(requests) == keys
        await up.client.update(task_id, {key: {"roots": []} for key in keys})
        assert (await up.client.until(task_id))["result"]["structuredContent"] == {"result": keys}


@pytest.mark.parametrize("key", ["\ud800", "\0"], ids=["surrogate", "null"])
async def test_a_key_that_no_store_takes_is_the_tools_error_and_nothing_is_asked(tmp_path: Path, key: str) -> None:
    raised: list[str] = []

    async def tool(task: TaskContext) -> None:
        try:
            await task.ask({key: ListRoots()})
        except NotStorable as error:
            raised.append(str(error))
            raise

    async with stage(tmp_path, lambda tasks: tasks.tool()(tool) and None) as up:
        result = (await up.client.finish("tool"))["result"]
        assert result["isError"]
        assert raised[0] in result["content"][0]["text"]
        assert raised[0].startswith(f"The key of a question {key!r} can't be stored: ")
        assert dict(up.dump())["input"] == []
