"""Sealing anew what is stored: after a change of keys, for the first time, and back; beside others who use it."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.domain.model import Completed, InputState, JSONObject
from perdure.store.keys import MARK
from perdure.store.postgres.url import parse
from perdure.store.reseal import START, Mark, Page, Table
from perdure.store.sqlite import resealing
from tests.store.sealed import NEW, OLD, OTHER, Place, SealedStore, whole_pass
from tests.store.support import (
    ADA,
    DONE,
    HANDLER,
    VirtualClock,
    elsewhere,
    hire,
    new_task,
    parked,
    running,
    step,
)
from tests.store.test_sealed import CANARY, SAID, fill, opened
from tests.support import PATIENCE

VALUES = """
SELECT params FROM perdure.task UNION ALL SELECT result FROM perdure.task UNION ALL SELECT error FROM perdure.task
UNION ALL SELECT message FROM perdure.task UNION ALL SELECT idem_digest FROM perdure.task
UNION ALL SELECT request FROM perdure.input UNION ALL SELECT response FROM perdure.input
UNION ALL SELECT value FROM perdure.entry
UNION ALL SELECT detail FROM perdure.event WHERE kind IN ('retry', 'step_retry')"""


async def stored(place: Place) -> list[str]:
    """All values as they are stored."""
    return [value for (value,) in await place.rows(VALUES) if value is not None]


def resealed(pages: list[Page]) -> int:
    return sum(page.resealed for page in pages)


def unreadable(pages: list[Page]) -> list[str]:
    return [line for page in pages for line in page.unreadable]


async def read_all(store: SealedStore, *ids: str) -> list[object]:
    return [(await store.inspect(id_), await store.get(ADA, id_)) for id_ in ids]


@pytest.mark.parametrize(
    ("before", "between", "after", "mark"),
    [
        ((OLD,), (NEW, OLD), (NEW,), f"{MARK}new."),
        ((), (NEW,), (NEW,), f"{MARK}new."),
        ((OLD,), ("clear", OLD), (), ""),
        ((), ("clear", OLD), (), ""),
    ],
    ids=["other keys", "keys for the first time", "no keys any more", "nothing to do"],
)
async def test_after_a_pass_the_other_keys_are_not_needed(
    place: Place,
    clock: VirtualClock,
    before: tuple[str, ...],
    between: tuple[str, ...],
    after: tuple[str, ...],
    mark: str,
) -> None:
    async with opened(place, clock, *before) as store:
        tasks = await fill(store)
        as_it_was = await read_all(store, *tasks)
    values = await stored(place)
    assert len(values) == 13
    async with opened(place, clock, *between) as store:
        assert await read_all(store, *tasks) == as_it_was
        pages = await whole_pass(store)
        assert resealed(pages) == (0 if before == after else len(values))
        assert resealed(await whole_pass(store)) == 0
    for value in await stored(place):
        assert value.startswith(mark) if mark else not value.startswith(MARK)
    async with opened(place, clock, *after) as store:
        assert await read_all(store, *tasks) == as_it_was


async def test_a_pass_changes_nothing_but_how_values_are_stored(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, OLD) as store:
        completed, _ = await fill(store)
        before = await store.get(ADA, completed)
        async with opened(place, clock, NEW, OLD) as turned:
            heard: list[object] = []
            turned.subscribe(heard.append)
            await whole_pass(turned)
            assert await turned.get(ADA, completed) == before
            assert heard == []


async def test_pages_are_as_small_as_is_wanted_and_go_through_everything_once(
    place: Place, clock: VirtualClock
) -> None:
    async with opened(place, clock, OLD) as store:
        await fill(store)
        await fill(store, "another")
    async with opened(place, clock, NEW, OLD) as store:
        pages = await whole_pass(store, 1)
        assert resealed(pages) == 26
        assert max(page.resealed for page in pages) <= 5  # those of one row
        marks = [START, *(page.next for page in pages if page.next is not None)]
        assert all(
            (one.table, one.seq, one.key) != (other.table, other.seq, other.key) for one, other in pairwise(marks)
        )
        assert {mark.table for mark in marks} == {*Table}


async def test_a_page_of_large_rows_is_bounded_by_their_bytes(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, OLD) as store:
        large: list[JSONObject] = [{"said": "x" * 3_000_000}] * 5
        for params in large:
            claim = await running(store, new_task(params=params))
            await store.record(claim, step("0", params))
        await parked(store, name={"method": "elicitation/create", "params": large[0]})
    async with opened(place, clock, NEW, OLD) as store:
        pages = await whole_pass(store, 100)
        assert [page.next for page in pages[:3]] == [Mark(Table.TASK, 3), Mark(Table.INPUT), Mark(Table.ENTRY)]
        assert [page.resealed for page in pages] == [3, 3, 1, 3, 2, 0]
        assert resealed(await whole_pass(store, 100)) == 0


async def test_a_pass_that_was_broken_off_is_begun_anew_and_does_the_rest(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, OLD) as store:
        await fill(store)
    async with opened(place, clock, NEW, OLD) as store:
        first = await store.reseal(START, 1)
        assert first.next == Mark(Table.TASK, 1)
        second = await store.reseal(Mark(Table.TASK, 1), 1)
    async with opened(place, clock, NEW, OLD) as store:
        assert resealed(await whole_pass(store)) == 13 - first.resealed - second.resealed


async def test_what_can_not_be_opened_is_named_left_as_it_is_and_in_nobody_s_way(
    place: Place, clock: VirtualClock
) -> None:
    async with opened(place, clock, OLD) as store:
        await fill(store)
    await place.rows("UPDATE perdure.entry SET value = '~1.lost.AAAA' WHERE place = '0'")
    async with opened(place, clock, NEW, OLD) as store:
        for count in (12, 0):
            pages = await whole_pass(store)
            assert resealed(pages) == count
            (line,) = unreadable(pages)
            assert line.startswith("entry 0 of task tsk_000000")
            assert "under the key 'lost'" in line
    values = await stored(place)
    assert "~1.lost.AAAA" in values
    assert sum(value.startswith(f"{MARK}new.") for value in values) == 12


async def test_another_key_of_that_name_reseals_nothing(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock) as plain:
        await plain.create(new_task())
        async with opened(place, clock, OLD) as store, opened(place, clock, NEW, OTHER) as wrong:
            await fill(store)
            before = {value for value in await stored(place) if value.startswith(MARK)}
            pages = await whole_pass(wrong)
            assert len(unreadable(pages)) == 13
            assert before <= {*await stored(place)}


async def test_rows_that_belong_to_no_task_are_passed_over(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, NEW, OLD) as store:
        await place.rows(
            "INSERT INTO perdure.entry (task_seq, place, verb, name, state, value)"
            " VALUES (7, '0', 'step', '', 'done', '1')"
        )
        assert await whole_pass(store) == [
            Page(Mark(Table.INPUT)),
            Page(Mark(Table.ENTRY)),
            Page(Mark(Table.EVENT, key=-1)),
            Page(None),
        ]


async def test_what_the_database_had_in_the_clear_is_overwritten_in_a_file(place: Place, clock: VirtualClock) -> None:
    if place.file is None:
        return  # old rows of PostgreSQL's are gone after a vacuum, and when the log is; docs/howto/encryption.md
    async with opened(place, clock) as store:
        await fill(store)
    assert CANARY.encode() in await place.everything()
    async with opened(place, clock, OLD) as store:
        await whole_pass(store)
    assert CANARY.encode() not in await place.everything()


async def test_beside_others_it_is_once_the_log_was_moved_into_the_file(tmp_path: Path, clock: VirtualClock) -> None:
    place = Place(f"sqlite:///{tmp_path / 'tasks.db'}")
    assert place.file is not None
    async with opened(place, clock) as beside:
        await fill(beside)
        await place.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        async with opened(place, clock, OLD) as store:
            await whole_pass(store)
        assert CANARY.encode() in await place.everything(), "the file itself is as it was"
        assert resealing.scrub(place.file) is None
        assert CANARY.encode() not in await place.everything()


async def test_who_reads_the_file_just_now_is_in_the_way_of_that_and_it_is_said(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resealing, "_PATIENCE_MS", 0)
    place = Place(f"sqlite:///{tmp_path / 'tasks.db'}")
    assert place.file is not None
    async with opened(place, clock) as plain:
        await fill(plain)
        await place.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        with closing(sqlite3.connect(place.file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM task").fetchone()
            async with opened(place, clock, OLD) as store:
                await whole_pass(store)
            said = resealing.scrub(place.file)
            assert said is not None
            assert said.startswith(
                f"some process reads {place.file} just now, so values as they were stored before may"
            )
            assert CANARY.encode() in await place.everything()
        assert resealing.scrub(place.file) is None
        assert CANARY.encode() not in await place.everything()


# -- beside others -----------------------------------------------------------------------------------------------------


async def busy(store: SealedStore, stop: asyncio.Event) -> list[str]:
    """Do with tasks what a server and its workers do, until told to stop; the tasks' ids."""
    ids: list[str] = []
    while not stop.is_set():
        task = await store.create(new_task(params=SAID, key=f"k{len(ids)}-{id(store)}", digest=CANARY))
        ids.append(task.id)
        worker = await hire(store)
        claims = await worker.claim(1)
        if not claims:  # somebody else has it
            continue
        (claim,) = claims
        await store.record(claim, step("0", SAID))
        await store.report(claim, CANARY)
        if len(ids) % 3 == 0:
            await store.park(claim, elsewhere("1"))
        elif len(ids) % 3 == 1:
            await store.retry(claim, 1_000_000, CANARY)
        else:
            await store.finish(claim, Completed(SAID))
    return ids


