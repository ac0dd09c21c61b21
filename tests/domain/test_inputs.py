"""The rules of one task's questions and answers."""

from dataclasses import replace

import pytest

from perdure.domain.errors import InputKeyReused
from perdure.domain.inputs import accept, admit, awaited, closed, outstanding, turned, unanswered
from perdure.domain.model import Asked, InputRequest, InputState, JSONObject

NAME: JSONObject = {"method": "elicitation/create", "params": {"message": "Your name?"}}
AGE: JSONObject = {"method": "elicitation/create", "params": {"message": "Your age?"}}
BOTH = {"name": Asked(NAME), "age": Asked(AGE)}


def test_new_questions_enter_the_record_outstanding_in_the_order_of_asking() -> None:
    entered = admit({}, BOTH, 5)
    assert list(entered.items()) == [("name", InputRequest("name", NAME, 5)), ("age", InputRequest("age", AGE, 5))]
    assert all(entry.state is InputState.OUTSTANDING for entry in entered.values())


def test_a_question_enters_with_its_place_and_the_instant_up_to_which_it_may_stay_open() -> None:
    entered = admit({}, {"name": Asked(NAME, place="3.0/1", timeout_ms=60_000), "age": Asked(AGE, place="4")}, 5)
    assert (entered["name"].place, entered["name"].deadline) == ("3.0/1", 60_005)
    assert (entered["age"].place, entered["age"].deadline) == ("4", None)


def test_a_question_that_is_asked_again_on_replay_does_not_enter_twice() -> None:
    questions = admit({}, {"name": Asked(NAME)}, 5)
    assert admit(questions, {"name": Asked(dict(NAME)), "age": Asked(AGE)}, 9) == {"age": InputRequest("age", AGE, 9)}


def test_asking_again_on_replay_does_not_prolong_the_time_that_a_question_may_stay_open() -> None:
    asked = {"name": Asked(NAME, timeout_ms=10)}
    assert admit(admit({}, asked, 5), asked, 9) == {}


def test_a_different_question_under_a_used_key_is_an_error_that_names_the_key() -> None:
    questions = admit({}, {"name": Asked(NAME)}, 5)
    with pytest.raises(InputKeyReused, match="'name'") as caught:
        admit(questions, {"age": Asked(AGE), "name": Asked(AGE)}, 9)
    assert caught.value.key == "name"


@pytest.mark.parametrize("state", [InputState.ANSWERED, InputState.SUPERSEDED])
def test_a_key_stays_taken_when_nobody_waits_for_it_any_more(state: InputState) -> None:
    questions = {"name": InputRequest("name", NAME, 5, state)}
    with pytest.raises(InputKeyReused):
        admit(questions, {"name": Asked(AGE)}, 9)


def test_an_answer_to_an_outstanding_question_is_accepted_with_its_value() -> None:
    questions = admit({}, BOTH, 5)
    accepted = accept(questions, {"name": {"action": "accept"}})
    assert accepted == {"name": replace(questions["name"], state=InputState.ANSWERED, response={"action": "accept"})}


@pytest.mark.parametrize("state", [InputState.ANSWERED, InputState.SUPERSEDED])
def test_the_first_answer_stands(state: InputState) -> None:
    assert accept({"name": InputRequest("name", NAME, 5, state, "first")}, {"name": "second"}) == {}


def test_unknown_keys_are_ignored_whatever_their_value_is() -> None:
    assert accept({}, {"nobody": None, "asked": [], "this": {"deep": [1.5]}}) == {}


def test_outstanding_questions_come_in_the_order_of_asking() -> None:
    questions = admit({}, {"z": Asked(NAME), "a": Asked(AGE), "m": Asked(NAME)}, 5)
    assert [entry.key for entry in outstanding(questions | accept(questions, {"a": 1}))] == ["z", "m"]


@pytest.mark.parametrize(("now", "over"), [(14, []), (15, ["name"]), (16, ["name"]), (10**15, ["name"])])
def test_a_question_is_given_up_at_its_deadline_and_one_without_never(now: int, over: list[str]) -> None:
    questions = admit({}, {"name": Asked(NAME, timeout_ms=10), "age": Asked(AGE)}, 5)
    given_up = unanswered(questions, now)
    assert list(given_up) == over
    assert all(entry.state is InputState.SUPERSEDED for entry in given_up.values())


def test_a_question_that_was_answered_in_time_is_not_given_up_afterwards() -> None:
    questions = admit({}, {"name": Asked(NAME, timeout_ms=10)}, 5)
    assert unanswered(questions | accept(questions, {"name": "Ada"}), 1_000) == {}


def test_a_question_is_given_up_once() -> None:
    questions = admit({}, {"name": Asked(NAME, timeout_ms=10)}, 5)
    assert unanswered(questions | unanswered(questions, 15), 16) == {}


def test_questions_are_closed_in_the_order_of_asking_for_them_once_none_is_open() -> None:
    questions = admit({}, BOTH, 5)
    questions |= accept(questions, {"age": 7})
    assert closed(questions, ["name", "age"]) is None
    questions |= accept(questions, {"name": None})
    assert closed(questions, ["name", "age"]) == {"name": questions["name"], "age": questions["age"]}
    assert list(closed(questions, ["age", "name"]) or ()) == ["age", "name"]
    assert closed(questions, ["age"]) == {"age": questions["age"]}


def test_a_question_that_was_given_up_is_closed_and_says_that_there_is_no_answer() -> None:
    questions = admit({}, {"name": Asked(NAME, timeout_ms=10), "age": Asked(AGE)}, 5)
    questions |= unanswered(questions, 15) | accept(questions, {"age": 7})
    found = closed(questions, ["name", "age"])
    assert found is not None
    assert (found["name"].state, found["name"].response) == (InputState.SUPERSEDED, None)
    assert (found["age"].state, found["age"].response) == (InputState.ANSWERED, 7)


def test_keys_that_can_be_read_only_once_are_judged_like_any_others() -> None:
    questions = admit({}, BOTH, 5)
    assert closed(questions, (key for key in BOTH)) is None


def test_what_was_never_asked_is_not_closed() -> None:
    assert closed({}, ["name"]) is None


def test_asking_nothing_is_closed_at_once() -> None:
    assert closed({}, []) == {}


# -- left behind -------------------------------------------------------------------------------------------------------


def test_a_question_that_the_run_no_longer_waits_for_stays_open_and_is_not_awaited() -> None:
    questions = admit({}, BOTH, 5)
    left = turned(questions, {"age"})
    assert left == {"name": replace(questions["name"], awaited=False)}
    after = questions | left
    assert [each.key for each in awaited(after)] == ["age"]
    assert [each.key for each in outstanding(after)] == ["name", "age"]
    assert accept(after, {"name": "Ada"})["name"].response == "Ada"


def test_a_question_that_the_run_comes_by_again_is_awaited_again() -> None:
    questions = admit({}, BOTH, 5)
    after = questions | turned(questions, {"age"})
    assert turned(after, {"age"}) == {}
    assert after | turned(after, {"name", "age"}) == questions


def test_what_is_closed_is_left_as_it_is() -> None:
    questions = admit({}, BOTH, 5)
    assert turned(questions | accept(questions, {"name": "Ada", "age": 7}), ()) == {}
