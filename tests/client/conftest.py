"""A server over HTTP with the tools of the wire tests, which may be polled ten times a second."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure import Tasks
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools, is_large


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
async def scene(tmp_path: Path, tools: Tools) -> AsyncGenerator[Stage]:
    def declare(tasks: Tasks) -> None:
        for function in (tools.hello, tools.report, tools.say, tools.gated, tools.broken, tools.refuse):
            tasks.tool(poll_interval="100ms")(function)
        for function in (tools.ask, tools.ask_two, tools.ask_twice):
            tasks.tool(poll_interval="100ms")(function)
        tasks.tool(when=is_large)(tools.sized)

    async with stage(tmp_path, declare) as up:
        yield up
