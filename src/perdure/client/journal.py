"""What a client must still know after a crash: its calls, their handles, and which questions were answered.

One small SQLite file for any number of processes of one machine, written before anything is done about what it says,
with `synchronous=FULL`: a call that was made under a key that nobody remembers can't be made again safely, and an
answer that was sent and forgotten is asked for twice. It is read and written where it is called, on the event loop: a
write takes a few milliseconds, once for each call, handle and answer, and never for a poll. A neighbour that writes is
waited for, two seconds at most, in which the loop stands still.

It holds what the user said and what tools were called with, so it belongs to its user alone (0600); both are erased
once they have been handed on, but for a digest of the arguments. It holds no results, which the server has.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pydantic_core import to_json

from . import journal_file
from . import journal_sql as sql
from .errors import JournalUnusable, KeyReused
from .holder import Alone, Holder, LockedFile

__all__ = ["Answered", "Journal", "Record", "Unanswered"]

_DAY: Final = 86_400.0
_KEEP_LOST: Final = 90 * _DAY


@dataclass(frozen=True, slots=True)
class Record:
    """One call, as the journal has it.

    Attributes:
        server: which server, as `perdure.client.server_of` names it.
        tool: the name of the tool.
        key: the idempotency key of the call; of a handle that came without one of ours, a made-up name.
        task_id: None as long as the call's answer is not known.
        arguments: of the call, as long as `task_id` is None; after that they are erased.
        status: the terminal status that was seen, or `expired`; None before. `lost`: the server did not know the task
            when it was last asked, which may change, as with another token.
        begun_at: seconds since the epoch by this machine's clock.
    """

    number: int
    server: str
    tool: str
    key: str
    task_id: str | None
    arguments: Mapping[str, Any] | None
    status: str | None
    begun_at: float
    holder: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A question that has its answer. `response` is what is still to be sent; None: it was."""

    response: Any | None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question without one. `mine`: it is this caller's to ask; else somebody alive is at it."""

    mine: bool


