"""A SQLite file that somebody else has had in hand: what SQLite would write over is refused, what it reads is checked.

`python -m fuzz --target files` looks for more of it.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from perdure.domain.errors import StoreUnavailable, StoreUnusable, TaskNotFound, Unreadable
from perdure.domain.operating import Which
from perdure.store import rows
from perdure.store.keys import KeyRing
from perdure.store.sealing import check, codec_for
from perdure.store.sqlite import SQLiteStore
from tests.store.sealed import NEW, whole_pass
from tests.store.support import ADA, DONE, NAME, hire, new_task, parked, running, step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def store(path: Path) -> SQLiteStore:
    """Not open yet."""
    return SQLiteStore(f"sqlite:///{path}")


@pytest.fixture
async def opened(store: SQLiteStore) -> AsyncIterator[SQLiteStore]:
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def outside(path: Path, opened: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """A connection that is nobody's, for sabotage."""
    del opened
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def found(path: Path) -> bytes:
    return path.read_bytes()


async def refusal(store: SQLiteStore) -> str:
    with pytest.raises(StoreUnusable) as caught:
        await store.open()
    return str(caught.value)


# -- before it is opened -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 99, 511])
async def test_a_file_that_is_shorter_than_any_database(path: Path, store: SQLiteStore, size: int) -> None:
    """SQLite takes it for a new one, and would write over it."""
    put(path, b"x" * size)
    assert await refusal(store) == f"{path} is no SQLite database: name another file, or move this one away"
    assert found(path) == b"x" * size


async def test_an_empty_file_is_a_new_store(path: Path, store: SQLiteStore) -> None:
    put(path, b"")
    await store.open()
    created = await store.create(new_task())
    assert await store.get(ADA, created.id) == created
    await store.close()


async def test_an_empty_file_whose_log_has_commits_in_it(path: Path, store: SQLiteStore) -> None:
    """SQLite takes it for a new one, and would throw the commits away."""
    log = path.with_name("tasks.db-wal")
    await store.open()
    await store.create(new_task())
    logged = found(log)
    await store.close()
    put(path, b"")
    put(log, logged)
    assert await refusal(store) == (
        f"{path} is empty, but its log tasks.db-wal is not: restore both from a backup, or move both away"
    )
    assert found(log) == logged


async def test_a_file_whose_schema_is_no_text_any_more(path: Path, store: SQLiteStore) -> None:
    await store.open()
    await store.close()
    sound, damaged = (b"(deadline_at)" + gap + b"WHERE deadline_at IS NOT NULL" for gap in (b" ", b"\xa0"))
    assert found(path).count(sound) == 1
    put(path, found(path).replace(sound, damaged))
    assert await refusal(store) == f"{path} is damaged: restore it from a backup, or move it away"


