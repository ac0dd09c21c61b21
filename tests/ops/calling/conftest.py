"""A server in the test's own event loop, and somebody at a terminal in front of it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure import Tasks
from perdure.ops.calling.desk import Desk
from tests.client.spy import Spy
from tests.ops.calling import letters
from tests.ops.calling.commands import Held
from tests.ops.calling.terminal import Terminal, in_front
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def scene(tmp_path: Path, tools: Tools, spy: Spy, held: Held) -> AsyncGenerator[Stage]:
    def declare(tasks: Tasks) -> None:
        tools.declare(tasks)
        letters.declare(tasks)

    async with stage(tmp_path, declare, server={"middleware": [spy, held]}) as up:
        yield up


@pytest.fixture
async def seat(tmp_path: Path) -> AsyncGenerator[tuple[Desk, Terminal]]:
    async with in_front(tmp_path) as both:
        yield both
