"""Servers that say what they must not, and what they leave behind."""

from dataclasses import replace

from tests.chaos.support import LAWFUL, ROW, broken, get, rows, said, stored, told


def test_an_error_that_the_contract_does_not_have_is_found() -> None:
    assert set(told(get(3, error={"code": -32603, "message": "Internal error"}))) == {"a server keeps to the contract"}


def test_a_store_that_is_unavailable_for_a_moment_keeps_to_the_contract() -> None:
    assert not told(get(3, error={"code": -32000, "message": "The task store is unavailable"}))


def test_other_systems_have_errors_of_their_own() -> None:
    for code in (409, 503):
        assert "a server keeps to the contract" not in told(said(3, "x", code=code))
    for code in (401, 500, -32000):
        assert "a server keeps to the contract" in told(said(3, "x", code=code))


def test_an_unsound_store_is_found() -> None:
    for more in ({"integrity": "row missing"}, {"sessions": 1}, {"held": 1}):
        assert set(rows(ROW, **more)) == {"the store is sound"}
    assert "it is completed, and has a run" in stored(runnable=True)["the store is sound"][0]


def test_a_process_that_ended_by_itself_is_found() -> None:
    found = broken(replace(LAWFUL, wrong=("server-1 ended with status 1",)))
    assert found == {"no process ends by itself": ["server-1 ended with status 1"]}


def test_a_log_that_says_what_it_should_not_is_found() -> None:
    found = broken(replace(LAWFUL, oddities=("worker-0.log:7 tells a secret",)))
    assert found == {"logs are in order": ["worker-0.log:7 tells a secret"]}
