"""The journal's entries: written under the fence, read back as they were."""

from dataclasses import replace

import pytest

from perdure.domain import timeline
from perdure.domain.errors import NotStorable
from perdure.domain.journal import Entry, EntryState, Journal, Verb
from perdure.domain.model import JSON
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    DONE,
    NAME,
    NOW,
    Changes,
    asks,
    external,
    hire,
    running,
    step,
)


async def test_a_new_task_has_an_empty_journal(store: Store) -> None:
    assert await store.journal(await running(store)) == Journal()


async def test_entries_come_back_as_they_were_written(store: Store) -> None:
    claim = await running(store)
    value: JSON = {"none": None, "text": "ünï\0cödé 🦊", "numbers": [0, 2**53 + 1, 0.1], "deep": {"": [[], {}]}}
    entries = [
        step("0", value),
        Entry("1", Verb.STEP, "", EntryState.FAILED, {"type": "ValueError", "message": "no"}),
        Entry("2", Verb.SLEEP, "", EntryState.STARTED, None, wake_at=NOW + 7),
        Entry("3.0/1", Verb.STEP, "📦 pack", EntryState.RETRYING, {"failures": 2}, wake_at=NOW),
        external("3.1/0"),
    ]
    for entry in entries:
        assert await store.record(claim, entry) == entry
    assert await store.journal(claim) == Journal({entry.place: entry for entry in entries})


async def test_an_entry_takes_the_place_of_the_one_that_stands_there(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step("0", state=EntryState.STARTED), wake_in_ms=5)
    await store.record(claim, step("1", "kept"))
    await store.record(claim, step("0", "done"))
    assert (await store.journal(claim)).entries == {"0": step("0", "done"), "1": step("1", "kept")}


async def test_a_span_becomes_an_instant_when_it_is_written(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    entry = await store.record(claim, step(state=EntryState.RETRYING), wake_in_ms=500)
    assert entry == Entry("0", Verb.STEP, "step 0", EntryState.RETRYING, None, wake_at=NOW + 510)
    assert (await store.journal(claim)).entries == {"0": entry}


async def test_the_note_of_a_step_that_failed_becomes_an_event(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step("0"))
    clock.advance(10)
    await store.record(claim, step("1", state=EntryState.RETRYING), wake_in_ms=500, note="step 1: ValueError")
    events = (await store.inspect(claim.task.id)).events
    assert events == (timeline.Event(NOW + 10, timeline.EventKind.STEP_RETRY, "step 1: ValueError"),)


async def test_a_failed_try_that_is_recorded_again_since_nobody_heard_of_it_is_one_try(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    first = replace(step(state=EntryState.RETRYING), value={"failures": 1})
    recorded = await store.record(claim, first, wake_in_ms=500, note="try 1")
    clock.advance(10)
    assert await store.record(claim, first, wake_in_ms=500, note="try 1") == recorded
    await store.record(claim, replace(first, value={"failures": 2}), wake_in_ms=500, note="try 2")
    assert [event.detail for event in (await store.inspect(claim.task.id)).events] == ["try 1", "try 2"]


async def test_recording_shows_no_change_to_the_task(store: Store, changes: Changes) -> None:
    claim = await running(store)
    changes.clear()
    await store.record(claim, step(), note="again")
    assert await store.get(ADA, claim.task.id) == claim.task
    assert changes == []


async def test_the_journal_outlives_the_worker_and_the_end_of_the_task(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step())
    await store.release(claim)
    again = await (await hire(store)).claim_one()
    assert (await store.journal(again)).entries == {"0": step()}
    await store.finish(again, DONE)
    assert (await store.journal(claim)).entries == {"0": step()}


async def test_two_tasks_have_journals_of_their_own(store: Store) -> None:
    one, other = await running(store), await running(store)
    await store.record(one, step("0", "one"))
    await store.record(other, step("0", "other"))
    assert (await store.journal(one)).entries == {"0": step("0", "one")}


async def test_questions_and_entries_stand_side_by_side(store: Store) -> None:
    claim = await running(store)
    await store.record(claim, step())
    task = await store.park(claim, asks(name=NAME))
    assert await store.journal(claim) == Journal({"0": step()}, {"name": task.inputs[0]})


@pytest.mark.parametrize(
    "entry",
    [
        step("0", float("nan")),
        step("0", {"deep": ["\ud800"]}),
        step("\ud800"),
        Entry("0", Verb.STEP, "\ud800", EntryState.DONE),
        step("\0"),
        Entry("0", Verb.STEP, "\0", EntryState.DONE),
    ],
    ids=["nan", "value", "place", "name", "null-place", "null-name"],
)
async def test_an_entry_that_can_not_be_stored_is_refused_and_nothing_is_changed(store: Store, entry: Entry) -> None:
    claim = await running(store)
    await store.record(claim, step("0", "before"))
    before = await store.inspect(claim.task.id)
    with pytest.raises(NotStorable):
        await store.record(claim, entry, note="again")
    assert await store.inspect(claim.task.id) == before


@pytest.mark.parametrize("note", ["\ud800", "\0"])
async def test_a_note_that_can_not_be_stored_is_refused_and_nothing_is_changed(store: Store, note: str) -> None:
    claim = await running(store)
    with pytest.raises(NotStorable):
        await store.record(claim, step(), note=note)
    assert await store.journal(claim) == Journal()


async def test_what_was_recorded_is_no_longer_the_workers_to_change_nor_what_was_read_the_readers(store: Store) -> None:
    claim = await running(store)
    value: list[JSON] = [1]
    written = await store.record(claim, step("0", value))
    read = (await store.journal(claim)).entries["0"]
    inspected = (await store.inspect(claim.task.id)).journal.entries["0"]
    for part in (value, written.value, read.value, inspected.value):
        assert isinstance(part, list)
        part.append("spoilt")
    assert (await store.journal(claim)).entries["0"].value == [1]
