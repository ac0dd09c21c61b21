"""What becomes of a route: what a backend may say of its task, and when nobody needs it any more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import routing
from perdure.domain.errors import LimitExceeded
from perdure.domain.model import Owner
from perdure.domain.routing import LATE_MS, MAX_BACKEND, MAX_BACKEND_TASK_ID, UNHEARD_MS, Route

ADA = Owner("acme", "ada")
NOW = 1_000_000

ttls = st.none() | st.integers(-(2**70), 2**70) | st.sampled_from([0, 1_000, 60_000])
snapshots = st.lists(st.tuples(ttls, st.booleans(), st.integers(0, 10_000)), max_size=8)


def route(ttl_ms: int | None = 60_000) -> Route:
    return routing.laid("tsk_1", ADA, "reports", "r-1", ttl_ms, NOW)


def test_a_route_expires_when_its_task_does() -> None:
    assert route(60_000).expires_at == NOW + 60_000
    assert route(None).expires_at is None
    assert not route().ended


@given(ttls, snapshots)
def test_whatever_a_backend_says_an_instant_is_one_that_every_store_can_hold(
    ttl_ms: int | None, told: list[tuple[int | None, bool, int]]
) -> None:
    known = route(ttl_ms)
    for ttl, ended, later in told:
        known = routing.told(known, ttl, NOW + later, ended=ended)
        assert known.expires_at is None or NOW <= known.expires_at < 2**53


@given(ttls, snapshots)
def test_what_is_over_stays_so_since_the_same_instant_unless_its_ttl_is_lifted(
    ttl_ms: int | None, told: list[tuple[int | None, bool, int]]
) -> None:
    known = route(ttl_ms)
    for ttl, ended, later in told:
        before, known = known, routing.told(known, ttl, NOW + later, ended=ended)
        there_for_good = ended and ttl is None
        assert known.ended == (not there_for_good and (before.ended or ended))
        if before.ended and known.ended:
            assert known.ended_at == before.ended_at
        if before.ended and not ended:
            assert known == before


@given(ttls, snapshots)
def test_the_same_snapshot_again_is_no_news(ttl_ms: int | None, told: list[tuple[int | None, bool, int]]) -> None:
    known = route(ttl_ms)
    for ttl, ended, later in told:
        after = routing.told(known, ttl, NOW + later, ended=ended)
        maybe_late = known.ended and not ended
        assert routing.is_news(known, ttl, ended=ended) == (after != known or maybe_late)
        assert maybe_late or not routing.is_news(after, ttl, ended=ended)
        known = after


@pytest.mark.parametrize("ttl_ms", [None, 90_000, 2_000_000])
def test_what_its_backend_calls_unfinished_long_after_it_was_over_never_was(ttl_ms: int | None) -> None:
    over = routing.told(route(), 60_000, NOW + 5, ended=True)
    assert routing.told(over, ttl_ms, NOW + 4 + LATE_MS, ended=False) == over
    again = routing.told(over, ttl_ms, NOW + 5 + LATE_MS, ended=False)
    assert (again.ended, again.ttl_ms) == (False, ttl_ms)
    assert again.doubtful_at is not None
    assert again.doubtful_at > NOW + 5 + LATE_MS
    assert not routing.is_over(again, 1_000, NOW + 10 * UNHEARD_MS)


def test_it_is_over_once_the_ttl_and_the_retention_have_passed_and_not_before() -> None:
    ended = routing.told(route(60_000), 60_000, NOW + 5, ended=True)
    assert not routing.is_over(ended, 1_000, NOW + 60_999)
    assert routing.is_over(ended, 1_000, NOW + 61_000)


def test_one_that_was_found_to_be_over_late_stays_for_the_retention_from_then_on() -> None:
    ended = routing.told(route(60_000), 60_000, NOW + 90_000, ended=True)
    assert not routing.is_over(ended, 1_000, NOW + 90_999)
    assert routing.is_over(ended, 1_000, NOW + 91_000)


@pytest.mark.parametrize("ttl_ms", [None, 0, 60_000])
def test_nothing_is_over_by_the_clock_alone(ttl_ms: int | None) -> None:
    assert not routing.is_over(route(ttl_ms), 0, NOW + 10**15)


@pytest.mark.parametrize(("ttl_ms", "after"), [(0, 0), (60_000, 60_000), (None, UNHEARD_MS)])
def test_it_is_doubtful_once_the_ttl_has_run_out_or_a_day_without_one_has_passed(
    ttl_ms: int | None, after: int
) -> None:
    assert not routing.is_doubtful(route(ttl_ms), NOW + after - 1)
    assert routing.is_doubtful(route(ttl_ms), NOW + after)


@pytest.mark.parametrize(("ttl_ms", "after"), [(0, 1_000), (60_000, 1_000), (None, UNHEARD_MS)])
def test_while_somebody_asks_it_is_not_doubtful_and_afterwards_it_is_again(ttl_ms: int | None, after: int) -> None:
    later = NOW + 2 * UNHEARD_MS
    asked = routing.asked(route(ttl_ms), 1_000, later)
    assert not routing.is_doubtful(asked, later + after - 1)
    assert routing.is_doubtful(asked, later + after)


@given(ttls, snapshots)
def test_a_route_is_doubtful_one_day_unless_its_task_is_known_to_be_over(
    ttl_ms: int | None, told: list[tuple[int | None, bool, int]]
) -> None:
    known = route(ttl_ms)
    for ttl, ended, later in told:
        known = routing.told(known, ttl, NOW + later, ended=ended)
    assert (known.doubtful_at is None) == known.ended


def test_a_ttl_that_became_longer_is_believed_until_it_runs_out() -> None:
    known = routing.told(route(60_000), 90_000, NOW + 60_000, ended=False)
    assert known.doubtful_at == NOW + 90_000
    assert routing.told(known, None, NOW + 70_000, ended=False).doubtful_at == NOW + 70_000 + UNHEARD_MS


def test_a_ttl_that_changes_each_time_and_is_always_past_is_not_asked_about_in_a_circle() -> None:
    known = routing.asked(route(60_000), 5_000, NOW + 80_000)
    for ttl_ms in (70_000, 1, 80_000):
        known = routing.told(known, ttl_ms, NOW + 80_000, ended=False)
        assert known.doubtful_at == NOW + 85_000


@pytest.mark.parametrize("ttl_ms", [None, 2**70])
def test_one_that_was_to_live_for_ages_and_has_outlived_its_new_ttl_is_doubtful_within_a_day(
    ttl_ms: int | None,
) -> None:
    known = routing.told(route(ttl_ms), 1_000, NOW + 1_000, ended=False)
    assert known.doubtful_at is not None
    assert known.doubtful_at <= NOW + 1_000 + UNHEARD_MS


def test_the_ttl_is_what_was_said_last() -> None:
    assert [route(each).ttl_ms for each in (None, 0, 60_000)] == [None, 0, 60_000]


def test_without_a_ttl_it_is_no_more_over_for_having_ended_and_is_doubtful_once_a_day() -> None:
    known = route(None)
    assert routing.told(known, None, NOW + 5, ended=True) == known
    assert not routing.is_news(known, None, ended=True)
    assert not routing.is_over(known, 0, NOW + 10**12)
    assert routing.is_doubtful(known, NOW + UNHEARD_MS)


@pytest.mark.parametrize(("ttl_ms", "until"), [(None, NOW + 5), (1_000, NOW + 1_000), (2, NOW + 5), (0, NOW + 5)])
def test_one_whose_task_is_gone_is_over_once_the_ttl_if_it_had_one_and_the_retention_have_passed(
    ttl_ms: int | None, until: int
) -> None:
    known = route(ttl_ms)
    assert routing.is_news(known, known.gone_ttl_ms, ended=True)
    gone = routing.told(known, known.gone_ttl_ms, NOW + 5, ended=True)
    assert not routing.is_over(gone, 1_000, until + 999)
    assert routing.is_over(gone, 1_000, until + 1_000)
    assert not routing.is_doubtful(gone, NOW + 10**12)
    assert not routing.is_news(gone, gone.gone_ttl_ms, ended=True)


def test_a_task_that_ended_and_is_there_for_good_has_its_route_back_at_once() -> None:
    """It was said to be gone, or to have a ttl. A route too many costs a request a day, and one too few a result."""
    for over in (routing.told(route(None), 0, NOW + 5, ended=True), routing.told(route(), 1_000, NOW + 5, ended=True)):
        assert routing.is_news(over, None, ended=True)
        again = routing.told(over, None, NOW + 6, ended=True)
        assert (again.ended, again.ttl_ms, again.doubtful_at) == (False, None, NOW + 6 + UNHEARD_MS)


def test_names_may_be_as_long_as_every_store_can_keep() -> None:
    routing.fits("b" * MAX_BACKEND, "t" * MAX_BACKEND_TASK_ID)


@pytest.mark.parametrize(
    ("backend", "task", "said"),
    [
        ("b" * (MAX_BACKEND + 1), "t", "The name of a backend has 101 characters, and 100 is the limit"),
        ("b", "t" * (MAX_BACKEND_TASK_ID + 1), "A task id of a backend has 501 characters, and 500 is the limit"),
    ],
)
def test_a_name_that_is_too_long_is_refused_and_not_shown(backend: str, task: str, said: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        routing.fits(backend, task)
    assert str(caught.value) == said
