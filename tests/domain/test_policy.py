"""The arithmetic of time."""

import math
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import InvalidDuration, PerdureError
from perdure.domain.policy import (
    Duration,
    due_at_once,
    expires_at,
    extended_ttl,
    is_timer,
    milliseconds,
    renew_every,
)

A_THOUSAND_YEARS = 1000 * 366 * 86_400_000


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5s", 1_500),
        (" 3 s ", 3_000),
        ("500 milliseconds", 500),
        ("10 seconds", 10_000),
        ("1 minute", 60_000),
        ("1.5 hours", 5_400_000),
        ("3 days", 259_200_000),
        ("1day", 86_400_000),
        (" 2  weeks ", 1_209_600_000),
        (30, 30_000),
        (0.25, 250),
        (timedelta(minutes=1, milliseconds=1), 60_001),
        (timedelta(microseconds=1_500), 2),
        ("1ms", 1),
        ("366000d", A_THOUSAND_YEARS),
    ],
)
def test_a_duration_is_read_in_whole_milliseconds(duration: Duration, expected: int) -> None:
    assert milliseconds(duration) == expected


@given(st.integers(1, 10_000_000))
def test_milliseconds_written_as_seconds_come_back_exactly(ms: int) -> None:
    assert milliseconds(ms / 1000) == milliseconds(f"{ms}ms") == milliseconds(timedelta(milliseconds=ms)) == ms


@pytest.mark.parametrize(
    "duration",
    [
        0, 0.0, "0s", "0ms", "0.5ms", timedelta(0),
        -1, -0.5, timedelta(seconds=-1),
        math.nan, math.inf, -math.inf,
        0.0009, timedelta(microseconds=999),
        "366001d", A_THOUSAND_YEARS, 10**400, 1e300, "9" * 400 + "w", timedelta.max,
    ],
)  # fmt: skip
def test_what_is_not_positive_or_not_finite_or_out_of_range_is_refused(duration: Duration) -> None:
    with pytest.raises(InvalidDuration, match="must be positive, at least 1 ms and at most 1000 years"):
        milliseconds(duration)


@pytest.mark.parametrize(
    "duration",
    [
        "",
        "s",
        "15",
        "m15",
        "15 parsecs",
        "-3s",
        "1e3s",
        "1h30m",
        "15M",
        "1,5s",
        "٣s",
        ".5s",
        "nan",
        "\0",
        True,
        False,
        "days",
        "3 Days",
        "3 day s",
        "3 dayss",
        "3 mins",
        "1 day 2 hours",
        "three days",
    ],
)
def test_what_can_not_be_read_is_refused_with_an_example_of_what_can(duration: Duration) -> None:
    with pytest.raises(InvalidDuration, match=r"is no duration; write for example '500ms'.*'3 days'"):
        milliseconds(duration)


@pytest.mark.parametrize("thing", [None, [], [30], {}, b"30s", object, 1j])
def test_what_is_no_duration_by_its_type_is_refused_just_as_well(thing: object) -> None:
    with pytest.raises(InvalidDuration, match=r"is no duration; write for example '500ms'.*'3 days'"):
        milliseconds(cast("Duration", thing))


@pytest.mark.parametrize("moment", [datetime(2027, 1, 15, tzinfo=UTC), date(2027, 1, 15), time(8)])
def test_a_moment_is_no_duration_and_says_how_to_come_by_one(moment: object) -> None:
    with pytest.raises(InvalidDuration, match=r"^sleep: .* is no duration; write how long.* in a step"):
        milliseconds(cast("Duration", moment), what="sleep")


def test_the_message_begins_with_what_the_duration_is_for() -> None:
    with pytest.raises(InvalidDuration, match=r"^ttl of tool 'report': 0 must"):
        milliseconds(0, what="ttl of tool 'report'")


def test_an_invalid_duration_is_both_one_of_ours_and_a_value_error() -> None:
    assert issubclass(InvalidDuration, PerdureError)
    assert issubclass(InvalidDuration, ValueError)


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.timedeltas())
def test_whatever_comes_it_is_a_positive_number_or_refused(duration: Duration) -> None:
    with suppress(InvalidDuration):
        assert 1 <= milliseconds(duration) <= A_THOUSAND_YEARS


TODAY, FAR_AHEAD = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000) for year in (2026, 2900))


@given(st.integers(TODAY, FAR_AHEAD), st.integers(TODAY, FAR_AHEAD))
def test_what_is_due_at_once_keeps_its_order_and_is_past_on_every_clock(one: int, other: int) -> None:
    assert due_at_once(one) < TODAY
    assert (due_at_once(one) < due_at_once(other)) == (one < other)


@given(st.integers(TODAY, FAR_AHEAD), st.integers(0, A_THOUSAND_YEARS))
def test_what_is_due_at_once_is_never_taken_for_a_timer_nor_a_timer_for_it(now: int, wait: int) -> None:
    assert not is_timer(due_at_once(now))
    assert is_timer(now + wait)


def test_the_ttl_counts_from_creation() -> None:
    assert expires_at(1_000, 500) == 1_500


def test_a_task_without_ttl_never_expires() -> None:
    assert expires_at(1_000, None) is None


@pytest.mark.parametrize(
    ("ttl_ms", "keep_ms", "expected"),
    [
        (None, None, None),
        (None, 5_000, None),
        (1_000, None, 1_000),
        (1_000, 5_000, 5_800),
        (10_000, 5_000, 10_000),
        (5_800, 5_000, 5_800),
    ],
)
def test_keeping_a_result_extends_the_ttl_and_never_shortens_it(
    ttl_ms: int | None, keep_ms: int | None, expected: int | None
) -> None:
    assert extended_ttl(ttl_ms, keep_ms, created_at=200, finished_at=1_000) == expected


@given(st.integers(1, 10**9))
def test_two_renewals_may_fail_before_a_lease_lapses(lease_ms: int) -> None:
    every = renew_every(lease_ms)
    assert every >= 1
    assert 3 * every <= max(lease_ms, 3)
