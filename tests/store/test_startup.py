"""A file that can't be used is refused before anything starts, in one line that says what to do."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.domain.errors import StoreUnavailable, StoreUnusable
from perdure.store.migrate import Migration
from perdure.store.sqlite import SQLiteStore, schema
from tests.store.support import ADA, new_task

SECONDS = 20


async def refusal(path: Path) -> str:
    """The one line with which a store on `path` refuses to open; it is as good as closed then."""
    store = SQLiteStore(f"sqlite:///{path}")
    with pytest.raises(StoreUnusable) as caught:
        await store.open()
    with pytest.raises(StoreUnavailable):
        await store.create(new_task())
    await store.close()
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tasks.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://tasks.db",
        "sqlite:tasks.db",
        "SQLite:///tasks.db",
        "postgresql://localhost/tasks",
        "sqlite:///tasks.db?mode=ro",
        "sqlite:///:memory:",
        "sqlite:///./:memory:",
        "sqlite:///tasks\0.db",
    ],
)
def test_what_is_no_url_of_a_file_is_refused_with_an_example_of_what_is(url: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        SQLiteStore(url)
    line = str(caught.value)
    assert line.startswith("The URL of the store is no SQLite URL: write sqlite:///tasks.db")
    assert "\n" not in line


def test_four_slashes_name_an_absolute_path_and_three_a_relative_one() -> None:
    assert schema.path_of("sqlite:////var/lib/tasks.db") == Path("/var/lib/tasks.db")
    assert schema.path_of("sqlite:///var/tasks.db") == Path("var/tasks.db")


# -- the path ----------------------------------------------------------------------------------------------------------


async def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    assert "does not exist; create it first" in await refusal(tmp_path / "missing" / "tasks.db")


async def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    assert await refusal(tmp_path) == f"{tmp_path} is a folder: name a file in it"


async def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "can't be made: Not a directory; name another file" in await refusal(tmp_path / "file" / "tasks.db")


async def test_a_name_that_no_file_may_have(tmp_path: Path) -> None:
    assert "can't be made: File name too long; name another file" in await refusal(tmp_path / ("x" * 300))


async def test_a_path_that_is_too_long_for_sqlite(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 100] * 6)
    folder.mkdir(parents=True)
    assert "can't be opened: check that this user may read and write it and its folder" in await refusal(
        folder / "t.db"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
async def test_a_device_that_is_full() -> None:
    assert await refusal(Path("/dev/full")) == "/dev/full can't grow: the disk is full; make room"


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="the system has no /dev/null")
async def test_a_device_that_swallows_everything() -> None:
    await refusal(Path("/dev/null"))


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


async def test_a_disk_that_is_full(small_disk: Path) -> None:
    fill(small_disk)
    assert "the disk is full; make room" in await refusal(small_disk / "tasks.db")


async def test_a_disk_that_filled_up_while_the_store_was_closed(small_disk: Path) -> None:
    store = SQLiteStore(f"sqlite:///{small_disk / 'tasks.db'}")
    await store.open()
    await store.close()
    fill(small_disk)
    assert "the disk is full; make room" in await refusal(small_disk / "tasks.db")


# -- what lies there ---------------------------------------------------------------------------------------------------


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ada,\n" * 500)
    assert await refusal(path) == f"{path} is no SQLite database: name another file, or move this one away"
    assert path.read_text() == "Dear Ada,\n" * 500


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE account (id)")
    assert await refusal(path) == (
        f"{path} is another program's SQLite database: name a file of its own for the task store"
    )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("account",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def scribble(path: Path) -> None:
    """Leave the header and spoil the rest of the first page."""
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(content)


async def test_a_database_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    await store.close()
    scribble(path)
    assert "is damaged: restore it from a backup" in await refusal(path)


async def left_by_a_killed_process(path: Path, tasks: int) -> Path:
    """A file with so many tasks more and its log, as they are while a store is open on the file at `path`."""
    store, copy = SQLiteStore(f"sqlite:///{path}"), path.with_name("left.db")
    await store.open()
    for _ in range(tasks):
        await store.create(new_task())
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    await store.close()
    return copy


async def tasks_in(path: Path) -> int:
    """How many of them can be read."""
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    with closing(sqlite3.connect(path)) as outside:
        ids = [id_ for (id_,) in outside.execute("SELECT id FROM task")]
    found = [await store.get(ADA, id_) for id_ in ids]
    await store.close()
    return len(found)


def cut_off(path: Path) -> None:
    """Of the last page, the end."""
    os.truncate(path, path.stat().st_size - 100)


async def test_a_database_that_ends_within_a_page(tmp_path: Path) -> None:
    """SQLite would take what is missing for zeros, and serve them."""
    path = tmp_path / "tasks.db"
    await left_by_a_killed_process(path, tasks=50)
    cut_off(path)
    before = path.read_bytes()
    assert await refusal(path) == f"{path} is damaged: restore it from a backup, or move it away"
    assert path.read_bytes() == before


async def test_a_database_that_ends_within_a_page_which_its_log_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await left_by_a_killed_process(path, tasks=50)
    left = await left_by_a_killed_process(path, tasks=0)
    cut_off(left)
    assert "is damaged: restore it from a backup" in await refusal(left)


async def test_a_page_that_a_killed_process_was_writing_is_taken_from_its_log(tmp_path: Path) -> None:
    left = await left_by_a_killed_process(tmp_path / "tasks.db", tasks=50)
    cut_off(left)
    assert await tasks_in(left) == 50


async def test_what_lies_behind_the_last_page_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await left_by_a_killed_process(path, tasks=50)
    with path.open("ab") as file:
        file.write(b"x" * 100)
    assert await tasks_in(path) == 50


async def test_a_schema_from_a_newer_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tasks.db"
    known = len(schema.MIGRATIONS)
    newer = Migration(known + 1, "extra", ("CREATE TABLE extra (x)",))
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    created = await store.create(new_task())
    await store.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, newer))
        await store.open()
        assert await store.get(ADA, created.id) == created
        await store.close()
    assert await refusal(path) == (
        f"{path} has schema version {known + 1}, and this Perdure knows versions up to {known}: "
        "upgrade Perdure, or point it at another store"
    )


@pytest.mark.parametrize("statements", [("CREATE TABLE extra (x)", "no SQL"), ("ROLLBACK", "no SQL")])
async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    created = await store.create(new_task())
    await store.close()
    with monkeypatch.context() as patch:
        patch.setattr(
            schema, "MIGRATIONS", (*schema.MIGRATIONS, Migration(len(schema.MIGRATIONS) + 1, "broken", statements))
        )
        assert 'can not be used: near "no": syntax error' in await refusal(path)
    await store.open()
    assert await store.get(ADA, created.id) == created
    await store.close()


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else who has the fresh file `tasks.db` open, from whatever thread."""
    path = tmp_path / "tasks.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


