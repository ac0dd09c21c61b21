"""Retries that end too early or too late, and attempts that nobody can account for."""

from dataclasses import replace

from chaos.evidence import Change, Store
from chaos.history import FAILED
from chaos.kinds import ATTEMPTS, DEATHS, TRIES
from tests.chaos.support import EFFECTS, INPUTS, LAWFUL, ROW, TASK, broken, completed, effect, stored

ENDS = "a retry ends where it says"
ADDS_UP = "attempts add up"
FAILURES = tuple(effect("fail", f"f{number}", "fragile") for number in range(9))


def refused(kind: str, text: str, **events: int) -> list[str]:
    """What breaks `ENDS` if a task of `kind` came to this error after `events`."""
    result = {"isError": True, "content": [{"type": "text", "text": text}]}
    return list(stored(kind=kind, result=result, events=events).get(ENDS, []))


def test_an_error_after_fewer_attempts_than_allowed_is_found() -> None:
    few = refused("hopeless", "Error executing tool hopeless: r2", retry=ATTEMPTS - 2, death=1)
    assert few == [f"it is error after {ATTEMPTS - 2} retries, and {ATTEMPTS} attempts were allowed"]
    assert not refused("hopeless", "Error executing tool hopeless: r2", retry=ATTEMPTS - 1)
    assert "it is overrun after 0 retries" in refused("overdue", "The tool did not finish within 1 s", overrun=1)[0]


def test_more_attempts_than_allowed_are_found() -> None:
    assert f"after {ATTEMPTS} retries" in stored(kind="fickle", events={"retry": ATTEMPTS})[ENDS][0]
    assert "and 1 attempts were allowed" in stored(events={"retry": 1})[ENDS][0]


def test_a_task_that_is_given_up_after_other_than_its_last_death_is_found() -> None:
    error = {"code": -32603, "message": "The worker that ran the task died or went silent 1 times; giving up"}
    changes = (Change("working", "failed", 1, 2, 1, 2),)
    given_up = replace(ROW, kind="poison", status="failed", result=None, error=error, changes=changes, version=2)
    for deaths in (DEATHS - 1, DEATHS + 1):
        store = Store({TASK: replace(given_up, events={"death": deaths})})
        assert f"given up after {deaths} deaths" in broken(replace(LAWFUL, store=store))[ENDS][0]
    store = Store({TASK: replace(given_up, events={"death": DEATHS - 1, "overrun": 1})})
    assert ENDS not in broken(replace(LAWFUL, store=store))


def tried(tries: int, value: str) -> list[str]:
    """What breaks `ENDS` if a step that was tried `tries` times more came to `value`."""
    effects = (EFFECTS[0], *FAILURES, effect("value", name="fragile", value=value), *EFFECTS[1:])
    store = Store({TASK: replace(ROW, kind="persistent", events={"step_retry": tries})}, INPUTS)
    return list(broken(replace(LAWFUL, effects=effects, store=store)).get(ENDS, []))


def test_a_step_that_failed_for_good_too_early_is_found() -> None:
    assert "failed for good after 1 further tries" in tried(1, FAILED)[0]
    assert not tried(TRIES - 1, FAILED)
    assert not tried(1, "5")


def test_a_step_that_is_tried_too_often_is_found() -> None:
    assert f"tried {TRIES} times more" in tried(TRIES, "5")[0]


def test_a_failure_that_did_not_happen_is_found() -> None:
    for kind in ("retry", "step_retry"):
        found = stored(kind="fickle", events={kind: 1})[ADDS_UP]
        assert "its timeline has 1 failures, and its tool failed 0 times" in found[0]
    assert "its tool failed" not in " ".join(stored(kind="overdue", events={"retry": 1})[ADDS_UP])


def test_an_attempt_that_is_not_accounted_for_is_found() -> None:
    assert "completed in attempt 1, and its timeline has 1 before" in stored(events={"death": 1})[ADDS_UP][0]
    second = tuple(replace(each, attempt=2) for each in EFFECTS)
    assert "completed in attempt 2" in broken(replace(LAWFUL, effects=second))[ADDS_UP][0]
    died = replace(LAWFUL.store, rows={TASK: replace(ROW, events={"death": 1})})
    assert not broken(replace(LAWFUL, effects=second, store=died))
    assert completed()["result"] == ROW.result
