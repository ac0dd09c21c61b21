"""The file of a journal: made for its user alone, told from any other file, and ready to be written by several.

What is in it is `journal`'s.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Final, Literal

from . import journal_sql as sql
from .errors import JournalUnusable

__all__ = ["in_memory", "opened"]

logger = logging.getLogger(__name__)

_OPEN_MS: Final = 10_000
_BUSY_MS: Final = 2_000
"""For how long a neighbour that writes is waited for: while the file is opened, and by a write, which holds up the
event loop meanwhile. A neighbour holds the file for milliseconds."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def in_memory() -> sqlite3.Connection:
    """A journal of this process alone."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.executescript(sql.TABLES)
    return db


def opened(path: Path) -> sqlite3.Connection:
    """The journal at `path`, which is made if it is not there.

    Raises:
        JournalUnusable: it is something else.
        sqlite3.Error, OSError: it can't be opened.
    """
    # Made here, so that nobody else can read it from its first moment; SQLite gives its log the same rights.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _keep_to_its_user(path, file)
    finally:
        os.close(file)
    db = sqlite3.connect(path, timeout=_OPEN_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _keep_to_its_user(path: Path, file: int) -> None:
    """Of a file that somebody else made: a copy, say, or one of `touch`."""
    mode = stat.S_IMODE(os.fstat(file).st_mode)
    if mode & _OTHERS:
        try:
            os.fchmod(file, mode & ~_OTHERS)
        except OSError:
            logger.warning("%s may be read by others (%o), and can't be kept from them", path, mode)


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    # In one transaction: a neighbour may be making it just now, and all of that is seen, or nothing.
    db.execute("BEGIN")
    identity, version = (_pragma(db, name) for name in ("application_id", "user_version"))
    is_new = (identity, version) == (0, 0) and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    db.execute("COMMIT")
    if not is_new and (identity, version) != (sql.APPLICATION_ID, sql.VERSION):
        raise JournalUnusable(f"{path} is no journal of this version: name another file")
    _use_wal(db)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")
    if is_new:
        # Several processes may start at once: each statement is harmless the second time.
        db.executescript(f"BEGIN IMMEDIATE; {sql.TABLES} {sql.MARK} COMMIT;")
    db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")


def _use_wal(db: sqlite3.Connection) -> None:
    """The switch gives up at once where a neighbour writes, whatever the time-out; then it has switched, or will."""
    deadline = time.monotonic() + _OPEN_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _pragma(db: sqlite3.Connection, name: Literal["application_id", "user_version"]) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return value