class Journal:
    """The journal of handles in the file `path`; without one, in memory, for as long as the program runs.

    Several `Tasks` and several processes may use one file. It is closed with the last reference to it, or by `close`.

    Args:
        path: the file, which is made if it is not there; its folder has to be.
        keep_days: how long a record is kept once its task is known to be over. Of one that the server did not know it
            is 90 days at least.

    Raises:
        JournalUnusable: the file can't be opened, or is something else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        keep_days: float = 7.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._now = now
        self._keep = keep_days * _DAY
        self._lock = threading.Lock()
        self._asked: set[tuple[int, str]] = set()
        self._making: set[int] = set()
        with self._explained():
            self._db = journal_file.in_memory() if self.path is None else journal_file.opened(self.path)
            try:
                self._holder: Holder = Alone() if self.path is None else _joined(self.path)
                self._token = self._holder.token
            except BaseException:
                self._db.close()
                raise
        self._let_go = weakref.finalize(self, _let_go, self._db, self._holder, os.getpid())
        with self._transaction() as db:
            self._prune(db)
            db.execute(sql.PRUNE_ANSWERS)

    def close(self) -> None:
        """Let go of the file, and of what was claimed."""
        with self._lock:
            self._let_go()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def intend(self, server: str, tool: str, key: str, arguments: Mapping[str, Any] | None) -> tuple[Record, bool]:
        """A call is about to be made: its record, and whether it is new. Under a key that is known, what there is.

        A new one is this caller's to make. That ends with `put_handle`, `forget` or `let_go`.

        Raises:
            KeyReused: the key is that of a call of another tool, or with other arguments.
        """
        with self._transaction() as db:
            return self._intended(db, server, tool, key, arguments)

    def take(self, record: Record) -> bool:
        """A call without a handle is this caller's to make from now on; False: somebody was quicker.

        Ends as `intend` does.
        """
        with self._transaction() as db:
            if record.number in self._making:
                return False
            taken = db.execute(sql.TAKE, (self._token, record.number, record.holder)).rowcount == 1
            if taken:
                self._making.add(record.number)
        return taken

    def let_go(self, record: Record) -> None:
        """A call that was this caller's is nobody's to make just now, if it has come to nothing yet."""
        if record.number in self._making:
            self._making.discard(record.number)
            self._write(sql.LET_GO, record.number, self._token)

    def put_handle(self, record: Record, task_id: str, spent: Collection[str] = ()) -> Record:
        """The call became this task; if that is on record already, as that one's. Its arguments are erased.

        So are the answers `spent`, which went along. Any other one has not come through, and the task may ask for it.

        A record that somebody forgot meanwhile is made again: the task is there.
        """
        with self._transaction() as db:
            db.executemany(sql.FORGET_ANSWER, [(record.number, key) for key in spent])
            other = db.execute(sql.OTHER, (record.server, task_id, record.number)).fetchone()
            if other or db.execute(sql.HANDLE, (task_id, record.number)).rowcount == 0:
                db.execute(sql.FORGET_ANSWERS, (record.number,))
                db.execute(sql.FORGET, (record.number,))
                self._adopted(db, record.server, record.tool, record.key, task_id)
            handle = _record(db.execute(sql.BY_TASK, (record.server, task_id)).fetchone())
        self._making.discard(record.number)
        return handle

    def adopt(self, server: str, tool: str, task_id: str) -> Record:
        """A task that is waited for without a call of ours on record: what there is of it, or a new record."""
        with self._transaction() as db:
            return self._adopted(db, server, tool, f"task:{task_id}", task_id)

    def settle(self, record: Record, status: str) -> None:
        """The task is known to be over. Its questions are forgotten, and the record itself after `keep_days`."""
        with self._transaction() as db:
            db.execute(sql.SETTLE, (status, self._now(), record.number))
            db.execute(sql.FORGET_ANSWERS, (record.number,))
            self._prune(db)

    def lose(self, record: Record) -> None:
        """The server does not know the task. That is no end: what was answered is kept, and so is the record.

        A task that was over has nothing more to come, and is expired.
        """
        with self._transaction() as db:
            if db.execute(sql.LOSE, (self._now(), record.number)).rowcount == 0:
                db.execute(sql.EXPIRE, (record.number,))

    def regain(self, record: Record) -> None:
        """The server knows the task after all."""
        self._write(sql.REGAIN, record.number)

    def renew(self, record: Record, arguments: Mapping[str, Any] | None) -> tuple[Record, bool]:
        """The call of a task that is no more is about to be made once more under its key: another call, as of `intend`.

        It has a record of its own, so that whoever still holds the task's says nothing of it. If somebody was quicker,
        it is theirs.

        Raises:
            KeyReused: as `intend`.
        """
        with self._transaction() as db:
            if db.execute(sql.FORGET_DEAD, (record.number,)).rowcount == 1:
                db.execute(sql.FORGET_ANSWERS, (record.number,))
            return self._intended(db, record.server, record.tool, record.key, arguments)

    def find(self, server: str, id: str) -> Record | None:
        """The record of a task id or, if it is none, of an idempotency key."""
        rows = self._rows(sql.BY_TASK, server, id) or self._rows(sql.BY_KEY, server, id)
        return _record(rows[0]) if rows else None

    def reread(self, record: Record) -> Record | None:
        """The record as it is now; None if it is no more."""
        rows = self._rows(sql.BY_NUMBER, record.number)
        return _record(rows[0]) if rows else None

    def records(self, server: str | None = None) -> list[Record]:
        """All records, or those of one server, in the order of the calls."""
        rows = self._rows(sql.RECORDS) if server is None else self._rows(sql.RECORDS_OF, server)
        return [_record(row) for row in rows]

    def forget(self, record: Record) -> bool:
        """Delete a record. Whether it was there."""
        with self._transaction() as db:
            db.execute(sql.FORGET_ANSWERS, (record.number,))
            was_there = db.execute(sql.FORGET, (record.number,)).rowcount == 1
        self._making.discard(record.number)
        return was_there

    def is_busy(self, record: Record) -> bool:
        """Whether somebody alive, here or in another process, is just making that call."""
        if record.task_id is not None:
            return False
        if record.holder == self._token:
            return record.number in self._making
        return self._holder.is_alive(record.holder)

    # -- questions -----------------------------------------------------------------------------------------------------

    def claim(self, record: Record, key: str) -> Answered | Unanswered:
        """Whose question this is: answered before; this caller's to ask from now on; or somebody else's.

        One claim at a time, within this process and among all that live. Ends with `answer` or `release`.
        """
        with self._transaction() as db:
            row = db.execute(sql.QUESTION, (record.number, key)).fetchone()
            if row is not None and row[0] != "asking":
                return Answered(None if row[0] == "sent" else json.loads(row[1]))
            held = row is not None and self._is_held(record.number, key, row[2])
            if not held:
                db.execute(sql.CLAIM, (record.number, key, self._token))
                self._asked.add((record.number, key))
        return Unanswered(mine=not held)

    def release(self, record: Record, key: str) -> None:
        """The question is nobody's again: it was not answered."""
        self._asked.discard((record.number, key))
        self._write(sql.RELEASE, record.number, key, self._token)

    def answer(self, record: Record, key: str, response: Any) -> bool:
        """Put an answer on record, which is to be sent. False: there is one, and it stays."""
        self._asked.discard((record.number, key))
        with self._transaction() as db:
            return db.execute(sql.ANSWER, (record.number, key, json.dumps(response))).rowcount == 1

    def record_answer(self, record: Record, key: str, response: Any) -> Any | None:
        """`answer`, and which answer is to be sent then: this one, or the one that was there; None if it was sent."""
        return response if self.answer(record, key, response) else self.unsent(record, key)

    def unsent(self, record: Record, key: str) -> Any | None:
        """The answer on record that is still to be sent, if there is one."""
        row = self._rows(sql.QUESTION, record.number, key)
        return json.loads(row[0][1]) if row and row[0][0] == "recorded" else None

    def carry(self, record: Record, pattern: str, key: str) -> None:
        """The last answer on record with a key of this pattern is that to the question `key`, if that has none.

        It was said to the call, which became the task that asks now.
        """
        found = self._rows(sql.LIKE, record.number, pattern)
        if found:
            self._write(sql.CARRY, key, record.number, found[0][0])

    def given(self, record: Record, key: str) -> Any | None:
        """The answer on record, whether or not it was sent, if there is one."""
        row = self._rows(sql.QUESTION, record.number, key)
        return json.loads(row[0][1]) if row and row[0][1] is not None else None

    def sent(self, record: Record, key: str) -> None:
        """The server has it. It is kept until that shows, or the task is over: a server may not have it after all."""
        self._write(sql.SENT, record.number, key)

    def erase(self, record: Record, key: str) -> None:
        """The question is not open any more: what was said to it is erased, that it was said is not."""
        self._write(sql.ERASE, record.number, key)

    def refused(self, record: Record, key: str) -> None:
        """The server does not take it: the question has no answer again."""
        self._write(sql.REFUSED, record.number, key)

    def _intended(
        self, db: sqlite3.Connection, server: str, tool: str, key: str, arguments: Mapping[str, Any] | None
    ) -> tuple[Record, bool]:
        said = to_json(arguments).decode()
        digest = _digest(said)
        values = (server, tool, key, said, digest, self._now(), self._token)
        is_new = db.execute(sql.INTEND, values).rowcount == 1
        record = _record(db.execute(sql.BY_KEY, (server, key)).fetchone())
        if is_new:
            self._making.add(record.number)
        elif db.execute(sql.DIGEST, (record.number,)).fetchone() != (tool, digest):
            raise KeyReused(record)
        return record, is_new

    def _adopted(self, db: sqlite3.Connection, server: str, tool: str, key: str, task_id: str) -> Record:
        """The record of a task, with the key if no other call has it."""
        for unused in (key, f"task:{task_id}", uuid4().hex):
            db.execute(sql.ADOPT, (server, tool, unused, task_id, self._now(), self._token))
        return _record(db.execute(sql.BY_TASK, (server, task_id)).fetchone())

    def _is_held(self, number: int, key: str, token: str) -> bool:
        if token == self._token:
            return (number, key) in self._asked
        return self._holder.is_alive(token)

    def _prune(self, db: sqlite3.Connection) -> None:
        now = self._now()
        db.execute(sql.PRUNE, (now - self._keep, now - max(self._keep, _KEEP_LOST)))

    # -- SQLite --------------------------------------------------------------------------------------------------------

    def _write(self, statement: str, *values: object) -> None:
        with self._transaction() as db:
            db.execute(statement, values)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._explained():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock, self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise JournalUnusable(f"The journal {self.path or 'in memory'} can't be used: {error}") from error


def _let_go(db: sqlite3.Connection, holder: Holder, pid: int) -> None:
    # A process that was forked off ends with what it was given, and its parent goes on with it.
    if os.getpid() != pid:
        return
    db.close()
    holder.close()


def _digest(arguments: str) -> str:
    """By which two calls are told apart once their arguments are erased. None and no arguments are the same."""
    canonical = json.dumps(json.loads(arguments) or {}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _record(row: tuple[Any, ...]) -> Record:
    number, server, tool, key, task_id, arguments, status, begun_at, holder = row
    parsed = None if arguments is None else json.loads(arguments)
    return Record(number, server, tool, key, task_id, parsed, status, begun_at, holder)


def _joined(path: Path) -> LockedFile:
    holder = LockedFile(path)
    holder.sweep()
    return holder