async def test_keys_are_changed_one_process_after_the_other_while_all_of_them_work(
    place: Place, clock: VirtualClock
) -> None:
    ids: list[str] = []
    async with AsyncExitStack() as stack:
        # Old first, with the new key for what the others already write; then, one by one, the new one first.
        for rings in (((OLD, NEW), (OLD, NEW)), ((NEW, OLD), (OLD, NEW)), ((NEW, OLD), (NEW, OLD))):
            stores = [await stack.enter_async_context(opened(place, clock, *ring)) for ring in rings]
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                working = [group.create_task(busy(store, stop)) for store in stores]
                for _ in range(3):
                    await whole_pass(stores[0], 5)
                stop.set()
            ids += [id_ for each in working for id_ in each.result()]
        # While they go on, two passes at once, and another for what they had in use.
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(busy(store, stop)) for store in stores]
            passes = [group.create_task(whole_pass(store, 7)) for store in stores]
            await asyncio.wait(passes)
            last = await whole_pass(stores[0])
            stop.set()
        assert [line for each in (*(one.result() for one in passes), last) for line in unreadable(each)] == []
        while resealed(await whole_pass(stores[0])):
            pass
        ids += [id_ for each in working for id_ in each.result()]
    async with opened(place, clock, NEW) as store:
        for id_ in ids:
            found = await store.inspect(id_)
            assert found.operation.params == SAID
            assert [entry.value for place, entry in found.journal.entries.items() if place == "0"] in ([], [SAID])
            assert found.task.message in (None, CANARY)
            assert found.task.result in (None, SAID)


