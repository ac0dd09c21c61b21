"""Two servers with the usual tools, and a gateway before them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gateway.support import Front, fronting
from tests.wire.support import Client, Stage, stage
from tests.wire.tools import Tools


@dataclass
class Pair:
    """`front` stands before `one` and `two`, whose tools are `first` and `second`."""

    front: Front
    one: Stage
    two: Stage
    first: Tools
    second: Tools

    @property
    def client(self) -> Client:
        return self.front.client


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncGenerator[Pair]:
    first, second = Tools(), Tools()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with (
        stage(tmp_path / "one", first.declare) as one,
        stage(tmp_path / "two", second.declare) as two,
        fronting({"one": one.client.url, "two": two.client.url}) as front,
    ):
        yield Pair(front, one, two, first, second)
