"""Whatever happens in whatever order and whatever the clock does: what must hold for every task."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import inputs
from perdure.domain.errors import IllegalTransition, InputKeyReused
from perdure.domain.lifecycle import TRANSITIONS, Event, Finish, Kind, apply
from perdure.domain.model import JSON, Completed, InputRequest, InputState, Status, Task
from tests.domain.support import EVENTS, NOW, fresh

Step = tuple[Event, int]

clocks = st.integers(NOW - 10_000_000, NOW + 10_000_000)
events = st.sampled_from(sorted(EVENTS)).map(EVENTS.__getitem__)
histories = st.lists(st.tuples(events, clocks), max_size=40)
spans = st.none() | st.integers(1, 1_000_000)

keys = st.sampled_from("abcdef")
questions = st.dictionaries(keys, st.sampled_from([{"ask": "one"}, {"ask": "two"}]), max_size=4)
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


@given(st.lists(st.tuples(questions, responses), max_size=12))
def test_a_key_never_stands_for_two_questions_and_never_gets_a_second_answer(
    rounds: list[tuple[dict[str, dict[str, JSON]], dict[str, JSON]]],
) -> None:
    journal: dict[str, InputRequest] = {}
    for now, (asked, answered) in enumerate(rounds):
        before = dict(journal)
        with suppress(InputKeyReused):
            journal |= inputs.admit(journal, asked, now)
        journal |= inputs.accept(journal, answered)
        for key, entry in before.items():
            assert journal[key].request == entry.request
            assert journal[key].issued_at == entry.issued_at
            if entry.state is not InputState.OUTSTANDING:
                assert journal[key] == entry
        assert list(journal)[: len(before)] == list(before)


@given(questions, st.lists(responses, max_size=6))
def test_answers_are_there_exactly_when_nothing_is_outstanding(
    asked: dict[str, dict[str, JSON]], rounds: list[dict[str, JSON]]
) -> None:
    journal = inputs.admit({}, asked, NOW)
    for answered in rounds:
        journal |= inputs.accept(journal, answered)
        assert (inputs.answers(journal, asked) is None) == bool(inputs.outstanding(journal))
