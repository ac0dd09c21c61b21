"""How external work comes to its end: once, and by whoever has its token."""

from dataclasses import replace

import pytest

from perdure.domain.errors import AlreadySettled, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Verb, settled
from perdure.domain.model import JSON
from tests.domain.support import NOW

TOKEN = "kP3vG9"
WORK = Entry("3", Verb.EXTERNAL, "render", EntryState.STARTED, {"token": TOKEN}, wake_at=NOW)


@pytest.mark.parametrize("state", [EntryState.DONE, EntryState.FAILED])
@pytest.mark.parametrize("value", [None, 7, "done", [1, 2], {"token": "mine", "value": None}])
def test_work_is_settled_with_its_value_and_keeps_its_token(state: EntryState, value: JSON) -> None:
    after = settled(WORK, TOKEN, state, value)
    assert after == replace(WORK, state=state, value={"token": TOKEN, "value": value})
    assert after is not None
    assert after.over


@pytest.mark.parametrize("value", [None, {"url": "x"}])
def test_who_says_the_same_again_is_told_nothing_new(value: JSON) -> None:
    after = settled(WORK, TOKEN, EntryState.DONE, value)
    assert settled(after, TOKEN, EntryState.DONE, value) is None


@pytest.mark.parametrize(("state", "value"), [(EntryState.DONE, "other"), (EntryState.FAILED, "done")])
def test_the_first_settlement_stands(state: EntryState, value: JSON) -> None:
    after = settled(WORK, TOKEN, EntryState.DONE, "done")
    with pytest.raises(AlreadySettled):
        settled(after, TOKEN, state, value)


def test_work_that_was_given_up_can_not_be_completed_afterwards() -> None:
    given_up = replace(WORK, state=EntryState.FAILED)
    with pytest.raises(AlreadySettled):
        settled(given_up, TOKEN, EntryState.DONE, "too late")


FORGED = ["", "kP3vG", "kP3vG99", "KP3VG9", "other", "\0", "\ud800", "naïve", "9" * 100_000]


@pytest.mark.parametrize("token", FORGED)
def test_a_forged_token_settles_nothing(token: str) -> None:
    with pytest.raises(TaskNotFound):
        settled(WORK, token, EntryState.DONE, None)


@pytest.mark.parametrize("token", FORGED)
def test_a_forged_token_does_not_learn_that_the_work_is_over(token: str) -> None:
    with pytest.raises(TaskNotFound):
        settled(settled(WORK, TOKEN, EntryState.DONE, "done"), token, EntryState.DONE, "done")


WITHOUT_TOKEN: list[JSON] = [None, [], {}, TOKEN, {"token": None}, {"token": [TOKEN]}]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        *(replace(WORK, verb=verb) for verb in Verb if verb is not Verb.EXTERNAL),
        *(replace(WORK, value=value) for value in WITHOUT_TOKEN),
    ],
)
@pytest.mark.parametrize("token", [TOKEN, "", "None"])
def test_there_is_nothing_to_settle_but_external_work_that_has_a_token(entry: Entry | None, token: str) -> None:
    with pytest.raises(TaskNotFound):
        settled(entry, token, EntryState.DONE, None)


def test_an_empty_token_is_no_token() -> None:
    with pytest.raises(TaskNotFound):
        settled(replace(WORK, value={"token": ""}), "", EntryState.DONE, None)
