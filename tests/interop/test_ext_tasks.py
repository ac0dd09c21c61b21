"""The tasks package of the TypeScript SDK calls our tools: polls, answers, fails, is told to stop, and comes back.

It knows handles and polls them, and leaves the HTTP request of each of its methods to its host, here the script.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from perdure import Elicit, TaskContext, Tasks
from tests import npm
from tests.wire.envelopes import JSON
from tests.wire.support import ROOT, Stage, stage

from .answers import Consent, Name
from .support import Script, running

PACKAGES: Final = ("@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/ext-tasks@0.2.2")
SCRIPT: Final = Path(__file__).with_name("ext_tasks.mjs")
FOLDER: Final = ROOT / "build" / "interop-tasks"

pytestmark = pytest.mark.timeout(600)  # the first time, the packages are fetched


class Tools:
    """`gate`: what `waits` waits for. `runs`: the tools that ran, again for each time."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.runs: list[str] = []

    def declare(self, tasks: Tasks) -> None:
        tasks.tool(poll_interval="50ms", when=lambda: False)(self.at_once)
        for function in (self.plain, self.asks, self.asks_two, self.wrong, self.breaks, self.waits):
            tasks.tool(poll_interval="50ms")(function)

    async def at_once(self) -> str:
        """Too small for a task."""
        return "at once"

    async def plain(self) -> dict[str, int]:
        return {"pages": 7}

    async def asks(self, task: TaskContext) -> str:
        answer = await task.elicit("who", "Who are you?", Name)
        assert answer.data is not None
        return f"Hello, {answer.data.name}!"

    async def asks_two(self, task: TaskContext) -> str:
        answers = await task.ask({"who": Elicit("Who are you?", Name), "sure": Elicit("Are you sure?", Consent)})
        again = await task.elicit("really", "Really?", Consent)
        return f"{answers['who'].data.name} {answers['sure'].data.confirm} {again.accepted}"

    async def wrong(self) -> str:
        raise ToolError("There is no paper.")

    async def breaks(self) -> str:
        raise MCPError(-32050, "The printer is on fire.", {"floor": 3})

    async def waits(self, task: TaskContext) -> str:
        self.runs.append("waits")
        await task.report("waiting")
        await self.gate.wait()
        return "done"


@asynccontextmanager
async def house(folder: Path, tools: Tools) -> AsyncGenerator[Stage]:
    async with stage(folder, tools.declare) as scene:
        yield scene


@asynccontextmanager
async def client(scene: Stage, folder: Path, *arguments: str) -> AsyncGenerator[Script]:
    modules = await asyncio.to_thread(npm.installed, FOLDER, *PACKAGES)
    async with running(modules, SCRIPT, scene.client.url, *arguments, log=folder / "client.log") as script:
        yield script


async def called(folder: Path, tool: str) -> Script:
    """Call a tool to its end: all that the client saw."""
    async with house(folder, Tools()) as scene, client(scene, folder, "call", tool) as script:
        await script.ends()
    assert not script.all("error")
    return script


def text(outcome: JSON) -> str:
    return outcome["result"]["content"][0]["text"]


async def test_what_is_no_task_is_answered_at_once(tmp_path: Path) -> None:
    said = await called(tmp_path, "at_once")
    assert said.all("kind") == ["immediate"]
    assert text(said.all("outcome")[0]) == "at once"


async def test_a_task_is_polled_to_its_result(tmp_path: Path) -> None:
    said = await called(tmp_path, "plain")
    assert said.all("kind") == ["task"]
    (outcome,) = said.all("outcome")
    assert outcome["status"] == "completed"
    assert outcome["result"]["structuredContent"] == {"pages": 7}


async def test_a_question_is_asked_and_answered(tmp_path: Path) -> None:
    said = await called(tmp_path, "asks")
    assert said.all("asked") == [{"inputId": "who", "delivery": "task-update", "message": "Who are you?"}]
    assert text(said.all("outcome")[0]) == "Hello, Ada!"


async def test_two_questions_at_once_and_a_third_are_each_asked_once(tmp_path: Path) -> None:
    said = await called(tmp_path, "asks_two")
    assert [each["inputId"] for each in said.all("asked")] == ["who", "sure", "really"]
    assert text(said.all("outcome")[0]) == "Ada True True"


async def test_a_tool_error_is_a_result_and_a_protocol_error_a_failure(tmp_path: Path) -> None:
    (wrong,) = (await called(tmp_path, "wrong")).all("outcome")
    assert wrong["status"] == "completed"
    assert wrong["result"]["isError"] is True
    assert "There is no paper." in text(wrong)
    (broken,) = (await called(tmp_path, "breaks")).all("outcome")
    assert broken["status"] == "failed"
    assert broken["error"] | {"name": ""} == {"name": "", "code": -32050, "message": "The printer is on fire."}


async def test_a_task_is_told_to_stop(tmp_path: Path) -> None:
    async with house(tmp_path, Tools()) as scene, client(scene, tmp_path, "call", "waits", "cancel:working") as script:
        await script.ends()
    assert [each["status"] for each in script.all("outcome")] == ["cancelled"]
    assert not script.all("error")


async def test_another_process_goes_on_with_a_task_and_the_tool_has_run_once(tmp_path: Path) -> None:
    tools = Tools()
    async with house(tmp_path, tools) as scene:
        async with client(scene, tmp_path, "call", "waits", "detach:working") as first:
            await first.ends()
        (reference,) = first.all("reference")
        assert first.all("left")
        async with client(scene, tmp_path, "resume", json.dumps(reference)) as second:
            await second.until("task", status="working")
            tools.gate.set()
    assert text(second.all("outcome")[0]) == "done"
    assert tools.runs == ["waits"]
