"""Numbered SQL files: how they are read, what a version number makes of them, and what becomes of an old file."""

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.domain.errors import StoreUnusable, TaskExpired
from perdure.domain.model import (
    Claim,
    Completed,
    Failure,
    InputRequest,
    InputState,
    NewTask,
    Operation,
    Status,
    Task,
)
from perdure.domain.policy import due_at_once
from perdure.store.migrate import Migration, Phase, due, load, pending
from perdure.store.sqlite import SQLiteStore, schema
from tests.store.support import ADA, AGE, BOB, DONE, LEASE, NAME, NOW, VirtualClock, hire

ONE, TWO, THREE = (Migration(number, f"m{number}", ()) for number in (1, 2, 3))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The `migrations` folder of an importable package `some_backend`."""
    folder = tmp_path / "some_backend" / "migrations"
    folder.mkdir(parents=True)
    (tmp_path / "some_backend" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield folder
    sys.modules.pop("some_backend", None)


def test_migrations_are_read_in_the_order_of_their_numbers(package: Path) -> None:
    for name in ("0002_second.sql", "0010_tenth.sql", "0001_first.sql"):
        (package / name).write_text("SELECT 1;\n")
    assert [(migration.number, migration.name) for migration in load("some_backend")] == [
        (1, "first"),
        (2, "second"),
        (10, "tenth"),
    ]


def test_files_that_are_no_migrations_are_left_alone(package: Path) -> None:
    for name in ("README.md", "1_short.sql", "0001_first.sql.bak", "0001 first.sql", "x0001_first.sql"):
        (package / name).touch()
    assert load("some_backend") == ()


def test_the_name_of_a_file_may_say_its_phase(package: Path) -> None:
    for name in ("0001_first.sql", "0002_pre_second.sql", "0003_post_third.sql", "0004_posture.sql"):
        (package / name).write_text("SELECT 1;\n")
    assert [str(migration) for migration in load("some_backend")] == [
        "0001 first (pre)",
        "0002 second (pre)",
        "0003 third (post)",
        "0004 posture (pre)",
    ]


def test_what_must_wait_waits_unless_it_is_asked_for_or_something_follows_that_must_not() -> None:
    waiting, following = replace(TWO, phase=Phase.POST), replace(THREE, number=4, phase=Phase.POST)
    assert due((), post=False) == due((), post=True) == ()
    assert due((ONE, waiting), post=False) == (ONE,)
    assert due((waiting,), post=False) == ()
    assert due((ONE, waiting), post=True) == (ONE, waiting)
    assert due((ONE, waiting, THREE, following), post=False) == (ONE, waiting, THREE)


def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line(package: Path) -> None:
    (package / "0001_first.sql").write_text(
        "-- What it is for; in two parts.\nCREATE TABLE a (\n    x TEXT DEFAULT 'a;b'\n);\n\n\nCREATE TABLE b (y);  \n"
    )
    (migration,) = load("some_backend")
    assert migration.statements == (
        "-- What it is for; in two parts.\nCREATE TABLE a (\n    x TEXT DEFAULT 'a;b'\n);",
        "CREATE TABLE b (y);",
    )


def test_a_database_is_brought_forward_from_where_it_is() -> None:
    migrations = (ONE, TWO, THREE)
    assert pending(migrations, 0, where="tasks.db") == migrations
    assert pending(migrations, 2, where="tasks.db") == (THREE,)
    assert pending(migrations, 3, where="tasks.db") == ()


def test_a_database_from_a_newer_release_is_refused_with_both_versions_and_what_to_do() -> None:
    with pytest.raises(StoreUnusable) as caught:
        pending((ONE, TWO), 5, where="tasks.db")
    assert str(caught.value) == (
        "tasks.db has schema version 5, and this Perdure knows versions up to 2: "
        "upgrade Perdure, or point it at another store"
    )


def test_the_numbers_of_the_sqlite_migrations_run_from_1_without_a_gap() -> None:
    assert [migration.number for migration in schema.MIGRATIONS] == list(range(1, len(schema.MIGRATIONS) + 1))
    assert all(migration.statements for migration in schema.MIGRATIONS)


# -- a file of version 1 -----------------------------------------------------------------------------------------------

HANDLER = "tools/call:report"
QUESTION = '{"method":"elicitation/create","params":{"message":"%s"}}'
OPERATION = Operation("tools/call", "report", {"size": "large"}, accepts=frozenset({"elicitation", "roots"}))


def id_of(seq: int) -> str:
    return f"tsk_{seq:032}"


def task_of(seq: int, status: Status = Status.WORKING) -> Task:
    return Task(
        seq=seq,
        id=id_of(seq),
        owner=ADA,
        status=status,
        created_at=NOW - 1_000,
        updated_at=NOW - 500,
        version=2,
        ttl_ms=60_000,
        keep_ms=30_000,
        poll_ms=500,
    )


READY, HELD, CANCELLING, ORPHAN, ASKING, COMPLETED, FAILED, CANCELLED = range(1, 9)

TASKS = {
    READY: replace(task_of(READY), message="halfway"),
    HELD: task_of(HELD),
    CANCELLING: replace(task_of(CANCELLING), cancel_requested=True),
    ORPHAN: task_of(ORPHAN),
    ASKING: replace(task_of(ASKING, Status.INPUT_REQUIRED), inputs=(InputRequest("age", AGE, NOW - 400),)),
    COMPLETED: replace(task_of(COMPLETED, Status.COMPLETED), result=DONE.result),
    FAILED: replace(task_of(FAILED, Status.FAILED), error=Failure(-32000, "Broken", {"a": [1]}), message="Broken"),
    CANCELLED: replace(task_of(CANCELLED, Status.CANCELLED), cancel_requested=True),
}
"""A task in every state, as the first release of the schema left them."""

# (task, due_at, session, fence, attempt); with the texts as the first release wrote them.
RUNS = [
    (READY, due_at_once(NOW - 500), None, 0, 1),
    (HELD, due_at_once(NOW - 900), "alive", 5, 1),
    (CANCELLING, due_at_once(NOW - 900), "alive", 6, 1),
    (ORPHAN, due_at_once(NOW - 900), "dead", 7, 3),
    (ASKING, None, None, 4, 2),
]


def fill(connection: sqlite3.Connection) -> None:
    for task in TASKS.values():
        connection.execute(
            "INSERT INTO task (seq, id, tenant, principal, method, name, params, status, message, version, created_at,"
            " updated_at, ttl_ms, keep_ms, expires_at, poll_ms, cancel_requested, accepts, result, error)"
            " VALUES (?, ?, 'acme', 'ada', 'tools/call', 'report', '{\"size\":\"large\"}', ?, ?, 2, ?, ?,"
            " 60000, 30000, ?, 500, ?, 'elicitation roots', ?, ?)",
            (
                task.seq,
                task.id,
                task.status.value,
                task.message,
                NOW - 1_000,
                NOW - 500,
                NOW + 59_000,
                int(task.cancel_requested),
                '{"content":[{"type":"text","text":"done"}]}' if task.result else None,
                '{"code":-32000,"message":"Broken","data":{"a":[1]}}' if task.error else None,
            ),
        )
    connection.executemany(
        "INSERT INTO run (task_seq, handler, due_at, session, fence, attempt, max_attempts)"
        f" VALUES (?, '{HANDLER}', ?, ?, ?, ?, 4)",
        RUNS,
    )
    connection.executemany(
        'INSERT INTO session VALUES (?, ?, \'{"host":"here"}\')', [("alive", NOW + LEASE), ("dead", NOW - 1)]
    )
    connection.executemany(
        "INSERT INTO input VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (ASKING, "name", 0, QUESTION % "Your name?", '"Ada"', "answered", NOW - 450),
            (ASKING, "age", 1, QUESTION % "Your age?", None, "outstanding", NOW - 400),
        ],
    )
    connection.execute("INSERT INTO tombstone VALUES (?, 'acme', 'bob', ?)", (id_of(99), NOW + 10_000))
    connection.execute("UPDATE counter SET value = 7 WHERE name = 'fence'")


@pytest.fixture
async def old(tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SQLiteStore]:
    """A store that was opened on a file of version 1."""
    path = tmp_path / "tasks.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        with closing(schema.connect_writer(path)) as connection:
            fill(connection)
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    store = SQLiteStore(f"sqlite:///{path}", clock)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("seq", TASKS)
async def test_a_task_of_version_1_is_as_it_was(old: SQLiteStore, seq: int) -> None:
    assert await old.get(ADA, id_of(seq)) == TASKS[seq]


async def test_the_tasks_of_version_1_are_listed(old: SQLiteStore) -> None:
    assert [task.seq for task in await old.page(ADA, None, 100)] == sorted(TASKS, reverse=True)


async def test_a_tombstone_of_version_1_still_tells_its_owner(old: SQLiteStore) -> None:
    with pytest.raises(TaskExpired):
        await old.get(BOB, id_of(99))


async def test_what_waited_in_version_1_is_claimed_with_a_fence_that_is_larger_than_all_before(
    old: SQLiteStore,
) -> None:
    (claim,) = await (await hire(old)).claim()
    assert claim == Claim(TASKS[READY], OPERATION, fence=8, at=NOW, session=claim.session)
    assert (await old.finish(claim, DONE)).status is Status.COMPLETED


async def test_who_held_a_run_in_version_1_still_holds_it(old: SQLiteStore) -> None:
    claim = Claim(TASKS[HELD], OPERATION, fence=5, at=NOW, session="alive")
    assert (await old.renew("alive", LEASE)).cancelled == {CANCELLING}
    await old.report(claim, "still here")
    assert (await old.finish(claim, Completed({}))).status is Status.COMPLETED


async def test_what_was_given_back_in_version_1_keeps_its_deaths(old: SQLiteStore) -> None:
    assert await old.take_over() == 1
    found = await old.inspect(id_of(ORPHAN))
    assert found.run is not None
    assert (found.run.deaths, found.run.failures) == (3, 0)
    claims = await (await hire(old)).claim()
    assert [(claim.seq, claim.attempt) for claim in claims] == [(READY, 1), (ORPHAN, 4)]


async def test_what_asked_in_version_1_keeps_its_questions_and_goes_on_with_the_answer(old: SQLiteStore) -> None:
    assert (await old.answer(ADA, id_of(ASKING), {"name": "Bob", "age": 7})).status is Status.WORKING
    claims = await (await hire(old)).claim()
    (claim,) = [claim for claim in claims if claim.seq == ASKING]
    assert claim.attempt == 2
    assert list((await old.journal(claim)).questions.values()) == [
        InputRequest("name", NAME, NOW - 450, InputState.ANSWERED, "Ada"),
        InputRequest("age", AGE, NOW - 400, InputState.ANSWERED, 7),
    ]


async def test_what_is_over_since_version_1_is_purged_in_its_time(old: SQLiteStore, clock: VirtualClock) -> None:
    assert await old.purge(10, linger_ms=0, tombstone_ms=10_000) == 0
    clock.advance(59_000)
    assert await old.purge(10, linger_ms=0, tombstone_ms=10_000) == 3
    with pytest.raises(TaskExpired):
        await old.get(ADA, id_of(COMPLETED))


async def test_a_new_task_is_made_beside_those_of_version_1(old: SQLiteStore) -> None:
    new = NewTask(id_of(50), ADA, Operation("tools/call", "report", {}, version="2"), key="k", digest="d")
    created = await old.create(new)
    assert created.seq == max(TASKS) + 1
    assert await old.recall(ADA, "k", "d") == created == await old.get(ADA, new.id)
