"""The clients under examples/ as the processes that they are: started, read, and never left behind."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.copies import Copy, talking
from tests.support import PATIENCE

__all__ = ["Running", "printed", "started"]


class Running:
    """A client as it runs. `lines`: what was read of its output and its errors, which are one pipe."""

    def __init__(self, process: asyncio.subprocess.Process | Copy) -> None:
        self._process = process
        self.lines: list[str] = []

    async def until(self, text: str) -> None:
        """Read up to a line that begins so."""
        while await self._line():
            if self.lines[-1].startswith(text):
                return
        raise AssertionError(f"no line begins with {text!r}: {self.lines}")

    async def ends(self, code: int = 0) -> list[str]:
        """Read to the end, which has to be with that exit code: all that it said."""
        while await self._line():
            pass
        async with asyncio.timeout(PATIENCE):
            assert await self._process.wait() == code, self.lines
        return self.lines

    async def _line(self) -> bool:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            raw = await self._process.stdout.readline()
        if raw:
            self.lines.append(raw.decode().rstrip())
        return bool(raw)


@asynccontextmanager
async def started(*command: str | Path) -> AsyncGenerator[Running]:
    """It is killed at the end, unless it has ended. One in our Python is a copy."""
    if command[0] == sys.executable:
        async with talking(command, errors=subprocess.STDOUT) as copy:
            yield Running(copy)
        return
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def printed(*command: str | Path, code: int = 0) -> str:
    """All that a client prints until it exits with that code."""
    async with started(*command) as client:
        return "\n".join(await client.ends(code))
