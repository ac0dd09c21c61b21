"""The breaker, on a clock that the test moves."""

from __future__ import annotations

import pytest

from perdure.gateway.breaker import Breaker, BreakerBounds, Permit, Position

BOUNDS = BreakerBounds(failures=3, part=0.5, window=10.0, pause=2.0, longest=5.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(BOUNDS, clock)


def asked(breaker: Breaker) -> Permit:
    permit = breaker.ask()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        asked(breaker).bad()


def test_it_opens_after_enough_failures_and_says_how_long(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 2)
    assert breaker.position is Position.CLOSED
    assert breaker.wait == 0
    fail(breaker)
    assert breaker.position is Position.OPEN
    assert breaker.ask() is None
    clock.now += 0.5
    assert breaker.wait == 1.5


def test_failures_that_are_a_small_part_do_not_open_it(breaker: Breaker) -> None:
    for _ in range(30):
        asked(breaker).good()
    fail(breaker, 20)
    assert breaker.position is Position.CLOSED
    fail(breaker, 10)
    assert breaker.position is Position.OPEN


def test_failures_of_long_ago_are_forgotten(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 2)
    clock.now += 10
    fail(breaker, 2)
    assert breaker.position is Position.CLOSED


def test_what_says_nothing_is_not_counted(breaker: Breaker) -> None:
    for _ in range(10):
        asked(breaker).nothing()
    fail(breaker, 2)
    assert breaker.position is Position.CLOSED


def test_after_the_pause_there_is_one_trial_and_the_others_wait(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 2
    assert breaker.position is Position.HALF_OPEN
    trial = asked(breaker)
    assert breaker.ask() is None
    assert breaker.wait > 0
    trial.good()
    assert breaker.position is Position.CLOSED
    assert breaker.ask() is not None


def test_each_trial_that_fails_makes_the_pause_longer_up_to_a_bound(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = [breaker.wait]
    for _ in range(3):
        clock.now += breaker.wait
        fail(breaker)
        waits.append(breaker.wait)
    assert waits == [2, 4, 5, 5]
    clock.now += 5
    asked(breaker).good()
    fail(breaker, 3)
    assert breaker.wait == 2


def test_a_trial_whose_client_went_away_gives_its_leave_back(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 2
    asked(breaker).nothing()
    assert breaker.position is Position.HALF_OPEN
    asked(breaker).good()
    assert breaker.position is Position.CLOSED


def test_what_was_asked_before_it_changed_is_not_counted_after(breaker: Breaker, clock: Clock) -> None:
    late = [asked(breaker) for _ in range(8)]
    fail(breaker, 3)
    late[0].good()
    late[1].bad()
    assert breaker.position is Position.OPEN
    assert breaker.wait == 2
    clock.now += 2
    trial = asked(breaker)
    late[2].good()
    assert breaker.position is Position.HALF_OPEN
    trial.good()
    for each in late[3:]:
        each.bad()
    assert breaker.position is Position.CLOSED


def test_a_permit_counts_once(breaker: Breaker) -> None:
    permit = asked(breaker)
    for _ in range(5):
        permit.bad()
    assert breaker.position is Position.CLOSED


def test_a_stream_that_breaks_off_counts_after_it_began_well(breaker: Breaker) -> None:
    for _ in range(3):
        asked(breaker).good()
        breaker.failed()
    assert breaker.position is Position.OPEN
    breaker.failed()
    assert breaker.wait == 2


def test_somebody_else_may_open_and_close_it(breaker: Breaker, clock: Clock) -> None:
    breaker.open()
    assert breaker.position is Position.OPEN
    clock.now += 2
    breaker.open()
    assert breaker.wait == 4
    breaker.close()
    assert breaker.position is Position.CLOSED


def test_who_wants_to_know_is_told_once_for_each_change(clock: Clock) -> None:
    told = list[bool]()
    breaker = Breaker(BOUNDS, clock, told.append)
    fail(breaker, 3)
    clock.now += 2
    fail(breaker)
    assert told == [True]
    clock.now += 4
    asked(breaker).good()
    breaker.close()
    assert told == [True, False]
