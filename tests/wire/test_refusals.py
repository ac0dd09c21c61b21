"""What whoever runs a server reads of those that it refused."""

import hashlib
import logging
from pathlib import Path

import pytest

from perdure.domain.model import Owner
from perdure.wire.identity import ANONYMOUS
from perdure.wire.refusals import Refusals, Seldom, named
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


def test_a_line_says_whose_the_request_was_and_whose_most_of_those_without_a_line_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    refusals, ada, bob = Refusals(lambda: now), Owner("acme", "ada"), Owner("", "bob")
    for owner in (ada, bob, ada, bob, bob):
        refusals.note("full", owner)
    now = 60.0
    refusals.note("full", ada)
    acme = f"the owner {hashlib.sha256(b'ada').hexdigest()[:8]} in the tenant 'acme'"
    assert lines(caplog) == [
        f"a request of {acme} was refused: full",
        f"a request of {acme} was refused: full (and 4 since the last such line, 3 of them of {named(bob)})",
    ]


def test_no_line_has_a_principal_or_is_long_or_is_two() -> None:
    said = named(Owner("acme\nINFO " + "x" * 1_000, "ada@example.com"))
    assert "ada" not in said
    assert "\n" not in said
    assert len(said) < 150


def test_what_is_kept_between_two_lines_is_bounded() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    for number in range(3_000):
        seldom.due("full", f"owner {number}")
    assert sum(seldom.due(f"kind {number}") is not None for number in range(3_000)) == 100
    now = 60.0
    assert seldom.due("full") == " (and 2999 since the last such line)"
    assert seldom.due("kind 2999") == " (and 2900 since the last such line)"


async def test_a_call_that_finds_the_backlog_full_is_in_the_log(
    tmp_path: Path, tools: Tools, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.wire.errors._refusals", Refusals())
    caplog.set_level(logging.WARNING)
    async with stage(tmp_path, tools.declare, worker=False, backlog=1) as up:
        await up.client.start("hello", {"name": "Ada"})
        assert (await up.client.call("hello", {"name": "Ada"})).code == -32000
    assert lines(caplog) == [
        f"a request of {named(ANONYMOUS)} was refused: "
        "Too many tasks are waiting already: 1 is the limit for all (backlog)"
    ]
