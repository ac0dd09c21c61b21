"""When a run that is put aside goes on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import policy
from perdure.domain.journal import Entry, EntryState, Journal, Verb, Waits
from perdure.domain.model import Asked, InputRequest, InputState
from perdure.domain.waiting import begun, due_at, timed
from tests.domain.support import NOW

AT_ONCE = policy.due_at_once(NOW)
SLEEP = Entry("0", Verb.SLEEP, "", EntryState.STARTED)
JOB = Entry("1", Verb.EXTERNAL, "render", EntryState.STARTED, {"token": "t"})
WHO = InputRequest("who", {}, NOW, place="2")

instants = st.none() | st.integers(NOW - 50, NOW + 50)


def wait_for(*entries: Entry, questions: tuple[InputRequest, ...] = ()) -> int | None:
    """When a run is due that waits for all of these."""
    waits = Waits({each.key: Asked(each.request) for each in questions}, places=frozenset(one.place for one in entries))
    return due_at(waits, Journal({one.place: one for one in entries}, {each.key: each for each in questions}), NOW)


def answered(question: InputRequest) -> InputRequest:
    return replace(question, state=InputState.ANSWERED, response="Ada")


# -- what is written with the wait -------------------------------------------------------------------------------------


def test_a_span_becomes_an_instant_when_the_wait_is_written() -> None:
    assert timed(SLEEP, 250, NOW) == replace(SLEEP, wake_at=NOW + 250)


def test_an_entry_that_is_given_no_span_keeps_its_instant() -> None:
    assert timed(replace(JOB, wake_at=NOW + 7), None, NOW + 5) == replace(JOB, wake_at=NOW + 7)


def test_what_begins_with_a_wait_enters_the_journal_at_its_place() -> None:
    entered = begun(Waits(begun=((SLEEP, 250), (JOB, None))), NOW)
    assert entered == {"0": replace(SLEEP, wake_at=NOW + 250), "1": JOB}


# -- when it goes on ---------------------------------------------------------------------------------------------------


def test_a_sleep_is_due_at_its_instant() -> None:
    assert wait_for(replace(SLEEP, wake_at=NOW + 250)) == NOW + 250


@pytest.mark.parametrize("wake_at", [NOW, NOW - 1, 0])
def test_a_sleep_whose_instant_has_come_is_not_slept(wake_at: int) -> None:
    assert wait_for(replace(SLEEP, wake_at=wake_at)) == AT_ONCE


def test_work_elsewhere_that_has_no_time_limit_is_waited_for_until_somebody_acts() -> None:
    assert wait_for(JOB) is None


@pytest.mark.parametrize("state", [EntryState.DONE, EntryState.FAILED])
def test_work_elsewhere_that_was_over_before_the_run_lay_down_is_not_slept_through(state: EntryState) -> None:
    assert wait_for(replace(JOB, state=state), replace(SLEEP, wake_at=NOW + 250)) == AT_ONCE


def test_an_open_question_is_waited_for_until_somebody_acts_or_its_deadline() -> None:
    assert wait_for(questions=(WHO,)) is None
    assert wait_for(questions=(replace(WHO, deadline=NOW + 9),)) == NOW + 9


@pytest.mark.parametrize("state", [InputState.ANSWERED, InputState.SUPERSEDED])
def test_a_question_that_was_closed_before_the_run_lay_down_is_not_slept_through(state: InputState) -> None:
    assert wait_for(JOB, questions=(replace(WHO, state=state),)) == AT_ONCE


def test_questions_that_were_asked_together_count_once_none_is_open() -> None:
    when = replace(WHO, key="when")
    assert wait_for(questions=(answered(WHO), when)) is None
    assert wait_for(questions=(answered(WHO), answered(when))) == AT_ONCE


def test_the_deadline_of_an_answered_question_wakes_nobody() -> None:
    overdue = replace(WHO, key="when", deadline=NOW - 1)
    assert wait_for(questions=(answered(overdue), WHO)) is None


def test_a_question_that_the_run_does_not_wait_for_does_not_wake_it() -> None:
    open_still = replace(WHO, deadline=NOW - 1)
    assert due_at(Waits(places=frozenset({"1"})), Journal({"1": JOB}, {"who": open_still}), NOW) is None


def test_the_earliest_of_several_instants_counts() -> None:
    assert (
        wait_for(
            replace(SLEEP, wake_at=NOW + 30),
            replace(JOB, wake_at=NOW + 20),
            questions=(replace(WHO, deadline=NOW + 10),),
        )
        == NOW + 10
    )


@pytest.mark.parametrize(("minds", "due"), [(True, AT_ONCE), (False, None)])
def test_a_request_to_cancel_that_came_meanwhile_is_a_reason_to_go_on_for_code_that_minds(
    minds: bool, due: int | None
) -> None:
    waits = Waits(places=frozenset({"1"}), minds_cancel=minds)
    assert due_at(waits, Journal({"1": JOB}), NOW, cancelled=True) == due
    assert due_at(waits, Journal({"1": JOB}), NOW) is None


def test_a_run_that_waits_for_nothing_is_due_at_once_since_nobody_would_wake_it() -> None:
    assert due_at(Waits(), Journal(), NOW) == AT_ONCE


def test_a_run_that_waits_for_what_is_on_record_no_more_is_due_at_once() -> None:
    assert due_at(Waits(places=frozenset({"1"})), Journal(), NOW) == AT_ONCE


entries = st.builds(replace, st.just(JOB), state=st.sampled_from(EntryState), wake_at=instants)
questions = st.builds(replace, st.just(WHO), state=st.sampled_from(InputState), deadline=instants)


@given(st.lists(entries, max_size=3), st.lists(questions, max_size=3))
def test_a_run_is_due_at_once_or_at_an_instant_ahead_or_when_somebody_acts_and_never_lost(
    waited: list[Entry], asked: list[InputRequest]
) -> None:
    waited = [replace(one, place=str(number)) for number, one in enumerate(waited)]
    asked = [replace(one, key=str(number)) for number, one in enumerate(asked)]
    due = wait_for(*waited, questions=tuple(asked))
    still = [one for one in asked if one.state is InputState.OUTSTANDING]
    times = {one.wake_at for one in waited} | {one.deadline for one in still}
    if due is None:
        # Somebody has to be there who can act: an open question, or work that is not over; and no time is set.
        assert times == {None}
        assert still or not asked
        assert not any(one.over for one in waited)
    elif policy.is_timer(due):
        assert due > NOW
        assert due == min(time for time in times if time is not None)
    else:
        assert due == AT_ONCE
        come = [time for time in times if time is not None and time <= NOW]
        nothing_open = not still and (asked or not waited)
        assert come or nothing_open or any(one.over for one in waited)
