"""Which event a store's verb comes to, and that a task which is driven by these decisions is always in order."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.domain import inputs, lifecycle
from perdure.domain.lifecycle import (
    Ask,
    Event,
    Expire,
    Finish,
    Partial,
    Report,
    RequestCancel,
    Resume,
    apply,
    exhausted,
)
from perdure.domain.model import Asked, Cancelled, InputRequest, InputState, Outcome, Status, Task
from tests.domain.support import FAILURE, NOW, QUESTION, RESULT, fresh

WORKING = fresh()
WAITING = apply(WORKING, Ask((QUESTION,)), NOW)
ASKED_TO_STOP = apply(WORKING, RequestCancel(), NOW)
OVER = [apply(WORKING, Finish(outcome), NOW) for outcome in (RESULT, FAILURE, Cancelled())]
STOP = Finish(Cancelled())

either = pytest.mark.parametrize("flag", [True, False])
once_over = pytest.mark.parametrize("over", OVER, ids=lambda task: task.status)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_leaves_a_task_waiting_for_the_others_and_the_last_one_resumes_it() -> None:
    assert lifecycle.on_answers(WAITING, (QUESTION,)) == Partial((QUESTION,))
    assert lifecycle.on_answers(WAITING, ()) == Resume()


@pytest.mark.parametrize("outstanding", [(), (QUESTION,)])
def test_an_answer_to_a_task_that_something_else_woke_changes_no_status(outstanding: tuple[InputRequest, ...]) -> None:
    assert lifecycle.on_answers(WORKING, outstanding) is None


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_task_is_working_once_it_was_claimed_though_questions_are_open() -> None:
    assert lifecycle.on_claim(WAITING) == Resume()
    assert lifecycle.on_claim(WORKING) is None


# -- cancellation ------------------------------------------------------------------------------------------------------


@either
def test_a_task_that_a_worker_runs_is_told_to_stop_and_decides_itself(flag: bool) -> None:
    assert lifecycle.on_cancel(WORKING, held=True, minded=flag) == RequestCancel()


@pytest.mark.parametrize("task", [WORKING, WAITING], ids=lambda task: task.status)
def test_a_parked_task_that_minds_is_told_to_stop(task: Task) -> None:
    assert lifecycle.on_cancel(task, held=False, minded=True) == RequestCancel()


@pytest.mark.parametrize("task", [WORKING, WAITING], ids=lambda task: task.status)
def test_a_parked_task_that_does_not_mind_is_cancelled_at_once(task: Task) -> None:
    assert lifecycle.on_cancel(task, held=False, minded=False) == STOP


@either
def test_asking_to_stop_a_second_time_changes_nothing(flag: bool) -> None:
    assert lifecycle.on_cancel(ASKED_TO_STOP, held=flag, minded=not flag) is None


# -- parking and coming back -------------------------------------------------------------------------------------------


def test_a_run_that_is_put_aside_shows_its_open_questions() -> None:
    assert lifecycle.on_park(WORKING, (QUESTION,), ready=False) == Ask((QUESTION,))


def test_a_run_that_waits_for_a_time_or_for_work_elsewhere_stays_working() -> None:
    assert lifecycle.on_park(WORKING, (), ready=False) is None


@pytest.mark.parametrize("outstanding", [(), (QUESTION,)])
def test_a_run_that_may_go_on_at_once_asks_nobody(outstanding: tuple[InputRequest, ...]) -> None:
    assert lifecycle.on_park(WORKING, outstanding, ready=True) is None


@either
@pytest.mark.parametrize("outstanding", [(), (QUESTION,)])
def test_a_run_that_was_asked_to_stop_is_not_put_aside(outstanding: tuple[InputRequest, ...], flag: bool) -> None:
    assert lifecycle.on_park(ASKED_TO_STOP, outstanding, ready=flag) == STOP


@pytest.mark.parametrize("outstanding", [(), (QUESTION,)])
def test_a_run_whose_code_minds_goes_on_at_once_instead(outstanding: tuple[InputRequest, ...]) -> None:
    assert lifecycle.on_park(ASKED_TO_STOP, outstanding, ready=True, minded=True) is None


def test_a_run_that_comes_back_is_for_somebody_else_unless_it_was_asked_to_stop() -> None:
    assert lifecycle.on_free(WORKING) is None
    assert lifecycle.on_free(ASKED_TO_STOP) == STOP


def test_a_run_whose_code_minds_comes_back_to_hear_of_the_request_as_long_as_it_may_be_tried() -> None:
    assert lifecycle.on_free(ASKED_TO_STOP, minded=True) is None
    assert lifecycle.on_death(ASKED_TO_STOP, 2, max_attempts=3, minded=True) is None
    assert lifecycle.on_death(ASKED_TO_STOP, 3, max_attempts=3, minded=True) == STOP
    assert lifecycle.on_death(WORKING, 3, max_attempts=3, minded=True) == Finish(exhausted(3))


@pytest.mark.parametrize(
    ("deaths", "event"), [(1, None), (2, None), (3, Finish(exhausted(3))), (4, Finish(exhausted(4)))]
)
def test_a_task_fails_with_the_last_death_that_it_is_allowed(deaths: int, event: Finish | None) -> None:
    assert lifecycle.on_death(WORKING, deaths, max_attempts=3) == event


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_task_that_was_asked_to_stop_is_cancelled_by_a_death_and_not_failed(deaths: int) -> None:
    assert lifecycle.on_death(ASKED_TO_STOP, deaths, max_attempts=3) == STOP


@once_over
@either
def test_nothing_that_clients_say_moves_a_task_that_is_over(over: Task, flag: bool) -> None:
    assert lifecycle.on_cancel(over, held=flag, minded=not flag) is None
    assert lifecycle.on_answers(over, ()) is None
    assert lifecycle.on_answers(over, (QUESTION,)) is None


# -- what work elsewhere says ------------------------------------------------------------------------------------------


def test_what_work_elsewhere_says_is_shown_unless_the_task_asks_something() -> None:
    assert lifecycle.on_tell(WORKING, "half way") == Report("half way")
    assert lifecycle.on_tell(WAITING, "half way") is None


# -- a whole life ------------------------------------------------------------------------------------------------------

MAX_ATTEMPTS = 3
KEYS = "abcd"
outcomes: st.SearchStrategy[Outcome] = st.sampled_from([RESULT, FAILURE, Cancelled()])


class Life(RuleBasedStateMachine):
    """One task, driven as a store drives it: each verb asks for its decision and writes what it is told.

    `apply` refuses what has no arrow, so each rule also says that the decision never asks for such.
    """

    def __init__(self) -> None:
        super().__init__()
        self.task = fresh()
        self.record: dict[str, InputRequest] = {}
        self.now = NOW
        self.deaths = 0
        self.held, self.due, self.minded = False, True, False

    def write(self, event: Event | None) -> None:
        before = self.task
        if event is not None:
            self.task = apply(before, event, self.now)
            assert self.task.version == before.version + 1
            assert self.task.updated_at >= before.updated_at
        if self.task.status.terminal:
            self.held = self.due = False
            self.record |= {
                each.key: replace(each, state=InputState.SUPERSEDED) for each in inputs.outstanding(self.record)
            }

    def unfinished(self) -> bool:
        return not self.task.status.terminal

    # -- time

    @rule(step=st.integers(-30, 60))
    def clock(self, step: int) -> None:
        self.now += step

    @precondition(lambda self: not self.held and self.unfinished())
    @rule()
    def timer(self) -> None:
        """What the run waits for has come, be it a time or work elsewhere. Nobody hears of it but the queue."""
        self.due = True

    @precondition(unfinished)
    @rule()
    def expire(self) -> None:
        self.write(Expire())

    # -- workers

    @precondition(lambda self: self.due)
    @rule()
    def claim(self) -> None:
        self.held, self.due = True, False
        self.record |= inputs.unanswered(self.record, self.now)
        self.write(lifecycle.on_claim(self.task))
        assert self.task.status is Status.WORKING

    @precondition(lambda self: self.held)
    @rule()
    def report(self) -> None:
        self.write(Report("halfway"))

    @precondition(lambda self: self.held)
    @rule(keys=st.sets(st.sampled_from(KEYS)), timeout_ms=st.none() | st.integers(1, 50), minded=st.booleans())
    def park(self, keys: set[str], timeout_ms: int | None, minded: bool) -> None:
        asked = {key: Asked({"ask": key}, timeout_ms=timeout_ms) for key in sorted(keys)}
        self.record |= inputs.admit(self.record, asked, self.now)
        self.record |= inputs.turned(self.record, keys)
        answered = bool(keys) and inputs.closed(self.record, keys) is not None
        ready = answered or (minded and self.task.cancel_requested)
        self.held, self.due, self.minded = False, ready, minded
        self.write(lifecycle.on_park(self.task, inputs.awaited(self.record), ready=ready, minded=minded))

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        self.held, self.due = False, True
        self.write(lifecycle.on_free(self.task, minded=self.minded))

    @precondition(lambda self: self.held)
    @rule()
    def die(self) -> None:
        self.deaths += 1
        self.held, self.due = False, True
        self.write(lifecycle.on_death(self.task, self.deaths, MAX_ATTEMPTS, minded=self.minded))

    @precondition(lambda self: self.held)
    @rule(outcome=outcomes)
    def finish(self, outcome: Outcome) -> None:
        self.write(Finish(outcome))

    # -- clients, who may say anything at any time

    @rule(responses=st.dictionaries(st.sampled_from(KEYS + "z"), st.integers()))
    def answer(self, responses: dict[str, int]) -> None:
        before = self.task
        if not (accepted := inputs.accept(self.record, dict(responses))):
            return
        self.record |= accepted
        event = lifecycle.on_answers(self.task, inputs.awaited(self.record))
        self.due = self.due or event == Resume()
        self.write(event)
        assert self.unfinished()
        assert before.status is Status.INPUT_REQUIRED or self.task == before

    @rule()
    def cancel(self) -> None:
        before = self.task
        event = lifecycle.on_cancel(self.task, held=self.held, minded=self.minded)
        self.due = self.due or (event == RequestCancel() and not self.held)
        self.write(event)
        if before.status.terminal or before.cancel_requested:
            assert self.task == before
        assert self.task.cancel_requested or self.task.status.terminal

    # -- what holds throughout

    @invariant()
    def a_task_shows_its_open_questions_exactly_while_it_waits_for_them(self) -> None:
        waits = self.task.status is Status.INPUT_REQUIRED
        assert self.task.inputs == (inputs.awaited(self.record) if waits else ())
        assert bool(self.task.inputs) == waits

    @invariant()
    def nobody_runs_a_task_that_waits_for_input(self) -> None:
        assert not (self.held and self.task.status is Status.INPUT_REQUIRED)

    @invariant()
    def a_task_that_was_asked_to_stop_never_sleeps(self) -> None:
        assert not self.task.cancel_requested or self.held or self.due or self.task.status.terminal

    @invariant()
    def no_more_workers_die_than_are_allowed_to(self) -> None:
        assert self.deaths < MAX_ATTEMPTS or self.task.status.terminal

    @invariant()
    def a_task_shows_the_fields_of_its_status_and_no_others(self) -> None:
        assert (self.task.result is not None) == (self.task.status is Status.COMPLETED)
        assert (self.task.error is not None) == (self.task.status is Status.FAILED)


TestALifeThatIsDrivenByTheDecisions = Life.TestCase
TestALifeThatIsDrivenByTheDecisions.settings = settings(max_examples=50, stateful_step_count=25)
