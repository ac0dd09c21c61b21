"""The clock of an embedded store."""

import time

from hypothesis import given
from hypothesis import strategies as st

from perdure.store.clock import WallClock


def test_the_clock_counts_whole_milliseconds_since_the_epoch() -> None:
    assert WallClock(lambda: 1_800_000_000.1239)() == 1_800_000_000_123


def test_the_clock_is_the_machines_own_unless_told_otherwise() -> None:
    before = int(time.time() * 1000)
    now = WallClock()()
    assert before <= now <= time.time() * 1000


@given(st.lists(st.floats(0, 4e9), min_size=1))
def test_the_clock_never_runs_backwards(readings: list[float]) -> None:
    source = iter(readings)
    clock = WallClock(lambda: next(source))
    seen = [clock() for _ in readings]
    assert seen == sorted(seen)
    assert seen[-1] == int(max(readings) * 1000)
