"""What whoever runs a server reads of those that it refused."""

import logging
from pathlib import Path

import pytest

from perdure.wire.refusals import Refusals
from tests.wire.support import stage
from tests.wire.tools import Tools


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "perdure.wire.refusals"]


def test_of_each_kind_there_is_one_line_a_minute_and_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    for why in ("full", "full", "often", "full"):
        refusals.note(why)
    assert lines(caplog) == ["a request was refused: full", "a request was refused: often"]
    now = 59.9
    refusals.note("full")
    now = 60.0
    refusals.note("full")
    now = 200.0
    refusals.note("full")
    assert lines(caplog)[2:] == [
        "a request was refused: full (and 3 since the last such line)",
        "a request was refused: full",
    ]


async def test_a_call_that_finds_the_backlog_full_is_in_the_log(
    tmp_path: Path, tools: Tools, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.wire.errors._refusals", Refusals())
    caplog.set_level(logging.WARNING)
    async with stage(tmp_path, tools.declare, worker=False, backlog=1) as up:
        await up.client.start("hello", {"name": "Ada"})
        assert (await up.client.call("hello", {"name": "Ada"})).code == -32000
    assert lines(caplog) == ["a request was refused: Too many tasks are waiting already"]
