"""The plan is the seed's."""

import random
from collections import Counter

from chaos.plan import FARTHEST, FLEET, Kind, Share, plan


def drawn(rng: random.Random, lease: float) -> tuple[float, float]:
    """As a store draws a fault of its own."""
    return lease + rng.random(), rng.random()


KINDS = {**FLEET, "a fault of the store's": Share(2, drawn)}


def test_the_same_seed_makes_the_same_plan() -> None:
    one, two, other = (plan(random.Random(seed), 200, 600, 3, 2, KINDS) for seed in (1, 1, 2))
    assert one == two != other


def test_every_kind_is_in_a_plan_and_the_clock_stays_near() -> None:
    faults = plan(random.Random(3), 200, 600, 3, 2, KINDS)
    assert len(faults) == 200
    assert set(Counter(fault.kind for fault in faults)) == set(KINDS)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    offset = 0.0
    for fault in faults:
        if fault.kind in (Kind.FORWARD, Kind.BACK):
            assert (fault.size > 0) == (fault.kind == Kind.FORWARD)
            offset += fault.size
            assert abs(offset) < 7 * FARTHEST


def test_a_store_says_how_long_its_faults_last() -> None:
    faults = [fault for fault in plan(random.Random(3), 200, 600, 3, 2, KINDS) if fault.kind not in FLEET]
    assert faults
    assert all(2 <= fault.span < 3 for fault in faults)


def test_a_short_plan_has_as_many_faults_as_it_was_told() -> None:
    assert len(plan(random.Random(4), 3, 5, 3, 2, KINDS)) == 3
