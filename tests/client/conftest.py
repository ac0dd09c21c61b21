"""A server over HTTP with the tools of the wire tests."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.wire.support import Stage, stage
from tests.wire.tools import Tools


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
async def scene(tmp_path: Path, tools: Tools) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, tools.declare) as up:
        yield up
