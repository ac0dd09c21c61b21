"""Opening the file: connections, settings, migrations, and saying in one line why a file can't be used.

The settings argue for themselves. WAL, so that readers never wait for the writer nor it for them. `synchronous=FULL`,
so that a commit that returned survives the loss of power: a handle is promised to be durable, and NORMAL gains nothing
once many callers share a commit. `user_version` is the schema's number and `application_id` marks the file as ours, so
that a mistyped path never writes our tables into somebody else's database.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

from perdure.domain.errors import StoreUnusable
from perdure.store import migrate

__all__ = [
    "Fingerprint",
    "connect_reader",
    "connect_writer",
    "explained",
    "fingerprint",
    "is_exposed",
    "lacking",
    "path_of",
    "script",
]

APPLICATION_ID = 0x50455244  # "PERD"
MIGRATIONS = migrate.load("perdure.store.sqlite")
# From here on `json_each` is always built in; STRICT tables, RETURNING and UPSERT are older. The tests run on 3.40.
_OLDEST = (3, 38, 0)
_BUSY_MS = 10_000
_READER_BUSY_MS = 100
"""A reader waits for nobody under WAL, but for a moment while somebody recovers the log after a crash. It reads on the
event loop, so that moment must be short; the caller may ask again."""
_SMALLEST_PAGE = 512
_PREFIX = "sqlite:///"
_creating = threading.Lock()


def path_of(url: str) -> Path:
    """The file that a URL names: `sqlite:///tasks.db` is relative, `sqlite:////var/lib/tasks.db` absolute.

    Raises:
        StoreUnusable: it is no such URL.
    """
    path = url.removeprefix(_PREFIX)
    # SQLite would take :memory: for a database without a file, one for each connection, and nothing would be durable.
    if path in (url, "") or "?" in path or "\0" in path or Path(path) == Path(":memory:"):
        # Not quoted: where it is none, there may be a password in it.
        raise StoreUnusable(
            "The URL of the store is no SQLite URL: write sqlite:///tasks.db, or sqlite:////absolute/path/tasks.db"
        )
    return Path(path)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes, with the schema brought up to date.

    Raises:
        StoreUnusable: the file can't be used; the message says why and what to do.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreUnusable(f"SQLite {sqlite3.sqlite_version} is too old: Perdure needs 3.38 or newer")
    _create_private(path)
    connection = _connect(path, _BUSY_MS)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that can't write. Open it after the writer.

    Raises:
        StoreUnusable: as `connect_writer`.
    """
    connection = _connect(path, _READER_BUSY_MS)
    try:
        with explained(path):
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA schema_version")  # the first to look into the file
    except StoreUnusable:
        connection.close()
        raise
    return connection


def lacking(path: Path) -> tuple[migrate.Migration, ...]:
    """The migrations that opening the file for writing would apply. Only reads; a file that is not there lacks all.

    Raises:
        StoreUnusable: as `connect_writer`.
    """
    if not path.exists():
        return MIGRATIONS
    with closing(connect_reader(path)) as connection, explained(path):
        _refuse_strangers(connection, path)
        return _pending(connection, path)


def script(migrations: tuple[migrate.Migration, ...]) -> str:
    """What would be run to apply these, for the program `sqlite3`; empty for none."""
    if not migrations:
        return ""
    statements = [text for migration in migrations for text in migration.statements]
    mark = f"PRAGMA user_version = {migrations[-1].number};\nPRAGMA application_id = {APPLICATION_ID};"
    return "\n".join([".bail on", "BEGIN IMMEDIATE;", *statements, mark, "COMMIT;", ""])


Fingerprint = tuple[tuple[int, int] | None, ...]


def fingerprint(path: Path) -> Fingerprint:
    """Which files lie at the database's path and its log's: they stay the same as long as anybody has them open."""
    return tuple(_identity(each) for each in (path, path.with_name(f"{path.name}-wal")))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_exposed(path: Path) -> bool:
    """Whether every user of the machine may read the file, as far as its own mode tells."""
    return bool(path.stat().st_mode & stat.S_IROTH)


def _create_private(path: Path) -> None:
    """Make the file if there is none, readable by its owner only: arguments and answers lie in it.

    SQLite gives the WAL and the shared memory file the same mode. A file that exists is not so much as opened here:
    POSIX drops all locks of a process on a file when the process closes any descriptor of it, and with them those of
    another store in this process, which is how SQLite databases get damaged. For the same reason the two steps for a
    new file are under one lock.
    """
    try:
        with _creating:
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(made, 0o600)  # a umask may have taken the owner's own rights away
            os.close(made)
    except FileExistsError:
        if path.is_dir():
            raise StoreUnusable(f"{path} is a folder: name a file in it") from None
        # SQLite alone would not find out: it writes to the log, and can never move that into a file that is read-only.
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreUnusable(
                f"{path} can't be read and written by this user: fix its permissions, or name another file"
            ) from None
        _refuse_scraps(path)
    except FileNotFoundError:
        raise StoreUnusable(f"{path} can't be made: the folder {path.parent} does not exist; create it first") from None
    except PermissionError:
        raise StoreUnusable(
            f"{path} can't be made by this user: fix the permissions of {path.parent}, or name another file"
        ) from None
    except OSError as error:
        raise StoreUnusable(f"{path} can't be made: {error.strerror}; name another file") from None


