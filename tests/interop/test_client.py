"""Our client calls other people's servers as it calls ours: FastMCP's with its tasks, and a plain one without any."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from perdure import Elicit, TaskContext
from perdure import Tasks as ServerTasks
from perdure.client import HTTP, TaskCancelled, TaskFailed, TaskLost, Tasks
from perdure.store.sqlite import SQLiteStore
from tests import pypi
from tests.acceptance.support import accepts, free_port
from tests.client.support import text
from tests.interop.answers import Consent, Name
from tests.support import PATIENCE, eventually
from tests.wire.support import ROOT, serving, tasks_on

FASTMCP: Final = ("fastmcp==4.1.4", "fastmcp-tasks==4.1.4")
SCRIPT: Final = Path(__file__).with_name("fastmcp_server.py")
FOLDER: Final = ROOT / "build" / "fastmcp"

pytestmark = pytest.mark.timeout(600)  # the first time, an environment is made


# -- the servers, with the same tools ----------------------------------------------------------------------------------


async def at_once() -> str:
    return "at once"


async def plain(pages: int) -> dict[str, int]:
    return {"pages": pages}


async def wrong() -> str:
    raise ToolError("There is no paper.")


async def breaks() -> str:
    raise MCPError(-32050, "The printer is on fire.")


async def asks(task: TaskContext) -> str:
    answer = await task.elicit("who", "Who are you?", Name)
    assert answer.data is not None
    return f"Hello, {answer.data.name}!"


async def asks_two(task: TaskContext) -> str:
    answers = await task.ask({"who": Elicit("Who are you?", Name), "sure": Elicit("Are you sure?", Consent)})
    return f"{answers['who'].data.name} {answers['sure'].data.confirm}"


async def waits() -> str:
    await asyncio.sleep(600)
    return "done"


@asynccontextmanager
async def ours(folder: Path) -> AsyncGenerator[str]:
    tasks: ServerTasks = tasks_on(SQLiteStore(f"sqlite:///{folder / 'tasks.db'}"))
    mcp = tasks.server("ours")
    mcp.tool()(at_once)
    for function in (plain, wrong, breaks, asks, asks_two, waits):
        tasks.tool(poll_interval="50ms")(function)
    async with serving(mcp) as (_, url):
        yield url


@asynccontextmanager
async def fastmcp(folder: Path) -> AsyncGenerator[str]:
    python, port = await asyncio.to_thread(pypi.environment, FOLDER, *FASTMCP), free_port()
    with (folder / "fastmcp.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            python, SCRIPT, str(port), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            await eventually(lambda: accepts(port), "FastMCP listens")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()
            async with asyncio.timeout(PATIENCE):
                await server.wait()


@asynccontextmanager
async def without_tasks(folder: Path) -> AsyncGenerator[str]:
    mcp = MCPServer("plain")
    for function in (at_once, plain, wrong, breaks):
        mcp.tool()(function)
    async with serving(mcp) as (_, url):
        yield url


SERVERS: Final = {"ours": ours, "FastMCP": fastmcp, "without tasks": without_tasks}


# One server for several tests, since FastMCP's takes longer to start than all that is asked of it.
@pytest.fixture(scope="module", params=SERVERS)
async def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with SERVERS[request.param](tmp_path_factory.mktemp("any")) as found:
        yield found


@pytest.fixture(scope="module", params=["ours", "FastMCP"])
async def with_tasks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with SERVERS[request.param](tmp_path_factory.mktemp("tasks")) as found:
        yield found


# -- the client --------------------------------------------------------------------------------------------------------


class Person:
    """Fills in any form, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        answer: dict[str, Any] = {"name": "Ada", "confirm": True}
        return ElicitResult(
            action="accept", content={key: answer[key] for key in params.requested_schema["properties"]}
        )


@asynccontextmanager
async def client(url: str, tasks: Tasks, person: Person | None = None) -> AsyncGenerator[Client]:
    async with Client(HTTP(url), extensions=[tasks], elicitation_callback=person or Person()) as connected:
        yield connected


async def call(url: str, tool: str, arguments: Mapping[str, Any] | None = None) -> tuple[CallToolResult, list[str]]:
    """The result, as `call_tool` has it, and what the person was asked on the way."""
    person = Person()
    async with client(url, Tasks(), person) as connected, asyncio.timeout(PATIENCE):
        return await connected.call_tool(tool, dict(arguments or {})), person.asked


async def test_a_call_has_its_result_whether_it_became_a_task_or_not(url: str) -> None:
    result, _ = await call(url, "plain", {"pages": 7})
    assert result.structured_content == {"pages": 7}
    result, _ = await call(url, "at_once")
    assert text(result) == "at once"


async def test_a_tool_error_is_a_result(url: str) -> None:
    result, _ = await call(url, "wrong")
    assert result.is_error
    assert "There is no paper." in text(result)


async def test_a_protocol_error_of_a_call_that_was_no_task_is_raised_as_it_came(tmp_path: Path) -> None:
    async with without_tasks(tmp_path) as url, client(url, Tasks()) as connected:
        with pytest.raises(MCPError) as caught:
            await connected.call_tool("breaks", {})
    assert caught.value.code == -32050


async def test_a_protocol_error_of_a_task_says_what_the_server_said(with_tasks: str) -> None:
    async with client(with_tasks, Tasks()) as connected:
        with pytest.raises(TaskFailed) as caught:
            await connected.call_tool("breaks", {}, PATIENCE)
    assert (caught.value.error.code, caught.value.error.message) == (-32050, "The printer is on fire.")


async def test_questions_are_answered_each_once(with_tasks: str) -> None:
    result, asked = await call(with_tasks, "asks")
    assert (text(result), asked) == ("Hello, Ada!", ["Who are you?"])
    result, asked = await call(with_tasks, "asks_two")
    assert text(result) == "Ada True"
    assert sorted(asked) == ["Are you sure?", "Who are you?"]


async def test_a_task_is_cancelled(with_tasks: str) -> None:
    tasks = Tasks()
    async with client(with_tasks, tasks) as connected, asyncio.timeout(PATIENCE):
        handle = await tasks.start(connected, "waits")
        assert (await handle.status()).status == "working"
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()


async def test_another_process_goes_on_with_a_task(with_tasks: str, tmp_path: Path) -> None:
    """Another connection and another journal object, as after a restart."""
    first, second, person = Tasks(tmp_path / "journal.db"), Tasks(tmp_path / "journal.db"), Person()
    async with client(with_tasks, first, person) as connected:
        made = await first.start(connected, "asks")
    async with client(with_tasks, second, person) as connected, asyncio.timeout(PATIENCE):
        (handle,) = (await second.resume_all(connected)).handles
        assert (handle.id, handle.tool) == (made.id, "asks")
        assert text(await handle.result()) == "Hello, Ada!"
    assert person.asked == ["Who are you?"]


async def test_a_task_that_nobody_knows_is_lost(with_tasks: str) -> None:
    tasks = Tasks()
    async with client(with_tasks, tasks) as connected:
        handle = await tasks.resume(connected, "tsk_" + "a" * 32)
        with pytest.raises(TaskLost):
            await handle.result(PATIENCE)
