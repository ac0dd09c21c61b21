"""Steps that ran again although they should not."""

from tests.chaos.support import EFFECTS, END, again, done, effect

AT_MOST_ONCE = "at most once is at most once"
AGAIN = "a step runs again only for a crash"
ONE_RESULT = "a step has one result"
FIRST = (effect("start", "r1"), effect("step", "r1", "charge"))


def test_a_step_marked_at_most_once_that_ran_twice_is_found() -> None:
    first = (effect("start", "r1"), effect("step", "r1", "charge", once=True))
    assert set(done(before=(*first, *again("charge", once=True), *END))) == {AT_MOST_ONCE}


def test_a_step_may_run_again_after_a_run_that_ended_inside_it() -> None:
    assert not done(before=(*FIRST, *again("charge"), *END))


def test_a_step_that_ran_again_although_it_was_recorded_is_found() -> None:
    recorded = (*FIRST, effect("value", "r1", "charge", 5))
    assert "after it was recorded for r1" in done(before=(*recorded, *again("charge"), *END))[AGAIN][0]


def test_a_ghost_may_run_a_step_that_its_successor_has_recorded() -> None:
    passed = effect("value", name="charge", value=5, attempt=2)
    assert not done(*FIRST, before=(*again("charge"), passed, *END), values={"charge": 5})


def test_a_run_that_runs_a_step_twice_is_found() -> None:
    assert "one run ran 'charge' twice" in done(effect("step", "r1", "charge"), before=(*FIRST, *EFFECTS[1:]))[AGAIN][0]


def test_a_step_that_failed_may_be_tried_again() -> None:
    tried = (*FIRST[1:], effect("fail", "r1", "charge"))
    assert AGAIN not in done(before=(FIRST[0], *tried, *FIRST[1:], *EFFECTS[1:]))


def test_a_step_with_two_results_is_found() -> None:
    passed = (effect("value", "r1", "charge", 5), effect("value", name="charge", value=6))
    assert set(done(*passed, values={"charge": 6})) == {ONE_RESULT}
