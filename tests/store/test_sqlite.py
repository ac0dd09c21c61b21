"""What holds for SQLite alone: the file, several stores on it, and what may go wrong beneath it."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.domain.errors import IllegalTransition, StoreUnavailable, TaskNotFound
from perdure.domain.model import JSONObject, Owner, Status, Task
from perdure.store.sqlite import SQLiteStore
from tests.store.support import (
    ADA,
    AGE,
    DONE,
    LEASE,
    NAME,
    Changes,
    VirtualClock,
    asks,
    both,
    elsewhere,
    hire,
    new_task,
    parked,
    running,
    sleep,
    step,
    waiting,
)

SECONDS = 20


@pytest.fixture
def store(path: Path, clock: VirtualClock) -> SQLiteStore:
    """Not open yet."""
    return SQLiteStore(f"sqlite:///{path}", clock)


@pytest.fixture
async def opened(store: SQLiteStore) -> AsyncIterator[SQLiteStore]:
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(path: Path, opened: SQLiteStore, clock: VirtualClock) -> AsyncIterator[SQLiteStore]:
    """A second replica on the same file."""
    del opened
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def outside(path: Path, opened: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """A connection that is nobody's, for looking and for sabotage."""
    del opened
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


# -- the file ----------------------------------------------------------------------------------------------------------


async def test_a_commit_that_returned_survives_the_loss_of_power(
    connections: dict[str, sqlite3.Connection], path: Path
) -> None:
    """WAL with synchronous=FULL: each commit is an fsync of the log. NORMAL would lose the last ones."""
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    await store.create(new_task())
    full = 2
    assert connections["writer"].execute("PRAGMA synchronous").fetchone() == (full,)
    assert connections["writer"].execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def test_the_connection_that_reads_can_not_write(connections: dict[str, sqlite3.Connection], path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connections["reader"].execute("DELETE FROM task")
    await store.close()


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def set_mode(file: Path, mode: int) -> None:
    file.chmod(mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277, 0o777], ids=oct)
async def test_the_file_and_its_log_are_readable_by_their_owner_only_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = SQLiteStore(f"sqlite:///{path}")
        await store.open()
        await store.create(new_task())
    finally:
        os.umask(before)
    modes = {file.name: oct(mode_of(file)) for file in files_in(path.parent)}
    assert modes == dict.fromkeys(["tasks.db", "tasks.db-shm", "tasks.db-wal"], oct(0o600))
    await store.close()


@pytest.mark.parametrize(("mode", "warned"), [(0o644, 1), (0o604, 1), (0o660, 0), (0o600, 0)], ids=str)
async def test_a_file_that_all_may_read_is_left_so_and_warned_of_once(
    path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: int
) -> None:
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    await store.close()
    assert not caplog.records
    set_mode(path, mode)
    for _ in range(2):
        await store.open()
        await store.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} may be read by every user of this machine: chmod o-r it and its -wal"
    ] * warned
    assert mode_of(path) == mode


@pytest.mark.parametrize(
    "name", ["a b.db", "100%.db", "tasks#1.db", "tâches 🦊.db", "%41.db", "file:x.db", "no-suffix"]
)
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path / name}")
    await store.open()
    created = await store.create(new_task())
    assert await store.get(ADA, created.id) == created
    await store.close()
    assert [file.name for file in files_in(tmp_path)] == [name]


async def test_three_slashes_name_a_file_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("sqlite:///here.db")
    await store.open()
    await store.close()
    assert (tmp_path / "here.db").exists()


async def test_everything_is_there_after_a_restart(store: SQLiteStore, path: Path, clock: VirtualClock) -> None:
    await store.open()
    claim = await parked(store, name=NAME, age=AGE)
    await store.answer(ADA, claim.task.id, {"age": 7})
    before, journal = await store.get(ADA, claim.task.id), await store.journal(claim)
    await store.close()
    again = SQLiteStore(f"sqlite:///{path}", clock)
    await again.open()
    assert await again.get(ADA, claim.task.id) == before
    assert await again.journal(claim) == journal
    assert len(await again.sessions()) == 1
    await again.close()


