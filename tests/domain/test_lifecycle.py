"""The state machine, read from its table and run by its interpreter."""

from dataclasses import replace

import pytest

from perdure.domain.errors import IllegalTransition
from perdure.domain.lifecycle import (
    INTERNAL_ERROR,
    TRANSITIONS,
    Ask,
    Expire,
    Finish,
    Kind,
    Partial,
    Report,
    RequestCancel,
    Resume,
    apply,
    created,
    exhausted,
)
from perdure.domain.model import Cancelled, Completed, Failed, Failure, InputRequest, Status, Task
from tests.domain.support import EVENTS, FAILURE, NOW, OWNER, QUESTION, RESULT, fresh, new_task

TERMINAL = [status for status in Status if status.terminal]
LATER = NOW + 60_000
MISSING = [(status, kind) for status in Status for kind in Kind if (status, kind) not in TRANSITIONS]


def in_status(status: Status, task: Task | None = None) -> Task:
    return replace(task or fresh(), status=status, inputs=(QUESTION,) if status is Status.INPUT_REQUIRED else ())


# -- the table ---------------------------------------------------------------------------------------------------------


def test_exactly_completed_failed_and_cancelled_are_terminal() -> None:
    assert set(TERMINAL) == {Status.COMPLETED, Status.FAILED, Status.CANCELLED}


def test_no_arrow_leaves_a_terminal_status() -> None:
    assert not [source for source, _ in TRANSITIONS if source.terminal]


def test_every_status_can_be_reached_from_the_first_one() -> None:
    reached = {Status.WORKING}
    while new := {target for (source, _), target in TRANSITIONS.items() if source in reached} - reached:
        reached |= new
    assert reached == set(Status)


def test_every_status_that_is_not_terminal_can_end_in_each_terminal_one_or_go_back_to_work() -> None:
    from_working = {target for (source, _), target in TRANSITIONS.items() if source is Status.WORKING}
    from_waiting = {target for (source, _), target in TRANSITIONS.items() if source is Status.INPUT_REQUIRED}
    assert set(TERMINAL) <= from_working
    assert {Status.WORKING, Status.CANCELLED, Status.FAILED} <= from_waiting


def test_a_task_that_waits_for_input_makes_no_progress_and_has_no_result() -> None:
    """It is parked: there is nobody who could report, ask or complete."""
    nobody = {Kind.REPORT, Kind.ASK, Kind.COMPLETE, Kind.FAIL}
    assert not [kind for kind in nobody if (Status.INPUT_REQUIRED, kind) in TRANSITIONS]


def test_every_kind_of_event_has_an_arrow_somewhere() -> None:
    assert {kind for _, kind in TRANSITIONS} == set(Kind)


def test_the_table_can_not_be_written_to() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[Status.COMPLETED, Kind.REPORT] = Status.WORKING  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize("kind", Kind)
def test_every_event_tells_its_kind(kind: Kind) -> None:
    assert EVENTS[kind].kind is kind


# -- the interpreter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "kind"), TRANSITIONS)
def test_apply_follows_each_arrow(status: Status, kind: Kind) -> None:
    after = apply(in_status(status), EVENTS[kind], LATER)
    assert after.status is TRANSITIONS[status, kind]


@pytest.mark.parametrize(("status", "kind"), MISSING)
def test_apply_refuses_what_has_no_arrow_and_names_both_ends(status: Status, kind: Kind) -> None:
    with pytest.raises(IllegalTransition, match=rf"\b{status}\b.*\b{kind}\b"):
        apply(in_status(status), EVENTS[kind], LATER)


@pytest.mark.parametrize(("status", "kind"), TRANSITIONS)
def test_each_arrow_counts_one_version_and_moves_the_time_of_the_last_update(status: Status, kind: Kind) -> None:
    after = apply(in_status(status), EVENTS[kind], LATER)
    assert (after.version, after.updated_at) == (2, LATER)


@pytest.mark.parametrize(("status", "kind"), TRANSITIONS)
def test_the_time_of_the_last_update_never_decreases_though_the_clock_does(status: Status, kind: Kind) -> None:
    after = apply(in_status(status), EVENTS[kind], NOW - 5_000)
    assert after.updated_at == NOW


@pytest.mark.parametrize(("status", "kind"), TRANSITIONS)
def test_no_arrow_changes_what_a_task_is_about(status: Status, kind: Kind) -> None:
    before = in_status(status, fresh(ttl_ms=1000, keep_ms=5))
    after = apply(before, EVENTS[kind], NOW)
    fixed = ("seq", "id", "owner", "created_at", "keep_ms", "poll_ms")
    assert [getattr(after, name) for name in fixed] == [getattr(before, name) for name in fixed]


def test_the_given_task_stays_what_it_was() -> None:
    before = fresh()
    apply(before, Report("halfway"), LATER)
    assert before == fresh()


# -- what each event brings along --------------------------------------------------------------------------------------


