"""The plan is the seed's, and what the machine can't do is said and not left out in silence."""

import random
from collections import Counter
from pathlib import Path

import pytest

from chaos import interposer
from chaos.disk import disk
from chaos.faults import Kind, plan, possible
from chaos.interposer import interposed


def test_the_same_seed_makes_the_same_plan() -> None:
    one, two, other = (plan(random.Random(seed), 200, 600, 3, 2, list(Kind)) for seed in (1, 1, 2))
    assert one == two != other


def test_every_kind_is_in_a_plan_and_the_clock_stays_near() -> None:
    faults = plan(random.Random(3), 200, 600, 3, 2, list(Kind))
    assert len(faults) == 200
    assert set(Counter(fault.kind for fault in faults)) == set(Kind)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    offset = 0.0
    for fault in faults:
        if fault.kind in (Kind.FORWARD, Kind.BACK):
            assert (fault.size > 0) == (fault.kind is Kind.FORWARD)
            offset += fault.size
            assert abs(offset) < 200


def test_a_short_plan_has_as_many_faults_as_it_was_told() -> None:
    assert len(plan(random.Random(4), 3, 5, 3, 2, list(Kind))) == 3


def test_without_a_compiler_the_faults_that_need_one_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(program: str) -> None:
        """As `shutil.which` on a machine that has nothing."""

    monkeypatch.setattr(interposer.shutil, "which", nowhere)
    with interposed(tmp_path) as nothing, disk(tmp_path, nothing, mount=False) as ground:
        kinds, missing = possible(nothing, ground)
    assert set(missing) == {Kind.FORWARD, Kind.BACK, Kind.SLOW, Kind.BROKEN, Kind.FULL}
    assert set(missing.values()) == {"there is no gcc"}
    assert set(kinds) == set(Kind) - set(missing)
