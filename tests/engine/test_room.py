"""The room that a run has left in its journal, counted from what the runs before it left."""

import pytest

from perdure.domain.errors import LimitExceeded
from perdure.domain.journal import Entry, EntryState, Journal, Verb
from perdure.domain.limits import Limits
from perdure.domain.model import Asked, InputRequest
from perdure.engine.room import Room


def entry(place: str, text: str = "") -> Entry:
    return Entry(place, Verb.STEP, "s", EntryState.DONE, text)


def test_entries_of_the_runs_before_count() -> None:
    room = Room(Limits(entries=3), Journal({"0": entry("0"), "1": entry("1")}))
    room.for_entry()
    with pytest.raises(LimitExceeded, match="at most 3 entries"):
        room.for_entry()


def test_values_of_the_runs_before_count_in_bytes() -> None:
    room = Room(Limits(journal=20, step_result=20), Journal({"0": entry("0", "ä" * 4)}))
    room.for_value(10)
    with pytest.raises(LimitExceeded, match="at most 20 bytes as JSON, and 1 more"):
        room.for_value(1)


def test_a_value_that_was_refused_takes_no_room() -> None:
    room = Room(Limits(journal=20), Journal())
    with pytest.raises(LimitExceeded):
        room.for_value(21)
    room.for_value(20)


def test_what_can_not_be_too_much_is_not_measured() -> None:
    unmeasurable = Entry("0", Verb.STEP, "s", EntryState.DONE, object())  # pyright: ignore[reportArgumentType]
    Room(Limits(journal=1 << 22, step_result=50), Journal({"0": unmeasurable})).for_value(50)


def test_questions_of_the_runs_before_count_and_the_same_again_does_not() -> None:
    room = Room(Limits(questions=2), Journal(questions={"a": InputRequest("a", {}, 0)}))
    asked = {key: Asked({}, "0") for key in "abc"}
    room.for_questions({"a": asked["a"], "b": asked["b"]}, besides=())
    room.for_questions({"a": asked["a"]}, besides=["a", "b"])
    with pytest.raises(LimitExceeded, match="2 questions"):
        room.for_questions({"b": asked["b"]}, besides=["c"])
