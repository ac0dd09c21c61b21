"""What operators look at."""

from dataclasses import fields

import pytest

from perdure.domain import timeline
from perdure.domain.journal import Entry, EntryState, Journal, Verb
from perdure.domain.timeline import KEPT, Event, EventKind, Inspection, Load, RunState
from tests.domain.support import NOW, OPERATION, QUESTION, fresh


def test_stored_events_are_read_back_by_the_words_that_they_were_written_with() -> None:
    """These words stand in databases: one may be added, none may be changed."""
    words = {"retry", "step_retry", "death", "overrun", "cancel", "unanswered", "settled", "hasten"}
    assert {EventKind(word).value for word in words} == words


def test_a_task_keeps_enough_events_to_tell_a_story_and_not_a_year_of_them() -> None:
    assert 100 <= KEPT <= 1000


WORK = Entry("3", Verb.EXTERNAL, "render", EntryState.FAILED, {"token": "kP3vG9", "value": "secret"})


@pytest.mark.parametrize(
    ("event", "kind", "detail"),
    [
        (timeline.died(NOW, 2, 10), EventKind.DEATH, "2 of 10"),
        (timeline.overran(NOW, 2, 10), EventKind.OVERRUN, "2 of 10"),
        (timeline.cancelled(NOW), EventKind.CANCEL, ""),
        (timeline.unanswered(NOW, QUESTION), EventKind.UNANSWERED, "name"),
        (timeline.settled(NOW, WORK), EventKind.SETTLED, "render: failed"),
    ],
    ids=lambda value: str(value) if isinstance(value, EventKind) else "",
)
def test_an_event_says_when_and_what_but_no_token_and_no_result(event: Event, kind: EventKind, detail: str) -> None:
    assert event == Event(NOW, kind, detail)


def test_a_task_that_is_over_has_no_run_and_keeps_its_journal_and_its_events() -> None:
    entry = Entry("0", Verb.STEP, "charge", EntryState.DONE)
    event = Event(NOW, EventKind.DEATH, "session 7")
    seen = Inspection(fresh(), OPERATION, None, Journal({"0": entry}), (event,))
    assert (seen.run, seen.journal.entries["0"], seen.events) == (None, entry, (event,))


@pytest.mark.parametrize("kind", [Event, Inspection, Load, RunState])
def test_what_operators_are_shown_is_a_snapshot_that_nobody_can_write_to(kind: type) -> None:
    shown = {
        Event: Event(NOW, EventKind.CANCEL, ""),
        Inspection: Inspection(fresh(), OPERATION, None, Journal(), ()),
        Load: Load("tools/call:report", ready=1, held=2, waiting=3, oldest_ms=4),
        RunState: RunState("tools/call:report", None, None, fence=1, failures=0, deaths=0, deadline_at=None),
    }[kind]
    for each in fields(shown):
        with pytest.raises(AttributeError):
            setattr(shown, each.name, None)
