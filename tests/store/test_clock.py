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


EIGHTHS = st.integers(0, 32_000_000_000).map(lambda n: n * 125)
"""Milliseconds that are exact also as seconds in a float."""


@given(st.lists(EIGHTHS, min_size=1))
def test_the_clock_stands_still_over_a_small_step_back_and_follows_a_large_one(readings: list[int]) -> None:
    source = iter(readings)
    clock = WallClock(lambda: next(source) / 1000)
    latest = 0
    for reading in readings:
        now = clock()
        assert now == (latest if reading < latest <= reading + 1000 else reading)
        latest = now


def test_a_clock_that_was_a_day_ahead_once_does_not_freeze_for_a_day() -> None:
    source = iter([1_000.0, 1_000.0 + 86_400, 1_000.1, 1_000.2])
    clock = WallClock(lambda: next(source))
    assert [clock() for _ in range(4)] == [1_000_000, 87_400_000, 1_000_100, 1_000_200]
