"""The storm about gateways: its rules, each bent once, and a short one as a user has it."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.gateway.oracle import RULES, Evidence, Route, Row, judge
from chaos.gateway.told import Asked, Frame, Why
from tests import copies
from tests.chaos.test_storm import environment, left_behind

JSON = Any

TASK = "tsk_one"
NONE: JSON = {"code": -32602, "message": "Task not found"}
BUSY: JSON = {"code": -32000, "message": "busy", "data": {"gateway": True}}
CALL = Asked(
    "ada", "gateway-0", "tools/call", "ada-1", Why.OWN, 0, 1,
    result={"resultType": "task", "taskId": TASK, "status": "working"}, tool="ours_work", key=True,
)  # fmt: skip


def get(owner: str = "ada", why: Why = Why.OWN, *, error: JSON = None, **result: JSON) -> Asked:
    shown = {"taskId": TASK, "status": "working", **result} if error is None else None
    return Asked(owner, "gateway-1", "tasks/get", TASK, why, 2, 3, shown, error)


def completed(label: str = "ada-1") -> JSON:
    return {"status": "completed", "result": {"structuredContent": {"label": label}}}


LAWFUL = Evidence(
    (CALL, get(), get("eve", Why.STRANGER, error=NONE), get(error=BUSY), get(why=Why.LAST, **completed())),
    (Frame("ada", frozenset({TASK}), TASK, "working"),),
    frozenset(),
    {TASK: Route(TASK, '["https://login.example","chaos","ada"]', "ours", "theirs")},
    {"theirs": Row("theirs", '["https://login.example","chaos","ada"]', "ada-1", "completed")},
)


def broken(evidence: Evidence) -> set[str]:
    return {violation.rule for violation in judge(evidence)}


def told(*asked: Asked) -> set[str]:
    """What is broken if clients were told this too."""
    return broken(replace(LAWFUL, asked=(*LAWFUL.asked, *asked)))


def stored(**changed: JSON) -> set[str]:
    """What is broken if our backend has the task like this."""
    return broken(replace(LAWFUL, rows={"theirs": replace(LAWFUL.rows["theirs"], **changed)}))


def test_a_lawful_history_breaks_no_rule() -> None:
    assert not judge(LAWFUL)


UNREACHABLE, REACHED, CANCELLED, OWN, KEY, *_ = RULES


@pytest.mark.parametrize("asked", [get(error=NONE), get(why=Why.LAST, error=BUSY), get(why=Why.HUNG_UP, error=NONE)])
def test_a_task_that_its_owner_is_not_shown_is_found(asked: Asked) -> None:
    assert told(asked) == {UNREACHABLE}


def test_a_route_that_is_gone_is_found() -> None:
    assert broken(replace(LAWFUL, routes={})) == {UNREACHABLE}


@pytest.mark.parametrize("asked", [get("eve", Why.STRANGER), get("eve", Why.STRANGER, error={"code": -32603})])
def test_a_stranger_who_learns_of_a_task_is_found(asked: Asked) -> None:
    assert told(asked) == {REACHED}


@pytest.mark.parametrize(
    "frame",
    [
        Frame("eve", frozenset({TASK}), TASK, "acknowledged"),
        Frame("ada", frozenset(), TASK, "working"),
        Frame("ada", frozenset({TASK}), "theirs", "working"),
    ],
)
def test_a_stream_that_tells_too_much_is_found(frame: Frame) -> None:
    assert broken(replace(LAWFUL, frames=(frame,))) == {REACHED}


def test_a_task_that_nobody_cancelled_is_found_where_clients_see_it_and_where_it_lies() -> None:
    assert told(get(status="cancelled")) == {CANCELLED}
    assert stored(status="cancelled") == {CANCELLED}


def test_a_task_that_its_owner_cancelled_is_in_order() -> None:
    asked = (*LAWFUL.asked, get(status="cancelled"))
    rows: Mapping[str, Row] = {"theirs": replace(LAWFUL.rows["theirs"], status="cancelled")}
    assert not judge(replace(LAWFUL, asked=asked, rows=rows, cancelled=frozenset({TASK})))


def test_a_call_under_a_key_that_was_cancelled_before_it_had_a_route_is_found() -> None:
    lost = replace(CALL, about="ada-2", why=Why.HUNG_UP, result=None)
    rows = {**LAWFUL.rows, "lost": Row("lost", "", "ada-2", "cancelled")}
    assert broken(replace(LAWFUL, asked=(*LAWFUL.asked, lost), rows=rows)) == {CANCELLED}
    assert not judge(replace(LAWFUL, asked=(*LAWFUL.asked, replace(lost, key=False)), rows=rows))


def test_a_task_of_somebody_elses_behind_a_route_is_found() -> None:
    assert stored(label="bea-7") == {OWN}
    assert stored(principal='["https://login.example","chaos","bea"]') == {OWN}
    assert told(get(**completed("bea-7"))) == {OWN}
    assert told(replace(CALL, about="ada-9")) == {OWN}


def test_two_tasks_under_one_key_are_found() -> None:
    rows = {**LAWFUL.rows, "again": replace(LAWFUL.rows["theirs"], id="again")}
    assert broken(replace(LAWFUL, rows=rows)) == {KEY}


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first time, an environment is made; the storm itself takes less than 20 s
async def test_a_short_storm_about_gateways_finds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    where = ["--folder", str(tmp_path), "--keep", str(tmp_path / "kept")]
    command = [sys.executable, "-m", "chaos.gateway", *where, "--minutes", "0.04", "--faults", "3", "--seed", "3"]
    ended = await copies.ended(command, env=environment(tmp_path), within=500)
    assert ended.code == 0, ended.output + ended.errors
    assert "oracle: nothing found" in ended.output
    accepted = re.search(r"^tasks accepted +(\d+)", ended.output, re.MULTILINE)
    assert accepted is not None
    assert int(accepted[1]) > 0
    assert not list(left_behind(tmp_path))
    assert not (tmp_path / "kept").exists()
