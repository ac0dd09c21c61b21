"""The journal: where each verb stands, whether the code is the one that began, and what is done again."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from perdure.domain.errors import JournalMismatch
from perdure.domain.journal import Entry, EntryState, Journal, Replay, Scope, Verb, Waits, undone
from perdure.domain.model import JSON, Asked, InputRequest, InputState
from tests.domain.programs import (
    Address,
    Came,
    Line,
    Program,
    chances,
    come_by,
    in_order,
    journal_of,
    programs,
    run,
    traced,
)
from tests.domain.support import NOW

STEP, SHIP, SLEEP = Line(Verb.STEP, "charge"), Line(Verb.STEP, "ship"), Line(Verb.SLEEP)
WHO, JOB = Line(Verb.ASK, keys=("who",)), Line(Verb.EXTERNAL, "charge")
A_DOZEN: Program = (STEP,) * 12


def gather(*branches: Program) -> Line:
    return Line(Verb.GATHER, branches=branches)


def replay(program: Program, journal: Journal) -> list[Entry | None]:
    """Run `program` to its end against `journal`: what it finds at each verb."""
    again = Replay(journal)
    found = [come_by(again, each) for each in in_order(program)]
    again.check_complete()
    return found


def recorded(program: Program) -> Journal:
    return journal_of(in_order(program))


def one_of(came: list[Came], data: st.DataObject, label: str) -> Came:
    assume(came)
    return data.draw(st.sampled_from(came), label)


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_verb_stands_at_its_number_and_a_branch_begins_to_count_anew() -> None:
    places = {each.address: each.place for each in in_order((STEP, STEP, gather((STEP, STEP), (), (STEP,)), STEP))}
    assert places == {
        (0,): "0",
        (1,): "1",
        (2,): "2",
        (2, 0, 0): "2.0/0",
        (2, 0, 1): "2.0/1",
        (2, 2, 0): "2.2/0",
        (3,): "3",
    }


def test_a_gather_in_a_gather_shows_the_whole_way_to_it() -> None:
    places = [each.place for each in in_order((STEP, gather((STEP, gather((STEP,), (STEP, STEP))))))]
    assert sorted(places) == ["0", "1", "1.0/0", "1.0/1", "1.0/1.0/0", "1.0/1.1/0", "1.0/1.1/1"]


def test_the_scope_of_a_branch_is_told_by_its_gather_and_its_number() -> None:
    assert Scope.branch("3", 0).next_place() == "3.0/0"
    assert Scope.branch("3.0/1", 12).next_place() == "3.0/1.12/0"


@given(programs, chances)
@example(A_DOZEN, Random(0))
def test_no_two_verbs_share_a_place_however_gathers_are_nested(program: Program, chance: Random) -> None:
    came = list(run(program, chance))
    assert len({each.place for each in came}) == len(came)


@given(programs, chances, chances)
def test_a_verb_has_the_same_place_whichever_branch_gets_further_first(
    program: Program, one: Random, other: Random
) -> None:
    assert {each.address: each.place for each in run(program, one)} == {
        each.address: each.place for each in run(program, other)
    }


# -- the same code -----------------------------------------------------------------------------------------------------


@given(programs, chances, chances)
def test_the_same_code_finds_every_entry_and_leaves_none(program: Program, then: Random, now: Random) -> None:
    again = Replay(journal_of(run(program, then)))
    for each in run(program, now):
        found = come_by(again, each)
        assert each.entry is None or found == each.entry
    again.check_complete()


@given(programs, chances, chances, st.data())
def test_code_that_was_cut_off_finds_what_it_did_and_goes_on_from_there(
    program: Program, then: Random, now: Random, data: st.DataObject
) -> None:
    whole = list(run(program, then))
    before = whole[: data.draw(st.integers(0, len(whole)), "cut off after")]
    done = {each.place for each in before}
    again = Replay(journal_of(before))
    for each in run(program, now):
        found = come_by(again, each)
        if each.entry is not None:
            assert found == (each.entry if each.place in done else None)
            again.note(each.entry)
    again.check_complete()


@given(programs, st.data())
def test_verbs_that_were_appended_are_no_mismatch(whole: Program, data: st.DataObject) -> None:
    began = whole[: data.draw(st.integers(0, len(whole)), "began with")]
    kept = [each for each in in_order(began) if each.entry is not None]
    found = [entry for entry in replay(whole, recorded(began)) if entry is not None and entry.verb is not Verb.GATHER]
    assert found == [each.entry for each in kept]


def test_a_branch_that_was_appended_is_no_mismatch() -> None:
    found = replay((gather((STEP,), (SHIP,)),), recorded((gather((STEP,)),)))
    assert [entry is None for entry in found].count(True) == 1


def test_code_that_has_no_durable_verb_agrees_with_an_empty_journal() -> None:
    assert replay((), Journal()) == []


@pytest.mark.parametrize("state", EntryState)
def test_an_entry_is_found_however_far_it_is(state: EntryState) -> None:
    entry = Entry("0", Verb.STEP, "charge", state, {"failures": 1}, wake_at=NOW)
    assert Replay(Journal({"0": entry})).find("0", Verb.STEP, "charge") == entry


def test_what_was_noted_is_what_is_found_from_then_on() -> None:
    tried = Entry("0", Verb.STEP, "charge", EntryState.RETRYING, {"failures": 1}, wake_at=NOW)
    again = Replay(Journal({"0": tried}))
    done = replace(tried, state=EntryState.DONE, value="ch_1", wake_at=None)
    again.note(done)
    assert again.find("0", Verb.STEP, "charge") == done


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", InputState)
def test_a_question_stands_at_its_place_however_far_it_is(state: InputState) -> None:
    again = Replay(Journal({}, {"who": InputRequest("who", {}, NOW, state, place="0")}))
    with pytest.raises(JournalMismatch, match="at place 0 the journal has ask 'who', and the code ended"):
        again.check_complete()
    again.find_ask("0", ["who"])
    again.check_complete()


def test_the_order_of_the_keys_of_one_question_is_not_the_order_of_the_code() -> None:
    again = Replay(recorded((Line(Verb.ASK, keys=("who", "when")),)))
    again.find_ask("0", ["when", "who"])
    again.check_complete()


def test_a_question_that_comes_with_a_new_one_is_no_mismatch_since_one_of_the_two_may_have_been_asked_before() -> None:
    replay((Line(Verb.ASK, keys=("who", "when")),), recorded((WHO,)))


def test_a_question_that_lost_its_place_stands_nowhere() -> None:
    again = Replay(Journal({}, {"who": InputRequest("who", {}, NOW)}))
    again.find_ask("0", ["who"])
    again.check_complete()


# -- other code --------------------------------------------------------------------------------------------------------


def mismatch(program: Program, journal: Journal) -> JournalMismatch:
    with pytest.raises(JournalMismatch) as caught:
        replay(program, journal)
    return caught.value


OTHERS: dict[str, tuple[Program, Program, str, str]] = {
    "renamed": ((STEP,), (SHIP,), "0", "has step 'charge', and the code comes there with step 'ship'"),
    "reordered": ((STEP, SHIP), (SHIP, STEP), "0", "has step 'charge', and the code comes there with step 'ship'"),
    "inserted": ((STEP, SLEEP), (STEP, SHIP, SLEEP), "1", "has sleep, and the code comes there with step 'ship'"),
    "another kind": ((STEP,), (JOB,), "0", "has step 'charge', and the code comes there with external 'charge'"),
    "a kind without names": ((STEP,), (SLEEP,), "0", "has step 'charge', and the code comes there with sleep"),
    "missing": ((STEP, SHIP), (STEP,), "1", "has step 'ship', and the code ended without coming there"),
    "all missing": ((STEP,), (), "0", "has step 'charge', and the code ended without coming there"),
    "in a branch": (
        (gather((STEP,), (STEP, STEP)),),
        (gather((STEP,), (STEP, SHIP)),),
        "0.1/1",
        "has step 'charge', and the code comes there with step 'ship'",
    ),
    "a branch less": (
        (gather((STEP,), (STEP,)),),
        (gather((STEP,)),),
        "0.1/0",
        "has step 'charge', and the code ended without coming there",
    ),
    "no gather any more": ((gather((STEP,)),), (STEP,), "0", "has gather, and the code comes there with step 'charge'"),
    "no outer gather any more": (
        (gather((gather((STEP,)),)),),
        (SLEEP,),
        "0",
        "has gather, and the code comes there with sleep",
    ),
    "a gather now": ((STEP,), (gather((STEP,)),), "0", "has step 'charge', and the code comes there with gather"),
    "no question any more": ((WHO,), (STEP,), "0", "has ask 'who', and the code comes there with step 'charge'"),
    "a question now": ((STEP,), (WHO,), "0", "has step 'charge', and the code comes there with ask 'who'"),
    "a question less": (
        (Line(Verb.ASK, keys=("who", "when")),),
        (WHO,),
        "0",
        "has ask 'when, who', and the code comes there with ask 'who'",
    ),
    "another question": (
        (WHO,),
        (Line(Verb.ASK, keys=("why",)),),
        "0",
        "has ask 'who', and the code comes there with ask 'why'",
    ),
}


@pytest.mark.parametrize(("began", "runs_now", "place", "says"), OTHERS.values(), ids=OTHERS)
def test_code_that_does_otherwise_is_told_where_and_both_sides(
    began: Program, runs_now: Program, place: str, says: str
) -> None:
    error = mismatch(runs_now, recorded(began))
    assert error.place == place
    assert f"at place {place} the journal {says}. " in str(error)


@given(programs, st.data())
def test_any_one_verb_that_was_renamed_is_named_with_its_old_name(program: Program, data: st.DataObject) -> None:
    one = one_of([each for each in in_order(program) if each.kept], data, "renamed")
    renamed = replace(one.line, keys=("another",)) if one.line.keys else replace(one.line, name="another")
    with pytest.raises(JournalMismatch) as caught:
        come_by(Replay(recorded(program)), replace(one, line=renamed))
    assert caught.value.place == one.place
    assert f"has {one}, and the code comes there with {one.line.verb} 'another'" in str(caught.value)


@given(programs, st.data())
def test_any_one_verb_of_another_kind_is_named_with_both_kinds(program: Program, data: st.DataObject) -> None:
    one = one_of(traced(in_order(program)), data, "changed")
    kind = data.draw(st.sampled_from([verb for verb in Verb if verb is not one.line.verb]), "kind")
    with pytest.raises(JournalMismatch, match=rf"the journal has {one.line.verb}\b.* comes there with {kind}\b"):
        come_by(Replay(recorded(program)), replace(one, line=replace(one.line, verb=kind)))


@given(programs, st.data())
def test_code_that_lacks_any_one_verb_is_never_taken_for_the_whole(program: Program, data: st.DataObject) -> None:
    gone = one_of([each for each in traced(in_order(program)) if len(each.address) == 1], data, "gone").address[0]
    assert mismatch(program[:gone] + program[gone + 1 :], recorded(program)).place


@given(programs, st.data())
def test_any_two_verbs_that_changed_places_are_a_mismatch_unless_their_record_is_the_same(
    program: Program, data: st.DataObject
) -> None:
    assume(len(program) > 1)
    first = data.draw(st.integers(0, len(program) - 2), "first")
    one, other = program[first], program[first + 1]
    assume(recorded((one,)) != recorded((other,)))
    assert mismatch((*program[:first], other, one, *program[first + 2 :]), recorded(program)).place


@given(programs, chances, st.data())
def test_the_first_verb_that_the_code_did_not_come_to_is_named(
    program: Program, chance: Random, data: st.DataObject
) -> None:
    came = list(run(program, chance))
    left = {one_of(traced(came), data, "left"), one_of(traced(came), data, "left as well")}
    again = Replay(journal_of(came))
    for each in came:
        if each not in left:
            come_by(again, each)
    with pytest.raises(JournalMismatch, match="ended without coming there") as caught:
        again.check_complete()
    assert caught.value.place == min(left, key=lambda each: each.address).place


def test_the_third_of_a_dozen_comes_before_the_eleventh() -> None:
    assert mismatch(A_DOZEN[:2], recorded(A_DOZEN)).place == "2"


def test_a_verb_that_another_one_came_for_still_counts_as_left() -> None:
    again = Replay(recorded((STEP, WHO)))
    for stranger in (lambda: again.find("0", Verb.SLEEP), lambda: again.find_ask("1", ["why"])):
        with pytest.raises(JournalMismatch):
            stranger()
    with pytest.raises(JournalMismatch, match=r"at place 0 .* ended without"):
        again.check_complete()


# -- what another attempt does again -----------------------------------------------------------------------------------


def is_undone(address: Address, failed: Address) -> bool:
    """Whether `address` is at `failed`, after it, or after a gather around it; or below such a one."""
    last = len(failed) - 1
    return any(  # over the numbers; between them stand those of the branches
        address[:depth] == failed[:depth] and len(address) > depth and address[depth] >= failed[depth] + (depth != last)
        for depth in range(0, len(failed), 2)
    )


@given(programs, st.data())
def test_what_is_done_again_is_the_step_that_failed_and_what_came_after_it(
    program: Program, data: st.DataObject
) -> None:
    came = in_order(program)
    failed = one_of(came, data, "failed")
    dropped = undone([each.place for each in came], failed.place)
    assert dropped == {each.place for each in came if is_undone(each.address, failed.address)}


@given(programs, st.data())
def test_the_code_runs_again_from_the_failed_step_on_without_a_mismatch(program: Program, data: st.DataObject) -> None:
    came = in_order(program)
    failed = one_of(came, data, "failed")
    dropped = undone([each.place for each in came], failed.place)
    again = Replay(journal_of(each for each in came if each.place not in dropped))
    for each in came:
        found = come_by(again, each)
        if each.entry is not None:
            assert (found is None) == (each.place in dropped)
            again.note(each.entry)
    again.check_complete()


PLACES = ["0", "1", "2", "2.0/0", "2.10/0", "2.10/1", "10"]


@pytest.mark.parametrize(
    ("failed", "dropped"),
    [
        ("0", set(PLACES)),
        ("1", {"1", "2", "2.0/0", "2.10/0", "2.10/1", "10"}),
        ("2", {"2", "2.0/0", "2.10/0", "2.10/1", "10"}),
        ("10", {"10"}),
        ("11", set[str]()),
        ("2.0/0", {"2.0/0", "10"}),
        ("2.1/0", {"10"}),
        ("2.10/0", {"2.10/0", "2.10/1", "10"}),
        ("2.10/1", {"2.10/1", "10"}),
    ],
)
def test_numbers_are_compared_as_numbers_and_branches_by_the_whole_number(failed: str, dropped: set[str]) -> None:
    assert undone(PLACES, failed) == dropped


# -- the values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", EntryState)
def test_a_verb_is_over_once_something_came_of_it(state: EntryState) -> None:
    assert Entry("0", Verb.STEP, "charge", state).over == (state in {EntryState.DONE, EntryState.FAILED})


@pytest.mark.parametrize("verb", Verb)
def test_an_entry_reads_as_its_verb_and_its_name(verb: Verb) -> None:
    assert str(Entry("0", verb, "it's", EntryState.DONE)) == f'{verb} "it\'s"'
    assert str(Entry("0", verb, "", EntryState.DONE)) == verb.value


def test_stored_entries_are_read_back_by_the_words_that_they_were_written_with() -> None:
    """These words stand in databases: one may be added, none may be changed."""
    assert {"step", "sleep", "ask", "external", "gather"} <= set(Verb)
    assert {"started", "retrying", "done", "failed"} <= set(EntryState)


def test_a_journal_and_a_wait_begin_empty_and_share_nothing() -> None:
    assert (Journal().entries, Journal().questions) == ({}, {})
    assert Journal().entries is not Journal().entries
    assert Waits() == Waits({}, (), frozenset(), minds_cancel=False)
    assert Waits(asked={"who": Asked({})}) != Waits()


# -- who is to hear of a cancellation ----------------------------------------------------------------------------------


def test_external_work_under_way_that_is_to_be_told_minds_a_cancellation() -> None:
    work = Entry("0", Verb.EXTERNAL, "render", EntryState.STARTED, {"token": "t", "tell": True})
    assert work.minds_cancel
    assert not replace(work, state=EntryState.DONE).minds_cancel
    assert not replace(work, verb=Verb.STEP).minds_cancel
    values: list[JSON] = [{"token": "t"}, {"tell": False}, None, "tell"]
    assert not any(replace(work, value=value).minds_cancel for value in values)