async def test_a_store_that_was_closed_may_be_opened_again(store: SQLiteStore) -> None:
    await store.open()
    created = await store.create(new_task())
    await store.close()
    await store.open()
    assert await store.get(ADA, created.id) == created
    await store.close()


CREATE_AND_DIE = """
import asyncio, os, signal, sys
from perdure.store.sqlite import SQLiteStore
from tests.store.support import new_task

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    created = await store.create(new_task())
    print(created.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_was_created_outlives_a_kill_that_comes_right_after(opened: SQLiteStore, path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CREATE_AND_DIE, f"sqlite:///{path}", stdout=subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(child.communicate(), SECONDS)
    assert child.returncode == -signal.SIGKILL
    task = await opened.get(ADA, output.decode().strip())
    assert task.status is Status.WORKING
    assert (await (await hire(opened)).claim_one()).task == task


# -- several stores on one file ----------------------------------------------------------------------------------------


async def test_a_task_that_one_replica_made_resolves_on_another_at_once(
    opened: SQLiteStore, other: SQLiteStore
) -> None:
    for _ in range(20):
        created = await opened.create(new_task())
        assert await other.get(ADA, created.id) == created


async def test_of_two_answers_on_two_replicas_exactly_one_is_stored(opened: SQLiteStore, other: SQLiteStore) -> None:
    for _ in range(10):
        claim = await parked(opened)
        task_id = claim.task.id
        await asyncio.gather(
            opened.answer(ADA, task_id, {"name": "one"}), other.answer(ADA, task_id, {"name": "other"})
        )
        task = await opened.get(ADA, task_id)
        assert task == await other.get(ADA, task_id)
        assert (task.status, task.version) == (Status.WORKING, 3)
        assert (await opened.journal(claim)).questions["name"].response in ("one", "other")
        await opened.request_cancel(ADA, task_id)


async def test_replicas_never_hold_the_same_run_and_leave_none_over(opened: SQLiteStore, other: SQLiteStore) -> None:
    tasks = [await opened.create(new_task()) for _ in range(40)]
    one, two = await hire(opened), await hire(other)
    batches = await asyncio.gather(*(worker.claim(3) for _ in range(10) for worker in (one, two)))
    held = [claim.seq for batch in batches for claim in batch]
    assert sorted(held) == [task.seq for task in tasks]


async def test_fences_grow_across_replicas(opened: SQLiteStore, other: SQLiteStore) -> None:
    await opened.create(new_task())
    fences: list[int] = []
    for store in (opened, other, opened, other):
        claim = await (await hire(store)).claim_one()
        fences.append(claim.fence)
        await store.release(claim)
    assert fences == sorted(set(fences))


async def test_a_cancel_on_one_replica_reaches_the_worker_of_another(opened: SQLiteStore, other: SQLiteStore) -> None:
    await opened.create(new_task())
    worker = await hire(opened)
    claim = await worker.claim_one()
    await other.request_cancel(ADA, claim.task.id)
    assert (await opened.renew(worker.session, LEASE)).cancelled == {claim.seq}


async def test_two_replicas_that_take_over_at_once_free_each_run_once(
    opened: SQLiteStore, other: SQLiteStore, clock: VirtualClock
) -> None:
    for _ in range(5):
        await opened.create(new_task())
    await (await hire(opened)).claim()
    clock.advance(LEASE)
    assert sum(await asyncio.gather(opened.take_over(), other.take_over())) == 5
    claims = await (await hire(other)).claim()
    assert [claim.attempt for claim in claims] == [2] * 5


async def test_a_replica_announces_its_own_changes_only(opened: SQLiteStore, other: SQLiteStore) -> None:
    mine, theirs = Changes(), Changes()
    opened.subscribe(mine)
    other.subscribe(theirs)
    await opened.create(new_task())
    assert (len(mine), len(theirs)) == (1, 0)


def in_another_thread(path: Path, clock: VirtualClock, task_id: str, key: str) -> None:
    """Answer through a store and an event loop of its own, and come back when it is done."""

    async def answer() -> None:
        store = SQLiteStore(f"sqlite:///{path}", clock)
        await store.open()
        await store.answer(ADA, task_id, {key: 1})
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(answer(),))
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


async def test_get_sees_one_state_though_an_answer_is_committed_in_the_middle_of_it(
    connections: dict[str, sqlite3.Connection], path: Path, clock: VirtualClock
) -> None:
    """A task and its questions are two reads. Seen apart, a task would wait for input and have no question."""
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    claim = await parked(store)
    interrupted: list[str] = []

    def interrupt(statement: str) -> None:
        if "FROM input" in statement and not interrupted:
            interrupted.append(statement)
            in_another_thread(path, clock, claim.task.id, "name")

    connections["reader"].set_trace_callback(interrupt)
    task = await store.get(ADA, claim.task.id)
    assert interrupted
    assert (task.status, [entry.key for entry in task.inputs]) == (Status.INPUT_REQUIRED, ["name"])
    assert (await store.get(ADA, claim.task.id)).status is Status.WORKING
    await store.close()


async def test_a_journal_is_of_one_moment_though_an_answer_is_committed_in_the_middle_of_it(
    connections: dict[str, sqlite3.Connection], path: Path, clock: VirtualClock
) -> None:
    """Its entries and its questions are two reads. Seen apart, it would be a journal that never was."""
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    claim = await waiting(store, both(asks(name=NAME), elsewhere()))
    before, interrupted = await store.journal(claim), list[str]()

    def interrupt(statement: str) -> None:
        if "FROM input" in statement and not interrupted:
            interrupted.append(statement)
            in_another_thread(path, clock, claim.task.id, "name")

    connections["reader"].set_trace_callback(interrupt)
    assert await store.journal(claim) == before
    assert interrupted
    assert await store.journal(claim) != before
    await store.close()


async def test_versions_and_questions_agree_in_every_reading_while_answers_come_in(
    opened: SQLiteStore, path: Path, clock: VirtualClock
) -> None:
    asked = [f"k{number:02}" for number in range(30)]
    claim = await running(opened)
    await opened.park(claim, asks(**dict.fromkeys(asked, NAME)))

    async def answer_one_by_one() -> None:
        store = SQLiteStore(f"sqlite:///{path}", clock)
        await store.open()
        for key in asked:
            await store.answer(ADA, claim.task.id, {key: 1})
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(answer_one_by_one(),))
    thread.start()
    seen: list[Task] = []
    while thread.is_alive():
        seen.append(await opened.get(ADA, claim.task.id))
    thread.join(SECONDS)
    seen.append(await opened.get(ADA, claim.task.id))
    for task in seen:
        assert len(task.inputs) == len(asked) - (task.version - 2)
        assert (task.status is Status.WORKING) == (not task.inputs)
    assert [task.version for task in seen] == sorted(task.version for task in seen)
    assert seen[-1].status is Status.WORKING


# -- what a verb costs -------------------------------------------------------------------------------------------------


class Traced:
    """An open store, and what SQLite executes for its writes: the first words of each statement."""

    def __init__(self, store: SQLiteStore, writer: sqlite3.Connection) -> None:
        self.store, self._writer = store, writer

    async def statements(self, verb: Awaitable[object]) -> list[str]:
        seen: list[str] = []
        self._writer.set_trace_callback(seen.append)
        await verb
        self._writer.set_trace_callback(None)
        return [statement.split()[0] for statement in seen]


@pytest.fixture
async def traced(connections: dict[str, sqlite3.Connection], path: Path, clock: VirtualClock) -> AsyncIterator[Traced]:
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    yield Traced(store, connections["writer"])
    await store.close()


async def test_a_claim_that_finds_nothing_writes_nothing(traced: Traced) -> None:
    """Not so much as a fence: an idle server would fsync with each look."""
    claim = await running(traced.store)
    await traced.store.park(claim, sleep(60_000))
    await traced.store.create(new_task("other"))
    worker = await hire(traced.store)
    assert await traced.statements(worker.claim()) == ["BEGIN", "SELECT", "SELECT", "COMMIT"]


async def test_the_runs_of_one_tenant_are_claimed_by_one_statement(traced: Traced) -> None:
    for _ in range(5):
        await traced.store.create(new_task())
    worker = await hire(traced.store)
    statements = await traced.statements(worker.claim())
    assert statements == ["BEGIN", "SELECT", "SELECT", "UPDATE", "UPDATE", *["SELECT"] * 5, "COMMIT"]


async def test_the_runs_of_several_tenants_are_claimed_by_one_statement_each(traced: Traced) -> None:
    for number in range(12):
        await traced.store.create(new_task(owner=Owner(f"t{number % 3}", "ada")))
    worker = await hire(traced.store)
    statements = await traced.statements(worker.claim(12))
    assert statements.count("UPDATE") == 1 + 3


async def test_recording_a_step_is_a_look_at_the_fence_and_one_write(traced: Traced) -> None:
    claim = await running(traced.store)
    assert await traced.statements(traced.store.record(claim, step("0"))) == ["BEGIN", "SELECT", "INSERT", "COMMIT"]


async def test_housekeeping_that_finds_nothing_begins_no_transaction(traced: Traced) -> None:
    await running(traced.store, new_task(ttl_ms=60_000, timeout_ms=1_000))
    for verb in (
        traced.store.expire(10),
        traced.store.free_overdue(10, late_ms=0),
        traced.store.purge(10, linger_ms=0, tombstone_ms=1),
    ):
        assert await traced.statements(verb) == []


async def test_a_task_that_is_purged_leaves_nothing_but_its_tombstone(
    opened: SQLiteStore, outside: sqlite3.Connection, clock: VirtualClock
) -> None:
    claim = await waiting(opened, both(asks(name=NAME), elsewhere()), new_task(ttl_ms=1_000, key="k", digest="d"))
    await opened.request_cancel(ADA, claim.task.id)
    clock.advance(1_000)
    assert await opened.purge(1, linger_ms=0, tombstone_ms=1_000) == 1
    tables = ("task", "run", "input", "entry", "event", "tombstone")
    counts = {table: outside.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables}
    assert counts == {**dict.fromkeys(tables, (0,)), "tombstone": (1,)}


# -- what may go wrong beneath it --------------------------------------------------------------------------------------


async def test_a_store_that_is_not_open_is_unavailable_for_reading_and_writing(store: SQLiteStore) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.create(new_task())
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get(ADA, "tsk_nobody")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.expire(1)
        await store.open()
        await store.close()


async def test_a_read_that_sqlite_refuses_is_unavailable_and_the_next_one_works(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    created = await opened.create(new_task())
    outside.execute("ALTER TABLE task RENAME TO elsewhere")
    with pytest.raises(StoreUnavailable):
        await opened.get(ADA, created.id)
    with pytest.raises(StoreUnavailable):
        await opened.purge(1, linger_ms=0, tombstone_ms=1)
    outside.execute("ALTER TABLE elsewhere RENAME TO task")
    assert await opened.get(ADA, created.id) == created


async def test_a_write_that_sqlite_refuses_is_unavailable_and_nothing_of_it_stays(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    outside.execute("ALTER TABLE run RENAME TO elsewhere")
    new = new_task()
    with pytest.raises(StoreUnavailable):
        await opened.create(new)
    outside.execute("ALTER TABLE elsewhere RENAME TO run")
    with pytest.raises(TaskNotFound):
        await opened.get(ADA, new.id)


async def test_a_task_that_somebody_ended_between_the_look_and_the_write_stays_as_it_is(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    """The guard in the statement itself: nothing overwrites a terminal status, even if the look before was wrong."""
    claim = await running(opened)
    outside.execute(
        "CREATE TRIGGER faster AFTER DELETE ON run"
        " BEGIN UPDATE task SET status = 'cancelled' WHERE seq = old.task_seq; END"
    )
    with pytest.raises(IllegalTransition):
        await opened.finish(claim, DONE)
    assert await opened.get(ADA, claim.task.id) == claim.task


async def test_an_update_that_touches_no_row_is_an_error_and_nothing_of_the_verb_stays(
    opened: SQLiteStore, outside: sqlite3.Connection
) -> None:
    claim = await running(opened)
    outside.execute("CREATE TRIGGER guard BEFORE UPDATE ON task BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(IllegalTransition):
        await opened.finish(claim, DONE)
    outside.execute("DROP TRIGGER guard")
    assert await opened.get(ADA, claim.task.id) == claim.task
    await opened.report(claim, "still held")


async def create_until_refused(store: SQLiteStore, big: JSONObject) -> list[Task]:
    """The tasks whose creation was told as a success before the first that was not, ten at a time."""
    created: list[Task] = []
    for _ in range(200):
        batch = [new_task(params=big) for _ in range(10)]
        results = await asyncio.gather(*(store.create(new) for new in batch), return_exceptions=True)
        created += [result for result in results if isinstance(result, Task)]
        refused = [new for new, result in zip(batch, results, strict=True) if isinstance(result, StoreUnavailable)]
        assert len(refused) + sum(isinstance(result, Task) for result in results) == len(batch)
        for new in refused:
            with pytest.raises(TaskNotFound):
                await store.get(ADA, new.id)
        if refused:
            return created
    raise AssertionError("the disk never filled up")


async def assert_all_are_there_and_the_file_is_sound(path: Path, clock: VirtualClock, tasks: list[Task]) -> None:
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    for task in tasks:
        assert await store.get(ADA, task.id) == task
    assert len(await (await hire(store)).claim(10_000)) == len(tasks)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_when_the_file_may_not_grow_nobody_is_told_a_success_and_it_works_again_later(
    connections: dict[str, sqlite3.Connection], path: Path, clock: VirtualClock
) -> None:
    """`max_page_count` makes SQLite itself report a full disk, where no real one is at hand."""
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    connections["writer"].execute("PRAGMA max_page_count = 60")
    created = await create_until_refused(store, {"filler": "x" * 2_000})
    connections["writer"].execute("PRAGMA max_page_count = 100000")
    created.append(await store.create(new_task()))
    await store.close()
    await assert_all_are_there_and_the_file_is_sound(path, clock, created)


async def test_when_the_disk_fills_up_nobody_is_told_a_success_and_it_works_again_once_there_is_room(
    small_disk: Path, clock: VirtualClock
) -> None:
    path = small_disk / "tasks.db"
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    filler = small_disk / "filler"
    filler.write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096 - 200_000))
    created = await create_until_refused(store, {"filler": "x" * 2_000})
    filler.unlink()
    created.append(await store.create(new_task()))
    await store.close()
    await assert_all_are_there_and_the_file_is_sound(path, clock, created)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_file_that_is_taken_away_takes_no_more_tasks(
    opened: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture, suffix: str, replaced: bool
) -> None:
    """SQLite would go on writing into it, and every handle would be known to this process alone."""
    created = await opened.create(new_task())
    file = path.with_name(path.name + suffix)
    file.rename(path.with_name("elsewhere"))
    if replaced:
        file.touch()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="gone"):
            await opened.create(new_task())
    assert "removed or replaced" in caplog.text
    file.unlink(missing_ok=True)
    path.with_name("elsewhere").rename(file)
    await opened.create(new_task())
    assert await opened.get(ADA, created.id) == created