async def test_what_somebody_is_using_is_left_for_another_pass(emptied_database: str, clock: VirtualClock) -> None:
    place = Place(emptied_database)
    async with opened(place, clock, OLD) as store:
        open_task = await parked(store)
        over = await running(store)
        await store.finish(over, DONE)
    connection = await parse(emptied_database).connect_directly(PATIENCE)
    async with opened(place, clock, NEW, OLD) as store:
        async with connection.transaction():
            await connection.execute("SELECT FROM perdure.run FOR UPDATE")
            pages = await whole_pass(store)
            assert (resealed(pages), sum(page.left for page in pages)) == (2, 2)
        async with connection.transaction():
            await connection.execute("SELECT FROM perdure.task FOR UPDATE")
            pages = await whole_pass(store)
            assert (resealed(pages), sum(page.left for page in pages)) == (0, 2)
        assert resealed(await whole_pass(store)) == 2
    await connection.close()
    async with opened(place, clock, NEW) as store:
        assert (await store.inspect(open_task.task.id)).journal.questions["name"].state is InputState.OUTSTANDING
        assert (await store.inspect(over.task.id)).operation.handler == HANDLER


async def test_a_value_that_was_changed_since_it_was_read_counts_as_one_that_is_left(
    emptied_database: str, clock: VirtualClock
) -> None:
    place = Place(emptied_database)
    async with opened(place, clock, OLD) as store:
        claim = await running(store)
        await store.record(claim, step("0", SAID))
        await store.finish(claim, DONE)
    connection = await parse(emptied_database).connect_directly(PATIENCE)
    async with opened(place, clock, NEW, OLD) as store, asyncio.timeout(PATIENCE):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE perdure.entry SET value = value || ' '")
        resealing = asyncio.create_task(store.reseal(Mark(Table.ENTRY), 10))
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            pass  # until it waits for the row
        await transaction.commit()
        page = await resealing
    await connection.close()
    assert (page.resealed, page.left) == (0, 1)


async def test_an_answer_that_comes_in_between_is_not_overwritten(place: Place, clock: VirtualClock) -> None:
    async with opened(place, clock, OLD, NEW) as before, opened(place, clock, NEW, OLD) as store:
        claims = [await parked(before) for _ in range(20)]
        async with asyncio.TaskGroup() as group:
            for claim in claims:
                group.create_task(before.answer(ADA, claim.task.id, {"name": SAID}))
            group.create_task(whole_pass(store, 3))
        for claim in claims:
            found = await store.inspect(claim.task.id)
            assert found.journal.questions["name"].response == SAID
