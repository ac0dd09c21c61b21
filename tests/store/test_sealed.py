"""Stores whose values are sealed: what somebody finds who has the database and no key, and what can't be read there."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.domain import ids
from perdure.domain.errors import IdempotencyKeyReused, StoreUnusable, Unreadable
from perdure.domain.journal import Entry, EntryState
from perdure.domain.model import Claim, Completed, Failed, Failure, JSONObject, Status
from perdure.domain.operating import Hastened, Which
from perdure.store.base import PUT_OFF
from perdure.store.keys import MARK
from tests.store.sealed import NEW, OLD, OTHER, Place, SealedStore
from tests.store.support import (
    ADA,
    BOB,
    DONE,
    NAME,
    TOKEN,
    VirtualClock,
    asks,
    elsewhere,
    external,
    hire,
    new_task,
    parked,
    running,
    step,
    take,
    waiting,
)

CANARY = "xyzzy-plugh"
SAID: JSONObject = {"said": CANARY}


@asynccontextmanager
async def opened(place: Place, clock: VirtualClock, *keys: str, blind: bool = False) -> AsyncGenerator[SealedStore]:
    store = place.store(clock, *keys, blind=blind)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(place: Place, clock: VirtualClock) -> AsyncIterator[SealedStore]:
    async with opened(place, clock, OLD) as store:
        yield store


async def fill(store: SealedStore, key: str = "k") -> tuple[str, str]:
    """Everything that a task may hold, with the canary in it: one that is completed, and one that failed."""
    claim = await running(store, new_task(params=SAID, key=key, digest=CANARY))
    await store.record(claim, step("0", SAID))
    await store.report(claim, f"about {CANARY}")
    failed = step("1", SAID, state=EntryState.RETRYING)
    await store.record(claim, failed, wake_in_ms=0, note=f"ValueError: {CANARY}")
    question: JSONObject = {"method": "elicitation/create", "params": SAID}
    await store.park(claim, asks(name=question))
    await store.answer(ADA, claim.task.id, {"name": SAID})
    claim = await (await hire(store)).claim_one()
    await store.retry(claim, 0, f"RuntimeError: {CANARY}")
    claim = await (await hire(store)).claim_one()
    await store.park(claim, elsewhere("2"))
    await store.settle(claim.task.id, "2", TOKEN, EntryState.DONE, SAID)
    claim = await (await hire(store)).claim_one()
    await store.finish(claim, Completed(SAID))
    other = await running(store)
    await store.finish(other, Failed(Failure(1, CANARY, SAID), CANARY))
    return claim.task.id, other.task.id


async def test_without_keys_whoever_has_the_database_finds_what_a_task_holds(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock) as plain:
        await plain.create(new_task(params=SAID))
        assert CANARY.encode() in await place.everything()


async def test_with_keys_nobody_does_in_no_column_and_no_file(place: Place, store: SealedStore) -> None:
    completed, failed = await fill(store)
    everything = await place.everything()
    assert MARK.encode() in everything
    assert completed.encode() in everything
    for spelling in (CANARY, CANARY[:8], CANARY.upper()):
        assert spelling.encode() not in everything
    found = await store.inspect(completed)
    assert found.task.result == SAID
    assert found.operation.params == SAID
    assert found.journal.entries["0"].value == SAID
    assert found.journal.entries["2"].value == {"token": TOKEN, "value": SAID}
    assert found.journal.questions["name"].response == SAID
    assert f"RuntimeError: {CANARY}" in [event.detail for event in found.events]
    assert (await store.get(ADA, failed)).message == CANARY


CLEAR = {
    "task": "id tenant principal method name handler_version status accepts idem_key",
    "run": "handler tenant session",
    "session": "id info",
    "input": "key state place",
    "entry": "place verb name state",
    "event": "kind detail",  # of the details, those that quote errors are
    "tombstone": "id tenant principal",
    "route": "id tenant principal backend backend_task_id",
    "counter": "name",
}
"""The columns with texts that are not sealed, as docs/howto/encryption.md has it: names, keys, owners and states."""


async def test_every_column_with_text_is_sealed_but_for_those_that_are_known_not_to_be(
    place: Place, store: SealedStore
) -> None:
    await fill(store)
    for table, column in await place.columns():
        found = {text for (text,) in await place.rows(f"SELECT {column} FROM perdure.{table}") if text is not None}
        if column not in CLEAR[table].split():
            assert all(text.startswith(MARK) for text in found), (table, column)
            assert found, (table, column)


async def test_a_token_of_work_elsewhere_is_sealed_with_its_entry(place: Place, store: SealedStore) -> None:
    await waiting(store, elsewhere())
    assert TOKEN.encode() not in await place.everything()


async def test_a_digest_is_compared_though_it_is_sealed(store: SealedStore) -> None:
    task = await store.create(new_task(key="k", digest="d"))
    assert await store.recall(ADA, "k", "d") == task
    assert (await store.create(new_task(key="k", digest="d"))).id == task.id
    with pytest.raises(IdempotencyKeyReused):
        await store.recall(ADA, "k", "another")


# -- what was changed or moved -----------------------------------------------------------------------------------------


async def test_a_result_that_was_changed_is_never_served(place: Place, store: SealedStore) -> None:
    claim = await running(store)
    await store.finish(claim, DONE)
    other = await store.create(new_task())
    for statement in (
        "UPDATE perdure.task SET result = substr(result, 1, length(result) - 8) || 'AAAAAAA=' WHERE seq = 1",
        "UPDATE perdure.task SET result = params WHERE seq = 1",
        "UPDATE perdure.task SET result = '~1.old.AAAA' WHERE seq = 1",
    ):
        await place.rows(statement)
        with pytest.raises(Unreadable):
            await store.get(ADA, claim.task.id)
        with pytest.raises(Unreadable):
            await store.inspect(claim.task.id)
    assert await store.get(ADA, other.id) == other
    assert [task.id for task in await store.page(ADA, None, 10)] == [other.id, claim.task.id]


async def test_one_task_s_values_are_not_served_as_another_s(place: Place, store: SealedStore) -> None:
    mine = await running(store, new_task(owner=BOB))
    await store.finish(mine, Completed({"mine": True}))
    theirs = await running(store)
    await store.finish(theirs, Completed(SAID))
    await place.rows("UPDATE perdure.task SET result = (SELECT result FROM perdure.task WHERE seq = 2) WHERE seq = 1")
    with pytest.raises(Unreadable):
        await store.get(BOB, mine.task.id)


async def test_nor_to_another_owner_whose_name_was_put_there(place: Place, store: SealedStore) -> None:
    claim = await running(store)
    await store.finish(claim, DONE)
    await place.rows("UPDATE perdure.task SET principal = 'bob'")
    with pytest.raises(Unreadable):
        await store.get(BOB, claim.task.id)


async def test_a_question_is_not_another_s_and_an_entry_not_at_another_place(place: Place, store: SealedStore) -> None:
    asked = await parked(store, name=NAME, age=NAME)
    await place.rows(
        "UPDATE perdure.input SET request = (SELECT request FROM perdure.input WHERE key = 'age') WHERE key = 'name'"
    )
    for verb in (
        store.get(ADA, asked.task.id),
        store.open_questions(ADA, asked.task.id),
        store.answer(ADA, asked.task.id, {"age": {}}),
    ):
        with pytest.raises(Unreadable):
            await verb
    claim = await running(store)
    await store.record(claim, step("0", 1))
    await store.record(claim, step("1", 2))
    assert {place: entry.value for place, entry in (await store.journal(claim)).entries.items()} == {"0": 1, "1": 2}
    await place.rows(
        "UPDATE perdure.entry SET value = (SELECT value FROM perdure.entry WHERE place = '1') WHERE place = '0'"
    )
    with pytest.raises(Unreadable):
        await store.journal(claim)
    with pytest.raises(Unreadable):
        await store.inspect(claim.task.id)


async def test_a_task_with_a_question_that_can_not_be_read_can_be_cancelled(place: Place, store: SealedStore) -> None:
    asking = await parked(store, name=NAME)
    answered = await parked(store, name=NAME)
    await store.answer(ADA, answered.task.id, {"name": SAID})
    await place.rows("UPDATE perdure.input SET request = '~1.old.AAAA'")
    for claim in (asking, answered):
        with pytest.raises(Unreadable):
            await store.answer(ADA, claim.task.id, {"name": SAID})
        cancelled = await store.request_cancel(ADA, claim.task.id)
        assert cancelled.status is Status.CANCELLED
        assert await store.get(ADA, claim.task.id) == cancelled
        assert await store.answer(ADA, claim.task.id, {"name": SAID}) == cancelled


async def test_work_elsewhere_of_a_task_with_such_a_question_is_settled(place: Place, store: SealedStore) -> None:
    claim = await parked(store, name=NAME)
    await store.answer(ADA, claim.task.id, {"name": SAID})
    claim = await (await hire(store)).claim_one()
    await store.park(claim, elsewhere())
    await place.rows("UPDATE perdure.input SET request = '~1.old.AAAA'")
    told = await store.tell(claim.task.id, "0", TOKEN, "half way")
    assert told.message == "half way"
    await store.settle(claim.task.id, "0", TOKEN, EntryState.DONE, None)


async def test_a_status_message_that_was_changed_is_not_shown_and_is_in_nobody_s_way(
    place: Place, store: SealedStore, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(ttl_ms=1_000))
    await store.report(claim, "half way")
    await place.rows("UPDATE perdure.task SET message = params")
    ((stored,),) = await place.rows("SELECT message FROM perdure.task")
    assert (await store.get(ADA, claim.task.id)).message == "The status message can't be read"
    assert (await store.request_cancel(ADA, claim.task.id)).cancel_requested
    assert await place.rows("SELECT message FROM perdure.task") == [(stored,)]


async def test_a_message_that_can_not_be_read_keeps_no_task_from_expiring_or_being_taken_over(
    place: Place, store: SealedStore, clock: VirtualClock
) -> None:
    for ttl_ms in (1_000, None):
        await store.report(await running(store, new_task(ttl_ms=ttl_ms)), "half way")
    await place.rows("UPDATE perdure.task SET message = params")
    clock.advance(100_000)
    assert await store.expire(10) == 1
    assert await store.take_over() == 1


# -- what can't be claimed ---------------------------------------------------------------------------------------------


async def test_a_run_that_can_not_be_read_is_put_off_and_the_others_are_claimed(
    place: Place, store: SealedStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [await store.create(new_task()) for _ in range(3)]
    ((right,),) = await place.rows("SELECT params FROM perdure.task WHERE seq = 1")
    await place.rows("UPDATE perdure.task SET params = (SELECT params FROM perdure.task WHERE seq = 2) WHERE seq = 1")
    worker = await hire(store)
    claims = await worker.claim(10)
    assert [claim.task.id for claim in claims] == [task.id for task in tasks[1:]]
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, line in said if line.startswith("params of task")] == [logging.ERROR]
    shown = ids.abbreviated(tasks[0].id)
    put_off = f"run of task {shown}: put off for {PUT_OFF // 1000} s at a time, until it can be read"
    assert (logging.WARNING, put_off) in said
    clock.advance(PUT_OFF - 1)
    worker = await hire(store)
    assert await worker.claim(10) == ()
    await place.rows(f"UPDATE perdure.task SET params = '{right}' WHERE seq = 1")
    clock.advance(1)
    (claim,) = await worker.claim(10)
    assert (claim.task.id, claim.attempt) == (tasks[0].id, 1)


async def test_so_is_one_whose_question_can_not_be_read_when_its_time_is_up(
    place: Place, store: SealedStore, clock: VirtualClock
) -> None:
    bad = await parked(store, name=asks(name=NAME).asked["name"])
    good = await parked(store, name=asks(name=NAME).asked["name"])
    await place.rows("UPDATE perdure.input SET deadline = 0")
    await place.rows("UPDATE perdure.input SET request = '~1.old.AAAA' WHERE task_seq = 1")
    await place.rows("UPDATE perdure.run SET due_at = -1")
    claim = await take(store)
    other = await take(store)
    assert {each and each.task.id for each in (claim, other)} == {good.task.id, None}
    clock.advance(PUT_OFF)
    assert await take(store) is None
    assert (await store.inspect(good.task.id)).task.status is Status.WORKING
    assert bad.task.id != good.task.id


async def test_what_one_task_has_on_record_is_no_other_s_concern(place: Place, store: SealedStore) -> None:
    claims = [await running(store) for _ in range(2)]
    for claim in claims:
        await store.record(claim, step("0", 1, state=EntryState.RETRYING))
    await place.rows("UPDATE perdure.entry SET value = '~1.old.AAAA' WHERE task_seq = 1")
    again = Entry("0", step().verb, "step 0", EntryState.RETRYING, 2)
    with pytest.raises(Unreadable):
        await store.record(claims[0], again)
    assert (await store.record(claims[1], again)).value == 2


async def test_external_work_that_can_not_be_opened_is_told_from_work_that_there_is_none_of(
    place: Place, store: SealedStore
) -> None:
    """Whoever reports it has to come again, rather than to believe that nobody waits."""
    claims = [await running(store) for _ in range(2)]
    for claim in claims:
        await store.record(claim, external())
    await place.rows("UPDATE perdure.entry SET value = '~1.old.AAAA' WHERE task_seq = 1")
    with pytest.raises(Unreadable):
        await store.settle(claims[0].task.id, "0", TOKEN, EntryState.DONE, None)
    with pytest.raises(Unreadable):
        await store.tell(claims[0].task.id, "0", TOKEN, "half way")
    await store.settle(claims[1].task.id, "0", TOKEN, EntryState.DONE, None)


# -- other keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(), (NEW,), (OTHER,)])
async def test_a_store_is_not_opened_without_its_key(
    place: Place, store: SealedStore, clock: VirtualClock, keys: tuple[str, ...]
) -> None:
    await store.create(new_task(params=SAID))
    other = place.store(clock, *keys)
    with pytest.raises(StoreUnusable, match="sealed under the key 'old'") as caught:
        await other.open()
    await other.close()
    assert "\n" not in str(caught.value)
    assert NEW.partition(":")[2] not in str(caught.value)


async def test_whoever_looks_how_tasks_stand_needs_none(place: Place, store: SealedStore, clock: VirtualClock) -> None:
    completed, failed = await fill(store)
    async with opened(place, clock, blind=True) as blind:
        found = await blind.inspect(completed)
        assert (found.task.result, found.operation.params, found.operation.name) == ({}, {}, "report")
        assert [entry.value for entry in found.journal.entries.values()] == [{}] * 3
        assert "(sealed)" in {event.detail for event in found.events}
        assert (await blind.inspect(failed)).task.error == Failure(0, "", None)


async def test_a_store_may_be_sealed_later_and_what_was_there_is_read_on(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock) as plain:
        await plain.create(new_task(params=SAID))
    async with opened(place, clock, OLD) as sealed:
        await sealed.create(new_task(params={"later": CANARY}))
        claims = await (await hire(sealed)).claim()
        assert [claim.operation.params for claim in claims] == [SAID, {"later": CANARY}]


async def test_two_processes_of_which_one_has_the_new_key_first_read_each_other(
    place: Place, store: SealedStore, clock: VirtualClock
) -> None:
    async with opened(place, clock, OLD, NEW) as before, opened(place, clock, NEW, OLD) as after:
        first, second = await before.create(new_task(params=SAID)), await after.create(new_task(params=SAID))
        for reader in (before, after):
            assert (await reader.inspect(first.id)).operation.params == SAID
            assert (await reader.inspect(second.id)).operation.params == SAID


async def test_what_lacks_a_key_leaves_the_task_to_whoever_has_it(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, OLD) as lacking, opened(place, clock, NEW, OLD) as having:
        task = await having.create(new_task(params=SAID))
        assert await take(lacking) is None
        clock.advance(PUT_OFF)
        claim = await take(having)
        assert claim is not None
        assert (claim.task.id, claim.operation.params) == (task.id, SAID)


# -- operators without keys --------------------------------------------------------------------------------------------


async def held_by(store: SealedStore) -> Claim:
    """A task that a worker has."""
    await store.create(new_task("held"))
    (claim,) = await (await hire(store)).claim(1, "tools/call:held")
    return claim


async def test_who_has_no_keys_cancels_hastens_and_discards_and_leaves_all_that_is_sealed_as_it_was(
    place: Place, clock: VirtualClock, store: SealedStore
) -> None:
    held = await held_by(store)
    await store.report(held, CANARY)
    asleep = await running(store)
    await store.record(asleep, step("0", SAID, state=EntryState.RETRYING), wake_in_ms=90_000, note=CANARY)
    await store.retry(asleep, 60_000, CANARY)
    ended = await store.create(new_task("ended"))
    await store.request_cancel(ADA, ended.id)
    async with opened(place, clock, blind=True) as blind:
        assert (await blind.request_cancel(ADA, held.task.id)).cancel_requested
        assert await blind.hasten(asleep.task.id) is Hastened.DUE
        assert await blind.discard([ended.id, asleep.task.id], tombstone_ms=1_000) == 1
    assert (await store.get(ADA, held.task.id)).message == CANARY
    found = await store.inspect(asleep.task.id)
    assert found.journal.entries["0"].value == SAID
    assert [event.detail for event in found.events] == [CANARY, CANARY, ""]
    assert CANARY.encode() not in await place.everything()


async def test_who_has_no_keys_lists_and_counts_all_the_same(
    place: Place, clock: VirtualClock, store: SealedStore
) -> None:
    ids = {*await fill(store)}
    async with opened(place, clock, blind=True) as blind:
        listing = await blind.browse(Which(), None, 10)
        assert {each.id for each in listing.tasks} == ids
        assert listing == await store.browse(Which(), None, 10)
        assert await blind.tally(None, 10) == await store.tally(None, 10)


@pytest.mark.parametrize("keys", [(NEW, "old:lost"), ("clear", "old:lost")])
async def test_tasks_whose_key_is_lost_come_to_their_end_and_are_in_nobody_s_way(
    place: Place, clock: VirtualClock, keys: tuple[str, ...]
) -> None:
    async with opened(place, clock, OLD) as store:
        over = await running(store, new_task(params=SAID, ttl_ms=200_000))
        await store.finish(over, Completed(SAID))
        lost = await store.create(new_task(params=SAID, ttl_ms=200_000))
    async with opened(place, clock, *keys) as store:
        other = await store.create(new_task(params=SAID))
        with pytest.raises(Unreadable, match="since that key is lost"):
            await store.get(ADA, over.task.id)
        claims = await (await hire(store)).claim(10)
        assert [claim.task.id for claim in claims] == [other.id]
        clock.advance(200_001)
        assert await store.expire(10) == 1
        assert (await store.get(ADA, lost.id)).status is Status.FAILED
        clock.advance(200_001)
        assert await store.purge(10, linger_ms=0, tombstone_ms=0) == 2
        assert [each for (each,) in await place.rows("SELECT id FROM perdure.task")] == [other.id]