def _refuse_scraps(path: Path) -> None:
    """Refuse what SQLite would take for a new database, and write over.

    That is any file shorter than a page; and an empty one although there are commits in the log beside it, which SQLite
    would throw away. No store is either for as much as a moment: its first page is there before its log is.
    """
    log = path.with_name(f"{path.name}-wal")
    logged = log.stat().st_size if log.is_file() else 0
    size = path.stat().st_size if path.is_file() else 0
    if 0 < size < _SMALLEST_PAGE:
        raise StoreUnusable(f"{path} {_REMEDIES[sqlite3.SQLITE_NOTADB]}")
    if path.is_file() and not size and logged:
        raise StoreUnusable(
            f"{path} is empty, but its log {log.name} is not: restore both from a backup, or move both away"
        )


def _connect(path: Path, busy_ms: int) -> sqlite3.Connection:
    with explained(path):
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            isolation_level=None,  # transactions are begun and ended by hand
            check_same_thread=False,  # one thread at a time uses a connection, not always the one that made it
            timeout=busy_ms / 1000,
            cached_statements=256,
        )
    connection.text_factory = _text
    return connection


def _text(stored: bytes) -> str:
    """A text as it is stored; what is no UTF-8 in it becomes lone surrogates, by which `codec.sound` knows it.

    By default a damaged text is an error of the statement: all its rows are lost with it, nobody is told which of them
    it was, and the error quotes the text. This takes some 0.05 µs for each text more.
    """
    return stored.decode("utf-8", "surrogateescape")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    with explained(path):
        connection.execute("PRAGMA synchronous = FULL")
        _refuse_strangers(connection, path)
        _use_wal(connection, path)
        _refuse_cut_off(connection, path)
        _migrate(connection, path)


def _refuse_strangers(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: a neighbour may be making the tables just now, and it marks the file in the same transaction.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is another program's SQLite database: name a file of its own for the task store")


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch a fresh file over; one that is switched already stays so, at no cost.

    The switch does not wait for a neighbour that is about to write, whatever the busy timeout says (it reads first, and
    from there SQLite would rather give up than risk a deadlock). Neighbours that start at the same moment hold their
    locks only briefly, so trying again is enough.
    """
    deadline = monotonic() + _BUSY_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
        sleep(0.01)
    if mode != "wal":  # SQLite does not complain where processes can't share memory: it says what it did instead
        raise StoreUnusable(f"{path} lies where SQLite can't keep a write-ahead log: put it on a local disk")


def _refuse_cut_off(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that ends within a page, as a copy does that was broken off.

    SQLite counts such a page as a whole one, and takes what is missing of it for zeros: for times, texts and counts
    that no store has written. Pages that are gone altogether it misses by itself. A page that a process was writing
    there when it was killed is in the log still.
    """
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    length = path.stat().st_size
    last = length // size + 1
    if length % size and last <= pages and not _is_logged(path, last) and path.stat().st_size == length:
        raise StoreUnusable(f"{path} {_REMEDIES[sqlite3.SQLITE_CORRUPT]}")


def _is_logged(path: Path, page: int) -> bool:
    """Whether the log has the page of that number. The log is under no locks, which to read it would lose.

    Its format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
    """
    with path.with_name(f"{path.name}-wal").open("rb") as log:
        head = log.read(32)
        size, salt = int.from_bytes(head[8:12], "big"), head[16:24]
        while len(frame := log.read(24)) == 24 and frame[8:16] == salt:  # behind these is what an older log had
            if int.from_bytes(frame[:4], "big") == page:
                return True
            log.seek(size, os.SEEK_CUR)
    return False


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply what is pending, in one transaction.

    Several processes may start at once, so the look comes after the lock.
    """
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            for migration in _pending(cursor, path):
                for statement in migration.statements:
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {migration.number}")
            # Written even where nothing is pending: a lock tells that the file may be written, and only a write that
            # there is room on the disk.
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def _pending(cursor: sqlite3.Cursor | sqlite3.Connection, path: Path) -> tuple[migrate.Migration, ...]:
    (version,) = cursor.execute("PRAGMA user_version").fetchone()
    return migrate.pending(MIGRATIONS, version, where=str(path))


_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database: name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup, or move it away",
    sqlite3.SQLITE_READONLY: "is read-only: fix the permissions of the file and its folder, or name another file",
    sqlite3.SQLITE_FULL: "can't grow: the disk is full; make room",
    sqlite3.SQLITE_CANTOPEN: "can't be opened: check that this user may read and write it and its folder",
    sqlite3.SQLITE_IOERR_SHMSIZE: "can't grow: the disk is full; make room",
    sqlite3.SQLITE_BUSY: "is locked by another process that does not let go: stop that one, or name another file",
    sqlite3.SQLITE_IOERR: "can't be read or written: the disk reports an error; check it, or use another",
}


@contextmanager
def explained(path: Path) -> Generator[None]:
    """What SQLite has against the file, as an error that says what to do.

    Raises:
        StoreUnusable: instead of SQLite's own.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnusable(_explain(path, error)) from error
    except UnicodeDecodeError as error:  # SQLite complains of its schema and quotes it, and that is no text any more
        raise StoreUnusable(f"{path} {_REMEDIES[sqlite3.SQLITE_CORRUPT]}") from error


def _explain(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0)
    remedy = _REMEDIES.get(code) or _REMEDIES.get(_primary(error), f"can not be used: {error}")
    return f"{path} {remedy}"


def _primary(error: sqlite3.Error) -> int:
    """The primary error code; the other bits say where it arose."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
