"""The TypeScript SDK's own client listens to our server.

What that client knows of tasks: it sends what it is given as the filter, and hands every notification to whoever asked
for its method. It does not know handles (it refuses a `resultType` that is neither "complete" nor "input_required"),
and leaves `taskIds` out of the filter that it says was honored, so the script reads both off its transport.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import BaseModel

from perdure import TaskContext, Tasks
from tests import npm
from tests.wire.envelopes import JSON
from tests.wire.support import ROOT, Stage, stage

from .support import Script, running

CLIENT: Final = "@modelcontextprotocol/client@2.4.0"
SCRIPT: Final = Path(__file__).with_name("listen.mjs")
FOLDER: Final = ROOT / "build" / "interop"


class Approval(BaseModel):
    approved: bool


class Gates:
    """What the tool waits for, so that each state is seen before the next one comes."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.halfway = asyncio.Event()


def declare(tasks: Tasks, gates: Gates) -> None:
    @tasks.tool()
    async def publish(task: TaskContext) -> str:
        await gates.begun.wait()
        await task.report("half way")
        await gates.halfway.wait()
        answer = await task.elicit("approve", "Publish?", Approval)
        assert answer.data is not None
        return f"approved: {answer.data.approved}"


@asynccontextmanager
async def listening(scene: Stage, tool: str, log: Path) -> AsyncGenerator[Script]:
    """The client's process. It ends by itself, in order, once all is said."""
    modules = await asyncio.to_thread(npm.installed, FOLDER, CLIENT)
    async with running(modules, SCRIPT, scene.client.url, tool, log=log) as script:
        yield script


@pytest.mark.timeout(600)  # the first time, the packages are fetched
async def test_the_typescript_client_follows_a_task_to_its_end(tmp_path: Path) -> None:
    gates = Gates()
    async with (
        stage(tmp_path, lambda tasks: declare(tasks, gates)) as scene,
        listening(scene, "publish", tmp_path / "client.log") as client,
    ):
        task_id = (await client.until("handle"))["taskId"]
        acknowledged = await client.until("acknowledged")
        first = await client.until("snapshot")
        assert of_the_task(first) == of_the_task((await scene.client.get(task_id)).result)
        gates.begun.set()
        await client.until("snapshot", statusMessage="half way")
        gates.halfway.set()
        asked = await client.until("snapshot", status="input_required")
        task = await client.until("task")

    # The client hands notifications on a turn of the loop later than it settles this.
    assert client.all("closed") == ["graceful"]
    last = client.all("snapshot")[-1]
    assert last["status"] == "completed"
    assert acknowledged["notifications"] == {"taskIds": [task_id]}
    assert list(asked["inputRequests"]) == ["approve"]
    assert last["result"]["content"] == [{"type": "text", "text": "approved: True"}]
    assert of_the_task(last) == of_the_task(task)
    assert {each["_meta"][SUBSCRIPTION_ID_META_KEY] for each in [acknowledged, *client.all("snapshot")]} == {"listen:0"}
    assert not client.all("error")


@pytest.mark.timeout(600)
async def test_what_the_typescript_client_does_not_know_of_tasks_yet(tmp_path: Path) -> None:
    """Should a newer version know it, the script can be plainer, and so can `examples/listening.mjs` and its page."""
    gates = Gates()
    gates.begun.set()
    gates.halfway.set()
    async with (
        stage(tmp_path, lambda tasks: declare(tasks, gates)) as scene,
        listening(scene, "publish", tmp_path / "client.log") as client,
    ):
        await client.until("task")

    (refused,) = client.all("refused")
    assert refused == {"code": "UNSUPPORTED_RESULT_TYPE", "data": {"resultType": "task", "method": "tools/call"}}
    assert client.all("honored") == [{}]


def of_the_task(message: JSON) -> JSON:
    """What a message says of its task, without what it says of itself."""
    return {key: value for key, value in message.items() if key not in ("_meta", "resultType")}
