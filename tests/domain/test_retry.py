"""When to try again, and after how long."""

import math
import sys
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import ConfigurationError, InvalidDuration
from perdure.domain.policy import milliseconds
from perdure.domain.retry import NEVER, Retry

BROKEN = ConnectionError("refused")

spans = st.integers(1, 10**13).map(lambda ms: f"{ms}ms")
factors = st.floats(1, sys.float_info.max) | st.integers(1, 10**400).map(lambda factor: cast("float", factor))
shares = st.floats(0, 1)
chances = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    Retry,
    max_attempts=st.integers(1, 1000),
    backoff=spans,
    factor=factors | st.floats(1, 3),
    longest=spans,
    jitter=shares,
)

# -- how long ----------------------------------------------------------------------------------------------------------


@given(policies, st.integers(1, 2000), chances)
def test_a_wait_is_at_least_a_millisecond_and_at_most_the_longest(retry: Retry, attempt: int, chance: float) -> None:
    wait = retry.next_delay(BROKEN, attempt, chance)
    assert (wait is None) == (attempt >= retry.max_attempts)
    assert wait is None or 1 <= wait <= milliseconds(retry.longest)


@given(policies, st.integers(1, 998), chances)
def test_jitter_takes_its_share_of_the_wait_and_no_more(retry: Retry, attempt: int, chance: float) -> None:
    wait = retry.next_delay(BROKEN, attempt, chance)
    whole = retry.next_delay(BROKEN, attempt, 0.0)
    if wait is not None and whole is not None:
        assert max(1, math.floor(whole * (1 - retry.jitter))) - 1 <= wait <= whole


@given(policies, chances)
def test_waits_only_grow_as_attempts_go_by(retry: Retry, chance: float) -> None:
    waits = [retry.next_delay(BROKEN, attempt, chance) for attempt in range(1, min(retry.max_attempts, 80))]
    numbers = [wait for wait in waits if wait is not None]
    assert len(numbers) == len(waits)
    assert numbers == sorted(numbers)


@given(policies, st.integers(1, 998))
def test_without_jitter_chance_decides_nothing(retry: Retry, attempt: int) -> None:
    sure = Retry(retry.max_attempts, retry.backoff, retry.factor, retry.longest, jitter=0)
    assert sure.next_delay(BROKEN, attempt, 0.0) == sure.next_delay(BROKEN, attempt, 0.999)


def test_each_wait_is_the_one_before_times_the_factor_up_to_the_longest() -> None:
    retry = Retry(max_attempts=8, backoff="1s", factor=3, longest="1m", jitter=0)
    waits = [retry.next_delay(BROKEN, attempt, 0.0) for attempt in range(1, 8)]
    assert waits == [1_000, 3_000, 9_000, 27_000, 60_000, 60_000, 60_000]


def test_a_small_factor_goes_on_counting_as_long_as_the_longest_wait_is_not_reached() -> None:
    retry = Retry(max_attempts=1000, backoff="1s", factor=1.01, longest="1h", jitter=0)
    waits = [retry.next_delay(BROKEN, attempt, 0.0) or 0 for attempt in (1, 101, 201, 999)]
    assert waits == [1_000, 2_704, 7_316, 3_600_000]


def test_the_longest_wait_bounds_the_first_one_too() -> None:
    assert Retry(backoff="1h", longest="1s", jitter=0).next_delay(BROKEN, 1, 0.0) == 1_000


def test_with_half_a_jitter_a_wait_of_ten_seconds_is_five_to_ten() -> None:
    retry = Retry(backoff="10s", jitter=0.5)
    assert [retry.next_delay(BROKEN, 1, chance) for chance in (0.0, 0.5, 0.999999)] == [10_000, 7_500, 5_000]


@pytest.mark.parametrize("factor", [sys.float_info.max, 1e200, 10**308, 10**400, 10**4000])
@pytest.mark.parametrize("attempt", [2, 3, 999])
def test_a_factor_past_every_float_makes_the_longest_wait_and_no_error(factor: float, attempt: int) -> None:
    retry = Retry(max_attempts=1000, backoff="1000s", factor=factor, longest="7d", jitter=0)
    assert retry.next_delay(BROKEN, attempt, 0.0) == 604_800_000


# -- how often, and after what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 1000])
def test_there_is_no_attempt_after_the_last(max_attempts: int) -> None:
    retry = Retry(max_attempts=max_attempts)
    more = [attempt for attempt in range(1, max_attempts + 5) if retry.next_delay(BROKEN, attempt, 0.5) is not None]
    assert more == list(range(1, max_attempts))


@given(st.integers(1, 10**9), chances)
def test_never_is_never(attempt: int, chance: float) -> None:
    assert NEVER.next_delay(BROKEN, attempt, chance) is None


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError()])
def test_an_error_of_a_kind_that_is_worth_it_is_tried_again(error: Exception) -> None:
    assert Retry(on=(ConnectionError, TimeoutError)).next_delay(error, 1, 0.0) is not None


@pytest.mark.parametrize("error", [ValueError(), Exception(), KeyboardInterrupt()])
def test_an_error_of_another_kind_ends_the_work(error: BaseException) -> None:
    assert Retry(on=(ConnectionError, TimeoutError)).next_delay(error, 1, 0.0) is None


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_what_is_no_error_is_not_tried_again_by_any_policy(stop: BaseException) -> None:
    assert Retry().next_delay(stop, 1, 0.0) is None


# -- what is no policy -------------------------------------------------------------------------------------------------

NONSENSE: list[tuple[str, str, list[object]]] = [
    (
        "max_attempts",
        "must be a whole number, 1 to 1000: a retry has to end",
        [0, -1, 1001, 10**30, 2.0, math.nan, math.inf, True, "3", None],
    ),
    ("factor", "must be a number of at least 1", [0, 0.99, -2, math.nan, math.inf, True, "2", None, 2j]),
    ("jitter", "must be a number, 0 to 1", [-0.1, 1.1, 50, math.nan, math.inf, True, False, "0.5", None]),
    (
        "on",
        "must be a tuple of kinds of exception, for example",
        [ValueError, [ValueError], (KeyboardInterrupt,), (BaseException,), (ValueError("x"),), ("ValueError",), None],
    ),
]


@pytest.mark.parametrize(
    ("name", "sentence", "value"), [(name, sentence, value) for name, sentence, values in NONSENSE for value in values]
)
def test_a_value_that_makes_no_policy_is_refused_with_a_sentence(name: str, sentence: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} {sentence}"):
        Retry(**{name: value})


@pytest.mark.parametrize("name", ["backoff", "longest"])
@pytest.mark.parametrize("value", [0, -1, "0s", "-3s", "soon", "", math.nan, math.inf, True, None, []])
def test_a_wait_that_is_no_duration_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidDuration, match=f"^{name}: "):
        Retry(**{name: value})


def test_a_policy_can_be_had_at_the_very_edges() -> None:
    assert Retry(max_attempts=1000, factor=1, jitter=0, on=()).next_delay(BROKEN, 1, 0.0) is None
    assert Retry(max_attempts=1000, factor=1, jitter=1, backoff="1ms").next_delay(BROKEN, 999, 0.999) == 1
