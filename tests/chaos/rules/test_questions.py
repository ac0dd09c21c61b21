"""Keys that stand for two questions, and answers that did not count."""

from dataclasses import replace

from chaos.evidence import Input, Store
from tests.chaos.support import (
    EFFECTS,
    EXCHANGES,
    LAWFUL,
    QUESTION,
    ROW,
    TASK,
    asking,
    broken,
    call,
    completed,
    done,
    effect,
    get,
    rows,
    task,
    told,
    update,
)

KEY = "an input key is one question"
GONE = "an answered key is gone"
ANSWER = "no answer is lost"


def test_a_key_with_two_questions_is_found() -> None:
    other = {**QUESTION, "params": {"message": "your name?"}}
    found = told(get(2.6, task("input_required", 2, inputRequests={"name": other})))
    assert set(found) == {KEY}


def test_a_key_that_is_asked_again_after_its_answer_was_acknowledged_is_found() -> None:
    assert set(told(get(3.6, asking()))) == {GONE}


def test_a_key_may_be_shown_while_its_answer_is_on_its_way() -> None:
    assert not told(get(3.2, asking()))


def test_a_key_may_be_asked_again_if_its_answer_was_not_acknowledged() -> None:
    lost = (*EXCHANGES[:2], update(2.6, "Eve", acknowledged=False), get(2.8, asking()), *EXCHANGES[2:])
    assert not told(instead=lost)


def test_an_acknowledged_answer_that_the_tool_did_not_get_is_lost() -> None:
    two = (*EXCHANGES[:2], update(2.4, "Eve"), *EXCHANGES[2:])
    assert "'Eve' was acknowledged before that was sent" in told(instead=two)[ANSWER][0]


def test_of_two_answers_at_once_either_may_be_the_first() -> None:
    assert not told(update(3.2, "Eve"))


def test_an_answer_that_was_not_acknowledged_may_be_the_one() -> None:
    unsure = (*EXCHANGES[:2], update(2.6, "Ada", acknowledged=False), update(3, "Eve"), *EXCHANGES[3:])
    assert not told(instead=unsure)


def test_an_answer_that_nobody_gave_is_found() -> None:
    assert "which nobody answered" in told(instead=(*EXCHANGES[:2], update(3, "Eve"), *EXCHANGES[3:]))[ANSWER][0]
    assert "nobody has its handle" in told(instead=(call(result=None),))[ANSWER][0]


def test_an_answer_that_changes_between_runs_is_found() -> None:
    assert "changed between runs" in done(effect("answer", "r1", "name", "Eve"))[ANSWER][0]


def test_a_result_without_the_answer_is_found() -> None:
    shown = completed(answers={})
    assert "its result has {}" in told(get(5, shown), instead=EXCHANGES[:-1])[ANSWER][0]


def test_an_answer_that_the_store_does_not_hold_is_found() -> None:
    for kept in (Input("answered", "Eve"), Input("superseded"), Input("outstanding")):
        assert "and the store holds" in rows(ROW, inputs={(TASK, "name"): kept})[ANSWER][0]


def test_only_a_tool_whose_question_has_a_timeout_may_go_on_without_an_answer() -> None:
    silent = (*EFFECTS[:2], effect("answer", name="name"), effect("end"))
    exchanges = (*EXCHANGES[:2], get(3, task(second=3)), get(5, completed(answers={"name": None})))
    inputs = {(TASK, "name"): Input("superseded")}
    found = broken(replace(LAWFUL, exchanges=exchanges, effects=silent, store=Store({TASK: ROW}, inputs)))
    assert found == {ANSWER: ["the tool went on without an answer to 'name'"]}
    patient = (call(kind="impatient"), *exchanges[1:])
    assert not broken(replace(LAWFUL, exchanges=patient, effects=silent, store=Store({TASK: ROW}, inputs)))


def test_a_result_without_what_a_step_came_to_is_found() -> None:
    passed = effect("value", name="charge", value=5)
    assert "its result has {}" in done(passed)[ANSWER][0]
    assert not done(passed, values={"charge": 5})
