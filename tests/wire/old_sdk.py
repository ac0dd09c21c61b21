"""The client of `mcp` 1.x, which can't be installed beside the SDK that perdure runs on: an environment of its own.

It is made under `build/` by the first test that needs it, once for all processes and all later runs.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests import pypi
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON

OLD_SDK: Final = "mcp==1.30.0"
ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = ROOT / "build" / "old-sdk"
SCRIPT: Final = Path(__file__).with_name("old_client.py")


def interpreter() -> Path:
    """The Python that has the old SDK. Takes a quarter of a minute the first time, and nothing afterwards."""
    return pypi.environment(ENVIRONMENT, OLD_SDK)


def text(result: JSON) -> str:
    """The first text of a tool's result."""
    return result["content"][0]["text"]


class OldError(Exception):
    """The JSON-RPC error that a request came to."""

    def __init__(self, error: JSON) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]


class OldClient:
    """The old client, in its process. `asked` and `told`: what the server asked it and told it, in order."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.hello: JSON = None
        self.asked: list[JSON] = []
        self.told: list[JSON] = []
        self._waiting: dict[int, asyncio.Future[JSON]] = {}

    async def do(self, method: str, **arguments: JSON) -> JSON:
        """What the client's `method` returns.

        Raises:
            OldError: the server answered with an error.
        """
        waiting = self.expect(len(self._waiting))
        line = {"id": len(self._waiting) - 1, "do": method, "with": arguments}
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(line).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            return await waiting

    def expect(self, number: int) -> asyncio.Future[JSON]:
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    async def answer(self, answer: JSON) -> None:
        """Put an answer aside for the server's next question."""
        await self.do("answer", **answer)

    async def start(self, name: str, /, **arguments: JSON) -> str:
        """Call a tool as a task: its id."""
        made = await self.do("call_tool_as_task", name=name, arguments=arguments)
        return made["task"]["taskId"]

    async def until(self, task_id: str, status: str) -> JSON:
        """Poll until the task has the status: what `tasks/get` says then."""
        seen: list[JSON] = []

        async def has_it() -> bool:
            seen.append(await self.do("get_task", task_id=task_id))
            return seen[-1]["status"] == status

        await eventually(has_it, f"the task is not {status}")
        return seen[-1]

    async def read(self) -> None:
        """Take what the client says, until it says no more."""
        assert self.child.stdout is not None
        while raw := await self.child.stdout.readline():
            line: JSON = json.loads(raw)
            if "id" not in line:
                (self.asked if "asked" in line else self.told).append(line.get("asked", line.get("told")))
            elif "error" in line:
                self._waiting[line["id"]].set_exception(OldError(line["error"]))
            else:
                assert "result" in line, line
                self._waiting[line["id"]].set_result(line["result"])


@asynccontextmanager
async def old_client(**to: JSON) -> AsyncGenerator[OldClient]:
    """The old client, connected: `url=` and `token=`, `sse=` for the older transport, or the `command=` of a server.

    `silent=True`: it can answer no question.
    """
    python = await asyncio.to_thread(interpreter)
    child = await asyncio.create_subprocess_exec(
        python,
        *("-W", "ignore::DeprecationWarning"),  # it says so of its tasks
        "-I",  # or it would take our modules for its own
        SCRIPT,
        json.dumps(to),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    client = OldClient(child)
    hello = client.expect(0)
    reading = asyncio.create_task(client.read())
    try:
        await asyncio.wait({hello, reading}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert hello.done(), "the client is not connected"
        client.hello = await hello
        yield client
        assert child.stdin is not None
        child.stdin.close()
        async with asyncio.timeout(PATIENCE):
            assert await child.wait() == 0, "the client did not end well"
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        reading.cancel()
