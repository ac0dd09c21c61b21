"""The rules of one task's questions and answers."""

from dataclasses import replace

import pytest

from perdure.domain.errors import InputKeyReused
from perdure.domain.inputs import accept, admit, answers, outstanding
from perdure.domain.model import InputRequest, InputState, JSONObject

NAME: JSONObject = {"method": "elicitation/create", "params": {"message": "Your name?"}}
AGE: JSONObject = {"method": "elicitation/create", "params": {"message": "Your age?"}}


def test_new_questions_enter_the_journal_outstanding_in_the_order_of_asking() -> None:
    entered = admit({}, {"name": NAME, "age": AGE}, 5)
    assert list(entered.items()) == [("name", InputRequest("name", NAME, 5)), ("age", InputRequest("age", AGE, 5))]
    assert all(entry.state is InputState.OUTSTANDING for entry in entered.values())


def test_a_question_that_is_asked_again_on_replay_does_not_enter_twice() -> None:
    journal = admit({}, {"name": NAME}, 5)
    assert admit(journal, {"name": dict(NAME), "age": AGE}, 9) == {"age": InputRequest("age", AGE, 9)}


def test_a_different_question_under_a_used_key_is_an_error_that_names_the_key() -> None:
    journal = admit({}, {"name": NAME}, 5)
    with pytest.raises(InputKeyReused, match="'name'") as caught:
        admit(journal, {"age": AGE, "name": AGE}, 9)
    assert caught.value.key == "name"


@pytest.mark.parametrize("state", [InputState.ANSWERED, InputState.SUPERSEDED])
def test_a_key_stays_taken_when_nobody_waits_for_it_any_more(state: InputState) -> None:
    journal = {"name": InputRequest("name", NAME, 5, state)}
    with pytest.raises(InputKeyReused):
        admit(journal, {"name": AGE}, 9)


def test_an_answer_to_an_outstanding_question_is_accepted_with_its_value() -> None:
    journal = admit({}, {"name": NAME, "age": AGE}, 5)
    accepted = accept(journal, {"name": {"action": "accept"}})
    assert accepted == {"name": replace(journal["name"], state=InputState.ANSWERED, response={"action": "accept"})}


@pytest.mark.parametrize("state", [InputState.ANSWERED, InputState.SUPERSEDED])
def test_the_first_answer_stands(state: InputState) -> None:
    assert accept({"name": InputRequest("name", NAME, 5, state, "first")}, {"name": "second"}) == {}


def test_unknown_keys_are_ignored_whatever_their_value_is() -> None:
    assert accept({}, {"nobody": None, "asked": [], "this": {"deep": [1.5]}}) == {}


def test_outstanding_questions_come_in_the_order_of_asking() -> None:
    journal = admit({}, {"z": NAME, "a": AGE, "m": NAME}, 5)
    assert [entry.key for entry in outstanding(journal | accept(journal, {"a": 1}))] == ["z", "m"]


def test_answers_come_back_in_the_order_of_the_question_once_all_are_there() -> None:
    journal = admit({}, {"name": NAME, "age": AGE}, 5)
    journal |= accept(journal, {"age": 7})
    assert answers(journal, {"name": NAME, "age": AGE}) is None
    journal |= accept(journal, {"name": None})
    assert answers(journal, {"name": NAME, "age": AGE}) == {"name": None, "age": 7}
    assert answers(journal, {"age": AGE}) == {"age": 7}


def test_there_is_no_answer_to_what_was_never_asked() -> None:
    assert answers({}, {"name": NAME}) is None


def test_asking_nothing_is_answered_at_once() -> None:
    assert answers({}, {}) == {}
