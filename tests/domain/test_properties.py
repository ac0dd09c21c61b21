"""Whatever happens in whatever order and whatever the clock does: what must hold for every task."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import inputs
from perdure.domain.errors import IllegalTransition, InputKeyReused
from perdure.domain.lifecycle import TRANSITIONS, Event, Finish, Kind, apply
from perdure.domain.model import JSON, Asked, Completed, InputRequest, InputState, JSONObject, Status, Task
from tests.domain.support import EVENTS, NOW, fresh

Step = tuple[Event, int]

clocks = st.integers(NOW - 10_000_000, NOW + 10_000_000)
events = st.sampled_from(sorted(EVENTS)).map(EVENTS.__getitem__)
histories = st.lists(st.tuples(events, clocks), max_size=40)
spans = st.none() | st.integers(1, 1_000_000)

keys = st.sampled_from("abcdef")
requests: st.SearchStrategy[JSONObject] = st.sampled_from([{"ask": "one"}, {"ask": "two"}])
asked_ones = st.builds(Asked, requests, st.sampled_from(["0", "1", "2.0/3"]), st.none() | st.integers(1, 60))
questions = st.dictionaries(keys, asked_ones, max_size=4)
responses = st.dictionaries(st.sampled_from("abcdefg"), st.integers(), max_size=4)


def states(task: Task, history: Sequence[Step]) -> list[Task]:
    """The task after each event that the machine admits, itself first."""
    seen = [task]
    for event, now in history:
        try:
            seen.append(apply(seen[-1], event, now))
        except IllegalTransition:
            continue
    return seen


@given(histories)
def test_no_transition_leaves_a_terminal_status(history: list[Step]) -> None:
    seen = states(fresh(), history)
    assert not any(task.status.terminal for task in seen[:-1])


@given(histories)
def test_every_step_is_an_arrow_of_the_table(history: list[Step]) -> None:
    seen = states(fresh(), history)
    arrows = {(source, target) for (source, _), target in TRANSITIONS.items()}
    assert all((before.status, after.status) in arrows for before, after in pairwise(seen))


@given(histories)
def test_time_never_runs_backwards_and_versions_count_by_one(history: list[Step]) -> None:
    seen = states(fresh(), history)
    assert [task.version for task in seen] == list(range(1, len(seen) + 1))
    assert all(before.updated_at <= after.updated_at for before, after in pairwise(seen))
    assert all(task.created_at == NOW for task in seen)


@given(histories)
def test_a_task_shows_the_fields_of_its_status_and_no_others(history: list[Step]) -> None:
    for task in states(fresh(), history):
        assert (task.result is not None) == (task.status is Status.COMPLETED)
        assert (task.error is not None) == (task.status is Status.FAILED)
        assert bool(task.inputs) == (task.status is Status.INPUT_REQUIRED)


@given(histories, spans, spans)
def test_the_ttl_changes_when_the_task_finishes_only_and_then_only_grows(
    history: list[Step], ttl_ms: int | None, keep_ms: int | None
) -> None:
    for task in states(fresh(ttl_ms=ttl_ms, keep_ms=keep_ms), history):
        if not task.status.terminal or ttl_ms is None:
            assert task.ttl_ms == ttl_ms
        else:
            kept_until = 0 if keep_ms is None else task.updated_at - task.created_at + keep_ms
            assert task.ttl_ms == max(ttl_ms, kept_until)


@given(histories)
def test_the_intent_to_cancel_is_never_forgotten(history: list[Step]) -> None:
    seen = [task.cancel_requested for task in states(fresh(), history)]
    assert seen == sorted(seen)


@given(histories, st.lists(st.tuples(events, clocks), min_size=1, max_size=5))
def test_the_first_terminal_event_wins_over_all_later_ones(history: list[Step], late: list[Step]) -> None:
    over = states(fresh(), [*history, (EVENTS[Kind.RESUME], NOW), (Finish(Completed({})), NOW)])[-1]
    assert over.status.terminal
    assert states(over, late) == [over]


# -- questions and answers ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(questions, responses, st.integers(0, 30)), max_size=12))
def test_a_key_never_stands_for_two_questions_and_never_gets_a_second_answer(
    rounds: list[tuple[dict[str, Asked], dict[str, JSON], int]],
) -> None:
    record: dict[str, InputRequest] = {}
    now = NOW
    for asked, answered, passed in rounds:
        before = dict(record)
        now += passed
        with suppress(InputKeyReused):
            record |= inputs.admit(record, asked, now)
        record |= inputs.unanswered(record, now)
        record |= inputs.accept(record, answered)
        for key, entry in before.items():
            fixed = ("key", "request", "issued_at", "place", "deadline")
            assert [getattr(record[key], name) for name in fixed] == [getattr(entry, name) for name in fixed]
            if entry.state is not InputState.OUTSTANDING:
                assert record[key] == entry
        assert list(record)[: len(before)] == list(before)


@given(questions, st.lists(st.tuples(responses, st.integers(0, 30)), max_size=6))
def test_questions_are_closed_exactly_when_none_of_them_is_outstanding(
    asked: dict[str, Asked], rounds: list[tuple[dict[str, JSON], int]]
) -> None:
    record = inputs.admit({}, asked, NOW)
    now = NOW
    for answered, passed in rounds:
        now += passed
        record |= inputs.accept(record, answered)
        record |= inputs.unanswered(record, now)
        assert (inputs.closed(record, asked) is None) == bool(inputs.outstanding(record))
        assert all(entry.deadline is None or entry.deadline > now for entry in inputs.outstanding(record))


@given(questions, responses)
def test_an_answer_is_the_one_that_was_given_to_this_question(
    asked: dict[str, Asked], answered: dict[str, JSON]
) -> None:
    record = inputs.admit({}, asked, NOW)
    accepted = inputs.accept(record, answered)
    assert {key: entry.response for key, entry in accepted.items()} == {
        key: answer for key, answer in answered.items() if key in asked
    }