@pytest.mark.parametrize(
    "hold",
    [
        ("BEGIN", "SELECT count(*) FROM sqlite_schema"),
        ("BEGIN IMMEDIATE",),
        ("BEGIN EXCLUSIVE",),
    ],
    ids=["reading", "about to write", "writing"],
)
async def test_a_lock_that_another_process_does_not_let_go(
    neighbour: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold: tuple[str, ...]
) -> None:
    monkeypatch.setattr(schema, "_BUSY_MS", 1)
    path = tmp_path / "tasks.db"
    for statement in hold:
        neighbour.execute(statement).fetchall()
    assert await refusal(path) == (
        f"{path} is locked by another process that does not let go: stop that one, or name another file"
    )


async def test_a_neighbour_that_writes_for_a_moment_is_waited_for(
    neighbour: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour.execute("BEGIN IMMEDIATE")

    def let_go(_seconds: float) -> None:
        neighbour.execute("COMMIT")

    monkeypatch.setattr(schema, "sleep", let_go)
    store = SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")
    await store.open()
    await store.create(new_task())
    await store.close()


async def test_a_library_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    store = SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")
    with pytest.raises(StoreUnusable, match=r"^SQLite 3\.34\.1 is too old: Perdure needs 3\.38 or newer$"):
        await store.open()
    assert not tuple(os.scandir(tmp_path))


# -- permissions -------------------------------------------------------------------------------------------------------

NOBODY = 65534


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@contextlib.contextmanager
def without_rights() -> Generator[None]:
    """Be nobody for a while, since root ignores mode bits; who is somebody else than root stays who he is."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def make_store_file(path: Path, mode: int) -> None:
    with closing(schema.connect_writer(path)):
        pass
    set_mode(path, mode)


@pytest.mark.parametrize("mode", [0o444, 0o222, 0o000], ids=oct)
async def test_a_file_that_this_user_may_not_read_or_not_write(common_folder: Path, mode: int) -> None:
    path = common_folder / "tasks.db"
    make_store_file(path, mode)
    set_mode(common_folder, 0o777)
    with without_rights():
        assert await refusal(path) == (
            f"{path} can't be read and written by this user: fix its permissions, or name another file"
        )


async def test_a_new_file_in_a_folder_that_is_read_only(common_folder: Path) -> None:
    set_mode(common_folder, 0o555)
    path = common_folder / "tasks.db"
    with without_rights():
        assert await refusal(path) == (
            f"{path} can't be made by this user: fix the permissions of {common_folder}, or name another file"
        )


async def test_a_writable_file_in_a_folder_that_is_read_only(common_folder: Path) -> None:
    """The log is a file of its own beside it, and that one can't be made."""
    path = common_folder / "tasks.db"
    make_store_file(path, 0o666)
    set_mode(common_folder, 0o555)
    with without_rights():
        assert await refusal(path) == (
            f"{path} is read-only: fix the permissions of the file and its folder, or name another file"
        )


async def test_a_file_and_a_folder_that_are_writable(common_folder: Path) -> None:
    path = common_folder / "tasks.db"
    make_store_file(path, 0o666)
    set_mode(common_folder, 0o777)
    store = SQLiteStore(f"sqlite:///{path}")
    with without_rights():
        await store.open()
        await store.create(new_task())
        await store.close()


# -- several at once ---------------------------------------------------------------------------------------------------

OPEN_WHEN_TOLD = """
import asyncio, sys
from perdure.store.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    await store.open_session(30_000, {"pid": 1})
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_open_a_fresh_file_at_once_all_find_it_usable(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    count = 4
    command = [sys.executable, "-c", OPEN_WHEN_TOLD, f"sqlite:///{path}"]
    children = [
        await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(count)
    ]
    for child in children:
        assert child.stdout is not None
        assert await asyncio.wait_for(child.stdout.readline(), SECONDS) == b"ready\n"
    ends = await asyncio.wait_for(asyncio.gather(*(child.communicate(b"go\n") for child in children)), SECONDS)
    assert [(child.returncode, errors) for child, (_, errors) in zip(children, ends, strict=True)] == [(0, b"")] * count
    store = SQLiteStore(f"sqlite:///{path}")
    await store.open()
    assert len(await store.sessions()) == count
    await store.close()


async def test_stores_that_open_a_fresh_file_at_once_all_find_it_usable(tmp_path: Path) -> None:
    """The same race much closer together: each store has a thread of its own that opens the file."""
    for number in range(20):
        stores = [SQLiteStore(f"sqlite:///{tmp_path / f'{number}.db'}") for _ in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        created = await stores[0].create(new_task())
        for store in stores:
            assert await store.get(ADA, created.id) == created
            await store.close()


SWITCH = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0)
try:
    print(*connection.execute("PRAGMA journal_mode = DELETE").fetchone())
except sqlite3.OperationalError as error:
    print(error)
connection.close()
"""


async def test_a_second_store_in_one_process_leaves_the_locks_of_the_first_in_place(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops all locks that the process has on it. Without them another process could
    take the log away from under the first store."""
    path = tmp_path / "tasks.db"
    first, second = (SQLiteStore(f"sqlite:///{path}") for _ in range(2))
    await first.open()
    await second.open()
    await second.close()
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", SWITCH, str(path), stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(child.communicate(), SECONDS)
    await first.close()
    assert output.decode().strip() == "database is locked"


def test_a_place_where_sqlite_can_not_keep_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    """SQLite answers with the journal mode that it chose instead, for a database in memory as on a network share."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(StoreUnusable, match="local disk"):
        schema._use_wal(connection, tmp_path)  # pyright: ignore[reportPrivateUsage] - no such place can be made here