# -- while it is open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", "elsewhere"), ("result", '{"a'), ("result", "[]"), ("error", "{}"), ("error", "null")],
)
async def test_a_row_that_no_store_has_written_can_not_be_read_and_the_log_says_that_it_was_damaged(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    """Pages have no checksums: a bit that has flipped in a value shows when that is read, if at all."""
    damaged, sound = await opened.create(new_task()), await opened.create(new_task())
    outside.execute("PRAGMA ignore_check_constraints = ON")
    outside.execute(f"UPDATE task SET {column} = ? WHERE id = ?", (value, damaged.id))
    with pytest.raises(Unreadable):
        await opened.get(ADA, damaged.id)
    assert "was damaged" in caplog.text
    assert await opened.get(ADA, sound.id) == sound


def flip(outside: sqlite3.Connection, table: str, column: str, where: str) -> None:
    """Flip the highest bit of a text's second byte, as a disk may: it is no UTF-8 any more."""
    ((text,),) = outside.execute(f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {where}").fetchall()
    flipped = text[:1] + bytes([text[1] ^ 0x80]) + text[2:]
    outside.execute("PRAGMA ignore_check_constraints = ON")
    outside.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}", (flipped,))


@pytest.mark.parametrize("column", ["params", "name", "status", "principal", "id"])
async def test_one_flipped_bit_puts_its_own_run_off_and_the_others_are_claimed(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    new = new_task(params={"secret": "xyzzy"})
    damaged, sound = await opened.create(new), await opened.create(new_task())
    flip(outside, "task", column, f"seq = {damaged.seq}")
    worker = await hire(opened)
    assert [claim.task for claim in await worker.claim(10)] == [sound]
    assert await worker.claim(10) == ()
    assert "was damaged" in caplog.text
    assert "xyzzy" not in caplog.text
    for record in caplog.records:
        record.getMessage().encode()


async def test_a_flipped_bit_in_what_a_task_holds_is_not_served_and_concerns_no_other(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    claims = [await running(opened) for _ in range(2)]
    for claim in claims:
        await opened.record(claim, step("0", "some words"))
        await opened.retry(claim, 0, "some words")
    seq = claims[0].seq
    for table, column in (("event", "detail"), ("event", "kind"), ("entry", "value"), ("entry", "name")):
        where = f"task_seq = {seq}"
        before = outside.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
        flip(outside, table, column, where)
        with pytest.raises(Unreadable):
            await opened.inspect(claims[0].task.id)
        outside.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", before)
        await opened.inspect(claims[0].task.id)
        await opened.inspect(claims[1].task.id)


async def test_a_flipped_bit_in_a_question_or_its_key_is_that_task_s_alone(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    for column in ("request", "key", "place"):
        claim = await parked(opened, some_name=NAME)
        outside.execute("UPDATE input SET place = '0.1.2'")
        flip(outside, "input", column, f"task_seq = {claim.seq}")
        with pytest.raises(Unreadable):
            await opened.get(ADA, claim.task.id)
        with pytest.raises(Unreadable):
            await opened.answer(ADA, claim.task.id, {})


async def test_of_many_tasks_one_with_a_damaged_row_is_left_out_and_not_told_to_be_gone(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, sound = [await opened.create(new_task()) for _ in range(2)]
    flip(outside, "task", "status", f"seq = {damaged.seq}")
    assert await opened.page(ADA, None, 10) == (sound,)
    known = {damaged.id: 0, sound.id: 0, "tsk_none": 0}
    assert await opened.changed(known) == {sound.id: sound, "tsk_none": None}
    assert "row of task" in caplog.text


@pytest.mark.parametrize(("table", "column"), [("task", "status"), ("task", "name"), ("run", "handler")])
async def test_operators_see_lists_and_counts_without_what_was_damaged(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture, table: str, column: str
) -> None:
    damaged, sound = [await opened.create(new_task(name)) for name in ("other", "report")]
    flip(outside, table, column, f"{'seq' if table == 'task' else 'task_seq'} = {damaged.seq}")
    assert [each.id for each in (await opened.browse(Which(), None, 10)).tasks] == [sound.id]
    assert [each.id for each in await opened.find_by_prefix("tsk_", 10)] == [sound.id]
    counted = {count.handler: count.count for count in (await opened.tally(None, 10)).counts}
    assert counted.pop("tools/call:report") == 1
    assert counted == ({} if table == "task" else {"tools/call:other": 1})
    assert "was damaged" in caplog.text


@pytest.mark.parametrize("column", ["ttl_ms", "keep_ms"])
@pytest.mark.parametrize("span", [2**63 - 1, -1])
async def test_a_task_with_a_span_that_nobody_gave_it_can_not_be_read_whoever_asks(
    opened: SQLiteStore, outside: sqlite3.Connection, column: str, span: int
) -> None:
    claim = await running(opened, new_task(ttl_ms=1000, keep_ms=1000))
    outside.execute(f"UPDATE task SET {column} = {span}")
    for verb in (
        opened.get(ADA, claim.task.id),
        opened.request_cancel(ADA, claim.task.id),
        opened.inspect(claim.task.id),
        opened.report(claim, "half way"),
        opened.finish(claim, DONE),
    ):
        with pytest.raises(Unreadable):
            await verb


async def test_a_bug_of_ours_is_not_taken_for_damage(opened: SQLiteStore) -> None:
    with pytest.raises(AttributeError):
        await opened.changed(cast("dict[str, int]", [1]))


async def test_who_keeps_house_goes_on_past_a_damaged_row(opened: SQLiteStore, outside: sqlite3.Connection) -> None:
    for end in ("take over", "close", "give back"):
        worker = await hire(opened)
        damaged, sound = [await opened.create(new_task()) for _ in range(2)]
        claims = await worker.claim(10)
        assert {claim.seq for claim in claims} == {damaged.seq, sound.seq}
        flip(outside, "task", "status", f"seq = {damaged.seq}")
        if end == "take over":
            assert await opened.take_over([worker.session]) == 2
        elif end == "close":
            await opened.close_session(worker.session)
        else:
            assert await opened.give_back(worker.session, frozenset((each.seq, each.fence) for each in claims)) == 2
        assert outside.execute("SELECT count(*) FROM run WHERE session IS NOT NULL").fetchone() == (0,)
        (claim,) = await (await hire(opened)).claim(10)
        await opened.finish(claim, DONE)
    await opened.create(new_task())
    outside.execute("UPDATE task SET expires_at = 0 WHERE status <> 'completed'")
    assert await opened.expire(10) == 1


async def test_a_run_whose_task_is_lost_is_put_off_and_others_are_claimed(
    opened: SQLiteStore, outside: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    lost, sound = [await opened.create(new_task()) for _ in range(2)]
    outside.execute("DELETE FROM task WHERE seq = ?", (lost.seq,))
    worker = await hire(opened)
    assert [claim.seq for claim in await worker.claim(10)] == [sound.seq]
    assert not await worker.claim(10)
    assert "put off" in caplog.text


async def test_nothing_is_claimed_without_a_counter_of_fences(opened: SQLiteStore, outside: sqlite3.Connection) -> None:
    await opened.create(new_task())
    outside.execute("DELETE FROM counter")
    worker = await hire(opened)
    with pytest.raises(StoreUnavailable, match="fences"):
        await worker.claim(10)
    assert outside.execute("SELECT count(*) FROM run WHERE session IS NOT NULL").fetchone() == (0,)


async def test_a_lease_lasts_though_it_can_not_be_read_what_its_process_says_of_itself(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    session = await opened.open_session(100_000, {"pid": 1})
    flip(outside, "session", "info", "true")
    (((found, lapsed)),) = await opened.sessions()
    assert (found.id, found.info, lapsed) == (session.id, {}, False)
    flip(outside, "session", "id", "true")
    assert len(await opened.sessions()) == 1


@pytest.mark.parametrize(("id_", "until"), [("NULL", "0"), ("x'00'", "0"), ("'dead'", "NULL"), ("'dead'", "'soon'")])
async def test_a_lease_of_which_not_even_the_id_or_the_end_is_one_keeps_no_other_from_being_seen_or_taken_over(
    opened: SQLiteStore, outside: sqlite3.Connection, id_: str, until: str
) -> None:
    """A bit of the type that a record has for each of its values. Such a row is made in a table that takes any."""
    dead = await hire(opened)
    await opened.create(new_task())
    assert len(await dead.claim(1)) == 1
    outside.executescript(
        "CREATE TABLE any AS SELECT * FROM session; DROP TABLE session; ALTER TABLE any RENAME TO session;"
        f"INSERT INTO session VALUES ({id_}, {until}, '')"
    )
    assert [lapsed for _, lapsed in await opened.sessions()].count(True) == 1
    assert await opened.take_over([dead.session]) == 1


async def test_a_digest_that_is_no_text_can_not_be_read(opened: SQLiteStore) -> None:
    task = await opened.create(new_task())
    with pytest.raises(Unreadable):
        rows.digest(cast("str", 5), task, codec_for(None))


@pytest.mark.parametrize("value", [None, "\udcff"])
def test_a_damaged_row_says_nothing_of_the_keys_at_the_start(value: str | None) -> None:
    check([("tsk_a", "", "ada", value), ("tsk_a", value, "ada", "~1.old.AAAA")], codec_for(None), "tasks.db")


async def test_a_status_message_with_a_flipped_bit_is_in_nobody_s_way(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    claim = await running(opened)
    await opened.report(claim, "half way")
    flip(outside, "task", "message", f"seq = {claim.seq}")
    assert (await opened.get(ADA, claim.task.id)).message == "The status message can't be read"
    await opened.request_cancel(ADA, claim.task.id)
    await opened.finish(claim, DONE)
    assert (await opened.get(ADA, claim.task.id)).result == DONE.result


async def test_a_row_with_a_flipped_bit_is_left_as_it_is_when_values_are_sealed_anew_and_is_named(
    path: Path, opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    damaged = await opened.create(new_task(params={"some": "words"}))
    await opened.create(new_task())
    flip(outside, "task", "params", f"seq = {damaged.seq}")
    sealing = SQLiteStore(f"sqlite:///{path}", codec=codec_for(KeyRing(NEW)))
    await sealing.open()
    pages = await whole_pass(sealing)
    await sealing.close()
    assert [page.resealed for page in pages] == [1, 0, 0, 0]
    assert len(pages[0].unreadable) == 1
    assert "row of task tsk_" in pages[0].unreadable[0]


async def test_a_write_that_meets_a_damaged_page_is_unavailable_and_nothing_of_it_stays(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    def lead_to(page: int) -> None:
        outside.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'run'", (page,))
        (version,) = outside.execute("PRAGMA schema_version").fetchone()
        outside.execute(f"PRAGMA schema_version = {version + 1}")

    outside.execute("PRAGMA writable_schema = ON")
    (page,) = outside.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'run'").fetchone()
    lead_to(1)
    new = new_task()
    with pytest.raises(StoreUnavailable):
        await opened.create(new)
    lead_to(page)
    with pytest.raises(TaskNotFound):
        await opened.get(ADA, new.id)
    await opened.create(new)
