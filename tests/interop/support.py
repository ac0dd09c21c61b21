"""Programs in Node.js that print what they come to see, each as one line of JSON with a single member."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests import npm
from tests.support import PATIENCE
from tests.wire.envelopes import JSON

__all__ = ["Script", "running"]


class Script:
    """A program, as it runs. `said`: what was read of it, each with its name."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self.said: list[tuple[str, JSON]] = []

    async def until(self, what: str, **members: JSON) -> JSON:
        """The next thing of that name it says, which has these members."""
        async with asyncio.timeout(PATIENCE):
            while await self._reads():
                name, value = self.said[-1]
                if name == what and all(value.get(key) == wanted for key, wanted in members.items()):
                    return value
        raise AssertionError(f"no {what} {members}: {self.said}")

    async def ends(self) -> None:
        """Read all that it says, and wait for its end, which has to be in order."""
        async with asyncio.timeout(PATIENCE):
            while await self._reads():
                pass
            assert await self._child.wait() == 0, self.said

    def all(self, what: str) -> list[JSON]:
        """Everything of that name that it said."""
        return [value for name, value in self.said if name == what]

    async def _reads(self) -> bool:
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if line:
            self.said.extend(json.loads(line).items())
        return bool(line)


@asynccontextmanager
async def running(modules: Path, script: Path, *arguments: str, log: Path) -> AsyncGenerator[Script]:
    """`node SCRIPT MODULES ARGUMENTS`. Left in order, it is read to its end; what it complains of stands in `log`."""
    with log.open("ab") as errors:
        child = await asyncio.create_subprocess_exec(
            npm.node_of(modules),
            script,
            modules,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        program = Script(child)
        try:
            yield program
            await program.ends()
        except BaseException:
            print(log.read_text())  # noqa: ASYNC240 - it is short
            raise
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
