"""The fuzzer works: each target runs, a seed makes the same run again, and faults that are put there are found."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import cast

import pytest
from hypothesis import strategies as st

from fuzz import ground, rig
from fuzz.cellar import Cellar, cellar
from fuzz.damage import Damage
from fuzz.oracle import Found
from fuzz.people import ADA, task_id
from fuzz.scene import Scene, scene
from fuzz.search import search
from fuzz.targets import TARGETS, Target
from fuzz.targets.base import Needs
from fuzz.targets.lawful import send
from perdure.domain.model import Owner, Task
from perdure.store.sqlite import SQLiteStore
from tests.wire.envelopes import envelope

FAULTY = "tests.fuzz.faulty:mcp"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ground.make(tmp_path_factory.mktemp("ground"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("faulty"), store, app=FAULTY) as up:
        yield up


def asked(faulty: Scene, name: str) -> str:
    """The rule that asking for a task of that name breaks."""
    with pytest.raises(Found) as found:
        send(faulty, envelope("tasks/get", {"taskId": name}))
    return found.value.rule


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)  # three servers, on a machine that others use
def test_each_target_runs_and_finds_nothing(tmp_path: Path, store: Path) -> None:
    report = rig.run(rig.Settings(seed=1, round=0, count=6, keep=tmp_path / "kept"), ground=store)
    assert not report.findings, "\n".join(map(str, report.findings))
    assert set(report.cases) == set(TARGETS)
    assert min(report.cases.values()) >= 6
    assert not (tmp_path / "kept").exists()


def test_what_is_found_is_said_and_kept_with_how_to_find_it_again(tmp_path: Path, store: Path) -> None:
    told = rig.Settings(seed=7, round=3, count=30, targets=["lawful"], keep=tmp_path, app=FAULTY)
    said: list[str] = []
    assert rig.run(told, said.append, store).findings
    (kept,) = map(json.loads, (path.read_text() for path in tmp_path.iterdir()))
    assert kept["again"] == "python -m fuzz --seed 7 --target lawful --round 3"
    assert kept["rule"] == "no internals leave the server"
    assert "tasks/cancel" in kept["sent"]
    assert kept["case"] in said[0]


def test_a_target_that_remembers_begins_where_no_other_has_been(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what another target did would be held against it."""
    seen: list[Cellar] = []
    for name, fresh in (("one", False), ("two", False), ("three", True)):
        target = Target(name, Needs.FILE, st.just(0), lambda subject, _: seen.append(subject), count=1, fresh=fresh)
        monkeypatch.setitem(cast("dict[str, Target]", TARGETS), name, target)
    rig.run(rig.Settings(round=0, targets=["one", "two", "three"], keep=tmp_path), ground=store)
    one, two, three = seen
    assert one is two
    assert two is not three


def test_what_is_found_is_made_small_and_a_seed_finds_the_same_again() -> None:
    tried: list[list[int]] = [[], []]

    def check(seen: list[int], case: int) -> None:
        seen.append(case)
        if case > 1000:
            raise Found("small", case)

    for seen in tried:
        _, failure = search(st.integers(0), partial(check, seen), seed=3, count=50, until=inf)
        assert failure is not None
        assert failure.case == 1001
    assert tried[0] == tried[1]


def test_a_search_ends_when_its_time_is_over() -> None:
    assert search(st.integers(), print, seed=3, count=50, until=0) == (0, None)


# -- faults that are put there -----------------------------------------------------------------------------------------


def test_a_trace_in_an_answer_is_found(faulty: Scene) -> None:
    assert asked(faulty, "leak") == "no internals leave the server"


def test_what_is_another_persons_is_found(faulty: Scene) -> None:
    assert asked(faulty, "foreign") == "nobody reads what is another's"


def test_a_refused_request_that_writes_is_found_and_undone(faulty: Scene) -> None:
    for _ in range(2):
        assert asked(faulty, "write") == "a refused request changes nothing"
    assert send(faulty, envelope("tasks/get", {"taskId": task_id(ADA, "waiting")}))["result"]["status"] == "working"


def test_a_question_that_writes_is_found(faulty: Scene) -> None:
    assert asked(faulty, task_id(ADA, "large")) == "a request that asks changes nothing"


def test_a_complaint_in_the_log_is_found_once(faulty: Scene) -> None:
    assert asked(faulty, "log") == "the server has nothing to complain about"
    assert send(faulty, envelope("tasks/get", {"taskId": "nothing"}))["error"]["code"] == -32602


def test_an_answer_that_does_not_come_is_found(faulty: Scene) -> None:
    faulty.within = 0.5
    assert asked(faulty, "hang") == "every request is answered"
    faulty.within = 10


def test_a_process_that_dies_is_found(tmp_path: Path, store: Path) -> None:
    with scene(tmp_path, store, app=FAULTY) as up:
        assert asked(up, "die") == "the server stays up"


class Liar(SQLiteStore):
    """Serves one flipped bit in a text."""

    async def get(self, owner: Owner, task_id: str) -> Task:
        task = await super().get(owner, task_id)
        return replace(task, poll_ms=(task.poll_ms or 0) ^ 1)


class Bare(SQLiteStore):
    """Says what is wrong in words of its own."""

    async def get(self, owner: Owner, task_id: str) -> Task:
        raise sqlite3.DatabaseError("database disk image is malformed")


class Slow(SQLiteStore):
    """Never comes to an end."""

    async def get(self, owner: Owner, task_id: str) -> Task:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("store_class", "rule"),
    [
        (Liar, "nothing is silently served wrong"),
        (Bare, "a verb answers, or says that the store is away"),
        (Slow, "a verb comes to its end"),
    ],
)
def test_a_store_that_serves_what_is_wrong_is_found(
    tmp_path: Path, store: Path, store_class: type[SQLiteStore], rule: str
) -> None:
    harmless = Damage("longer", 0, 0, hot=False)
    with cellar(tmp_path, store) as below:
        below.check(harmless)
        if store_class is Slow:
            below.within = 0.2
        below.opens = store_class
        with pytest.raises(Found) as found:
            below.check(harmless)
    assert found.value.rule == rule
