"""Which tasks an operator means, and what comes of making a run due."""

from dataclasses import replace

import pytest

from perdure.domain import policy
from perdure.domain.journal import Entry, EntryState, Journal, Verb
from perdure.domain.model import InputRequest, InputState, Owner, Status
from perdure.domain.operating import Hastened, Which, deadlines, on_hasten, woken
from tests.domain.support import NOW, OPERATION, QUESTION, fresh

UNFINISHED = {Status.WORKING, Status.INPUT_REQUIRED}


def test_who_says_nothing_means_all() -> None:
    assert Which().means(fresh(), OPERATION, NOW)
    assert not Which().unfinished


def test_a_filter_is_about_unfinished_tasks_only_if_it_names_no_other_status() -> None:
    assert Which(frozenset(UNFINISHED)).unfinished
    assert Which(frozenset({Status.WORKING})).unfinished
    assert not Which(frozenset({Status.WORKING, Status.FAILED})).unfinished


@pytest.mark.parametrize(
    "which",
    [
        Which(frozenset({Status.FAILED})),
        Which(name="another"),
        Which(tenant="another"),
        Which(principal="another"),
        Which(older_ms=11),
        Which(newer_ms=10),
        Which(unchanged_ms=5),
    ],
)
def test_each_part_leaves_out_what_it_does_not_name(which: Which) -> None:
    task = replace(fresh(), created_at=NOW - 10, updated_at=NOW - 4)
    assert not which.means(task, OPERATION, NOW)


def test_what_fits_all_parts_is_meant() -> None:
    task = replace(fresh(), owner=Owner("t", "p"), created_at=NOW - 10, updated_at=NOW - 4)
    which = Which(frozenset({Status.WORKING}), OPERATION.name, "t", "p", older_ms=10, newer_ms=11, unchanged_ms=4)
    assert which.means(task, OPERATION, NOW)


# -- hastening ---------------------------------------------------------------------------------------------------------

SOON = NOW + 1_000


@pytest.mark.parametrize(
    ("due_at", "held", "naps", "promised", "done"),
    [
        (None, True, False, (), Hastened.HELD),
        (None, False, False, (), Hastened.WAITING),
        (policy.due_at_once(NOW), False, False, (), Hastened.READY),
        (NOW, False, True, (), Hastened.READY),
        (SOON, False, False, (), Hastened.DUE),
        (SOON, False, False, (SOON + 1,), Hastened.DUE),
        (SOON, False, False, (SOON,), Hastened.WAITING),
        (SOON, False, True, (SOON,), Hastened.DUE),
    ],
)
def test_only_a_run_that_waits_for_a_time_of_its_own_is_made_due(
    due_at: int | None, held: bool, naps: bool, promised: tuple[int, ...], done: Hastened
) -> None:
    assert on_hasten(due_at, NOW, held=held, naps=naps, promised=promised) is done


def entry(place: str, verb: Verb, state: EntryState, wake_at: int | None) -> Entry:
    return Entry(place, verb, "", state, None, wake_at)


ENTRIES = [
    entry("0", Verb.SLEEP, EntryState.STARTED, SOON),
    entry("1", Verb.SLEEP, EntryState.STARTED, NOW),
    entry("2", Verb.SLEEP, EntryState.DONE, SOON),
    entry("3", Verb.STEP, EntryState.RETRYING, SOON),
    entry("4", Verb.STEP, EntryState.STARTED, SOON),
    entry("5", Verb.EXTERNAL, EntryState.STARTED, SOON + 5),
    entry("6", Verb.EXTERNAL, EntryState.STARTED, None),
    entry("7", Verb.EXTERNAL, EntryState.DONE, SOON + 7),
]


def question(key: str, state: InputState, deadline: int | None) -> InputRequest:
    return replace(QUESTION, key=key, state=state, deadline=deadline)


def test_what_still_sleeps_and_what_is_to_be_tried_again_is_woken() -> None:
    journal = Journal({each.place: each for each in ENTRIES})
    assert woken(journal, NOW) == (replace(ENTRIES[0], wake_at=NOW), replace(ENTRIES[3], wake_at=NOW))


def test_questions_that_are_open_and_work_that_is_under_way_have_deadlines() -> None:
    asked = [
        question("a", InputState.OUTSTANDING, SOON),
        question("b", InputState.OUTSTANDING, None),
        question("c", InputState.ANSWERED, SOON + 1),
        question("d", InputState.SUPERSEDED, SOON + 2),
    ]
    journal = Journal({each.place: each for each in ENTRIES}, {each.key: each for each in asked})
    assert deadlines(journal) == {SOON, SOON + 5}
