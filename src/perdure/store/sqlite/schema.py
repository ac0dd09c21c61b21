"""Opening the file: connections, settings, migrations, and saying in one line why a file can't be used.

The settings argue for themselves. WAL, so that readers never wait for the writer nor it for them. `synchronous=FULL`,
so that a commit that returned survives the loss of power: a handle is promised to be durable, and NORMAL gains nothing
once many callers share a commit. `user_version` is the schema's number and `application_id` marks the file as ours, so
that a mistyped path never writes our tables into somebody else's database.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from perdure.domain.errors import StoreUnusable
from perdure.store import migrate

__all__ = ["connect_reader", "connect_writer", "path_of"]

APPLICATION_ID = 0x50455244  # "PERD"
MIGRATIONS = migrate.load("perdure.store.sqlite")
_OLDEST = (3, 38, 0)  # RETURNING, UPSERT, STRICT tables
_BUSY_MS = 10_000
_PREFIX = "sqlite:///"


def path_of(url: str) -> Path:
    """The file that a URL names: `sqlite:///tasks.db` is relative, `sqlite:////var/lib/tasks.db` absolute.

    Raises:
        StoreUnusable: it is no such URL.
    """
    path = url.removeprefix(_PREFIX)
    # SQLite would take :memory: for a database without a file, one for each connection, and nothing would be durable.
    if path in (url, "") or "?" in path or "\0" in path or Path(path) == Path(":memory:"):
        raise StoreUnusable(f"{url!r} is no SQLite URL: write sqlite:///tasks.db, or sqlite:////absolute/path/tasks.db")
    return Path(path)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes, with the schema brought up to date.

    Raises:
        StoreUnusable: the file can't be used; the message says why and what to do.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreUnusable(f"SQLite {sqlite3.sqlite_version} is too old: Perdure needs 3.38 or newer")
    _create_private(path)
    connection = _connect(path)
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
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _create_private(path: Path) -> None:
    """Make the file if there is none, readable by its owner only: arguments and answers lie in it.

    SQLite gives the WAL and the shared memory file the same mode.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except IsADirectoryError:
        raise StoreUnusable(f"{path} is a folder: name a file in it") from None
    except FileNotFoundError:
        raise StoreUnusable(f"{path} can't be made: the folder {path.parent} does not exist; create it first") from None
    except PermissionError:
        raise StoreUnusable(
            f"{path} can't be written by this user: fix its permissions, or name another file"
        ) from None
    except OSError as error:
        raise StoreUnusable(f"{path} can't be opened for writing: {error.strerror}") from None


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            isolation_level=None,  # transactions are begun and ended by hand
            check_same_thread=False,  # one thread at a time uses a connection, not always the one that made it
            timeout=_BUSY_MS / 1000,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise StoreUnusable(_explain(path, error)) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    try:
        connection.execute("PRAGMA synchronous = FULL")
        _refuse_strangers(connection, path)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        _migrate(connection, path)
    except sqlite3.Error as error:
        raise StoreUnusable(_explain(path, error)) from error


def _refuse_strangers(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is another program's SQLite database: name a file of its own for the task store")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply what is pending, in one transaction.

    Several processes may start at once, so the look that counts comes after the lock.
    """
    with closing(connection.cursor()) as cursor:
        if not _pending(cursor, path):
            return
        cursor.execute("BEGIN IMMEDIATE")
        try:
            for migration in _pending(cursor, path):
                for statement in migration.statements:
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {migration.number}")
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def _pending(cursor: sqlite3.Cursor, path: Path) -> tuple[migrate.Migration, ...]:
    (version,) = cursor.execute("PRAGMA user_version").fetchone()
    return migrate.pending(MIGRATIONS, version, where=str(path))


_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database: name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup, or move it away",
    sqlite3.SQLITE_READONLY: "is read-only: fix the permissions of the file and its folder, or name another file",
    sqlite3.SQLITE_FULL: "can't grow: the disk is full; make room",
    sqlite3.SQLITE_CANTOPEN: "can't be opened: check that its folder exists and is writable",
    sqlite3.SQLITE_BUSY: "is locked by another process that does not let go",
    sqlite3.SQLITE_IOERR: "can't be read or written: the disk reports an error",
}


def _explain(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code; the rest says where it arose
    return f"{path} {_REMEDIES.get(code, f'can not be used: {error}')}"