def test_a_new_task_is_working_at_its_first_version_with_nothing_to_show_yet() -> None:
    new = new_task(ttl_ms=1000, keep_ms=10)
    assert created(7, new, NOW) == Task(
        seq=7,
        id=new.id,
        owner=OWNER,
        status=Status.WORKING,
        created_at=NOW,
        updated_at=NOW,
        version=1,
        ttl_ms=1000,
        keep_ms=10,
        poll_ms=500,
    )


def test_a_report_replaces_the_message_and_nothing_else() -> None:
    first = apply(fresh(), Report("one"), NOW)
    second = apply(first, Report("two"), NOW)
    assert (first.message, second.message) == ("one", "two")
    assert replace(second, message=None, version=1) == fresh()


def test_asking_shows_the_questions_in_their_order_and_keeps_the_message() -> None:
    questions = (QUESTION, InputRequest("age", {}, NOW))
    after = apply(apply(fresh(), Report("asking"), NOW), Ask(questions), NOW)
    assert (after.inputs, after.message) == (questions, "asking")


def test_a_partial_answer_leaves_the_questions_that_are_missing() -> None:
    after = apply(in_status(Status.INPUT_REQUIRED), Partial((QUESTION,)), NOW)
    assert after.inputs == (QUESTION,)


def test_a_task_that_resumes_has_no_questions() -> None:
    assert apply(in_status(Status.INPUT_REQUIRED), Resume(), NOW).inputs == ()


def test_a_waiting_task_that_is_to_hear_of_its_cancellation_goes_back_to_work_without_questions() -> None:
    after = apply(in_status(Status.INPUT_REQUIRED), RequestCancel(), NOW)
    assert (after.status, after.inputs, after.cancel_requested) == (Status.WORKING, (), True)


def test_a_request_to_cancel_is_remembered_and_may_be_repeated() -> None:
    once = apply(fresh(), RequestCancel(), NOW)
    twice = apply(once, RequestCancel(), NOW)
    assert once.cancel_requested
    assert twice.cancel_requested


def test_the_intent_to_cancel_outlives_an_outcome_that_came_all_the_same() -> None:
    """Cooperative: what the work did decides the status, and that it was asked to stop stays on record."""
    after = apply(apply(fresh(), RequestCancel(), NOW), Finish(RESULT), NOW)
    assert (after.status, after.cancel_requested) == (Status.COMPLETED, True)


def test_completion_carries_the_result_and_takes_the_message_of_the_progress_away() -> None:
    after = apply(apply(fresh(), Report("halfway"), NOW), Finish(RESULT), NOW)
    assert (after.result, after.error, after.message) == (RESULT.result, None, None)


def test_failure_carries_the_error_and_its_status_message() -> None:
    after = apply(fresh(), Finish(FAILURE), NOW)
    assert (after.result, after.error, after.message) == (None, FAILURE.error, "It was not there")


def test_a_failure_without_a_status_message_shows_the_message_of_its_error() -> None:
    after = apply(fresh(), Finish(Failed(Failure(-32000, "Broken"))), NOW)
    assert after.message == "Broken"


def test_cancellation_leaves_neither_result_nor_error_nor_message() -> None:
    after = apply(apply(fresh(), Report("halfway"), NOW), Finish(Cancelled()), NOW)
    assert (after.result, after.error, after.message) == (None, None, None)


@pytest.mark.parametrize("status", [Status.WORKING, Status.INPUT_REQUIRED])
def test_expiry_synthesizes_a_json_rpc_error_that_says_so(status: Status) -> None:
    after = apply(in_status(status), Expire(), NOW)
    assert after.error is not None
    assert after.error.code == INTERNAL_ERROR
    assert "expired" in after.error.message
    assert after.message is not None
    assert after.message.startswith("Expired")


def test_exhausted_attempts_synthesize_a_json_rpc_error_that_counts_them() -> None:
    after = apply(fresh(), Finish(exhausted(3)), NOW)
    assert after.error is not None
    assert after.error.code == INTERNAL_ERROR
    assert "died or went silent 3 times" in after.error.message
    assert after.message == after.error.message


@pytest.mark.parametrize("event", [Finish(Cancelled()), Expire()], ids=["cancelled", "expired"])
def test_whatever_ends_a_waiting_task_takes_its_questions_away(event: Finish | Expire) -> None:
    assert apply(in_status(Status.INPUT_REQUIRED), event, NOW).inputs == ()


@pytest.mark.parametrize("outcome", [RESULT, FAILURE, Cancelled()], ids=["completed", "failed", "cancelled"])
def test_finishing_extends_the_ttl_so_that_the_result_can_be_read(outcome: Completed | Failed | Cancelled) -> None:
    after = apply(fresh(ttl_ms=1_000, keep_ms=5_000), Finish(outcome), NOW + 900)
    assert after.ttl_ms == 5_900


def test_finishing_never_shortens_the_ttl() -> None:
    after = apply(fresh(ttl_ms=100_000, keep_ms=5_000), Finish(RESULT), NOW + 900)
    assert after.ttl_ms == 100_000
