"""The writer: one thread, one connection, one transaction for everybody who is waiting.

The cost of a durable write is the fsync of its commit, so callers share it. Operations queue up while a commit is on
its way to the disk; the next transaction takes all of them, up to a bound. Nobody is told anything before the commit
has returned. Under load a commit carries dozens of operations; alone, an operation waits for no one.

Two things keep the thread out of the event loop's way, since both want the one interpreter lock and each statement
gives it away and takes it back. What one turn of the loop asks for is handed over at its end in one piece: the thread
would otherwise start on the first operation and pay for a commit of its own while the rest of a burst still comes in.
And a transaction runs without savepoints at first, half of whose statements they would be. Operations that refuse
(a lost lease, an unknown id) do so before they write; should one fail after it has written, the transaction is
rolled back and run again, each operation in a savepoint, so that the one that fails is rolled back alone.

The thread owns its connection entirely and no lock of SQLite's is ever held while Python waits for anything else. What
an operation wants announced (`Transaction.changes`) is announced on the event loop after the commit, before its caller
is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perdure.domain.errors import NotStorable, PerdureError, StoreUnavailable
from perdure.domain.model import Change
from perdure.store.sealing import CLEAR, Codec

__all__ = ["Operation", "Transaction", "Writer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(slots=True)
class Transaction:
    """What an operation works with: a connection inside a transaction, how values are stored, and what to announce.

    `changes` are announced after the commit.
    """

    connection: sqlite3.Connection
    codec: Codec = CLEAR
    changes: list[Change] = field(default_factory=list[Change])

    def all(self, sql: str, *values: object) -> list[Any]:
        """All rows that a statement returns."""
        return self.connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> Any | None:
        """The first row, or None."""
        return self.connection.execute(sql, values).fetchone()

    def insert(self, sql: str, *values: object) -> int | None:
        """Execute an INSERT of one row; the number that it got, or None if it stands there already."""
        cursor = self.connection.execute(sql, values)
        return cursor.lastrowid if cursor.rowcount else None

    def run(self, sql: str, *values: object) -> int:
        """Execute a statement that returns nothing; how many rows it touched."""
        return self.connection.execute(sql, values).rowcount


Operation = Callable[[Transaction], T]
"""Runs on the writer's thread in a transaction; raises to be rolled back. Must not block on anything but SQLite.

It may be called a second time, after what the first call did was rolled back, so it keeps nothing to itself."""


@dataclass(slots=True)
class _Job:
    operation: Operation[Any]
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Done:
    job: _Job
    result: Any = None
    error: BaseException | None = None
    changes: Sequence[Change] = ()


class _LeftHalf(Exception):
    """An operation failed after it had written something, and there is no savepoint to go back to."""


class Writer:
    """Serializes operations onto one connection and commits them in groups.

    `intact` says whether the file at the path is still the one that is written: a commit into a file that was deleted
    succeeds, and nobody else would ever see it. `max_batch` bounds a transaction, so that the first caller of a burst
    does not wait for the last; `max_pending` bounds the queue, past which callers hear `StoreUnavailable` at once
    instead of waiting without end. `codec`: for `Transaction`.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        announce: Callable[[Change], None],
        intact: Callable[[], bool] = lambda: True,
        *,
        codec: Codec = CLEAR,
        max_batch: int = 500,
        max_pending: int = 20_000,
    ) -> None:
        self._connect = connect
        self._announce = announce
        self._intact = intact
        self._codec = codec
        self._max_batch = max_batch
        self._max_pending = max_pending
        self._gathered: list[_Job] = []
        self._jobs: deque[_Job] = deque()
        self._arrived = threading.Condition()
        self._closing = False
        self._asked = False
        self._version: int | None = None
        self._thread: threading.Thread | None = None
        self.others = 0
        """Another number than before once others were seen to have committed (`look_for_others`)."""

    async def open(self) -> None:
        """Start the thread and open its connection; raises what opening it raises."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False
        self._thread = threading.Thread(target=self._main, args=(opened,), name="perdure-writer", daemon=True)
        self._thread.start()
        try:
            await opened
        except (PerdureError, sqlite3.Error):
            self._thread = None  # it has ended: a write that is asked for all the same must not wait for it
            raise

    async def close(self) -> None:
        """Commit what is queued, then end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._hand_over()
        with self._arrived:
            self._closing = True
            self._arrived.notify()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    async def submit(self, operation: Operation[T]) -> T:
        """Run `operation` in the next transaction; returns once it is durable.

        Raises:
            StoreUnavailable: the queue is full, the writer is closed, or SQLite could not commit.
            Exception: whatever the operation raised; it alone was rolled back.
        """
        if self._thread is None:
            raise StoreUnavailable("The task store is closed")
        if len(self._gathered) + len(self._jobs) >= self._max_pending:
            raise StoreUnavailable("The task store has too many writes waiting")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append(_Job(operation, future))
        return await future

    def look_for_others(self) -> None:
        """Have the thread find out soon whether anybody else has committed since it last did so."""
        with self._arrived:
            self._asked = True
            self._arrived.notify()

    def _hand_over(self) -> None:
        """Give the thread what has gathered during this turn of the event loop."""
        with self._arrived:
            self._jobs.extend(self._gathered)
            self._gathered.clear()
            self._arrived.notify()

    # -- on the writer's thread ----------------------------------------------------------------------------------------

    def _main(self, opened: asyncio.Future[None]) -> None:
        loop = opened.get_loop()
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whoever opens the store hears of it
            _on_loop(loop, _resolve, opened, None, error)
            return
        self._version = _data_version(connection)
        _on_loop(loop, _resolve, opened, None, None)
        alive: sqlite3.Connection | None = connection
        while (batch := self._next_batch()) is not None:
            if batch:
                alive, done = self._serve(alive, batch)
                _on_loop(loop, self._deliver, done)
            self._look_for_others(alive)
        _close(alive)

    def _serve(
        self, connection: sqlite3.Connection | None, batch: list[_Job]
    ) -> tuple[sqlite3.Connection | None, list[_Done]]:
        """Commit a batch, on a new connection if the last one broke; the connection for the next batch.

        The boundary of the thread: if it ended here, every later write would wait for ever.
        """
        if not self._intact():
            logger.critical("The task store's file was removed or replaced; stop this process, and look for the file")
            return connection, [_Done(job, error=StoreUnavailable("The task store's file is gone")) for job in batch]
        try:
            connection = connection or self._connect()
            return connection, _commit(connection, batch, self._codec)
        except Exception as error:
            logger.critical("The task store's connection broke; it will be opened anew", exc_info=True)
            _close(connection)
            self._version = None  # what another connection says is compared with nothing
            return None, [_Done(job, error=_unavailable(error)) for job in batch]

    def _look_for_others(self, connection: sqlite3.Connection | None) -> None:
        """Find out whether others have committed, if that was asked for. Where it can't be told, they may have."""
        if self._asked:
            self._asked = False
            before, self._version = self._version, _data_version(connection)
            self.others += before is None or before != self._version

    def _next_batch(self) -> list[_Job] | None:
        """The jobs that wait, if any; None once the writer is closing and the queue is empty."""
        with self._arrived:
            while not (self._jobs or self._asked or self._closing):
                self._arrived.wait()
            if self._closing and not self._jobs:
                return None
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), self._max_batch))]

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def _deliver(self, batch: list[_Done]) -> None:
        for done in batch:
            for change in done.changes:
                self._announce(change)
            _resolve(done.job.future, done.result, done.error)


def _data_version(connection: sqlite3.Connection | None) -> int | None:
    """A number that commits of other connections change, and those of this one do not; None if it can't be had."""
    try:
        return None if connection is None else connection.execute("PRAGMA data_version").fetchone()[0]
    except sqlite3.Error:
        return None


def _commit(connection: sqlite3.Connection, batch: list[_Job], codec: Codec) -> list[_Done]:
    try:
        try:
            return _transaction(connection, batch, codec, _attempt)
        except _LeftHalf:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return _transaction(connection, batch, codec, _attempt_alone)
    except sqlite3.Error as error:
        # A full disk or an I/O error may end the whole transaction, at a statement or at the commit: nobody's write
        # happened.
        logger.warning("The task store could not commit: %s", error)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return [_Done(job, error=_unavailable(error)) for job in batch]


def _transaction(
    connection: sqlite3.Connection, batch: list[_Job], codec: Codec, attempt: Callable[[Transaction, _Job], _Done]
) -> list[_Done]:
    connection.execute("BEGIN IMMEDIATE")
    done = [attempt(Transaction(connection, codec), job) for job in batch]
    connection.execute("COMMIT")
    return done


def _attempt(transaction: Transaction, job: _Job) -> _Done:
    """Run an operation that, if it fails at all, fails before it has written.

    Raises:
        _LeftHalf: it did not.
    """
    connection, before = transaction.connection, transaction.connection.total_changes
    try:
        result = job.operation(transaction)
    except Exception as error:  # the operation's boundary, as in `_attempt_alone`
        if isinstance(error, sqlite3.Error) or connection.total_changes != before:
            raise _LeftHalf from error
        return _Done(job, error=error)
    return _Done(job, result, changes=transaction.changes)


def _attempt_alone(transaction: Transaction, job: _Job) -> _Done:
    """Run an operation in a savepoint, whatever it does."""
    connection = transaction.connection
    connection.execute("SAVEPOINT operation")
    try:
        result = job.operation(transaction)
    except sqlite3.Error as error:
        if not connection.in_transaction:
            raise
        _roll_back(connection)
        logger.warning("The task store refused a write: %s", error)
        return _Done(job, error=_refused(error))
    except Exception as error:  # noqa: BLE001 - the operation's boundary: its caller hears of it, the batch goes on
        _roll_back(connection)
        return _Done(job, error=error)
    connection.execute("RELEASE operation")
    return _Done(job, result, changes=transaction.changes)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed: nobody is left to tell
        logger.debug("a commit outlived its event loop")


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # its caller was cancelled while it waited; the write has happened all the same
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _roll_back(connection: sqlite3.Connection) -> None:
    connection.execute("ROLLBACK TO operation")
    connection.execute("RELEASE operation")


def _unavailable(error: Exception) -> StoreUnavailable:
    unavailable = StoreUnavailable()
    unavailable.__cause__ = error
    return unavailable


def _refused(error: sqlite3.Error) -> Exception:
    """What an operation's caller hears of an error of SQLite's. Whether to try again is the question that matters."""
    if isinstance(error, sqlite3.DataError):
        refused = NotStorable("The value is too large to be stored")
        refused.__cause__ = error
        return refused
    # What an operational error is about (a lock, the disk, memory) passes. Damage does not, but to whoever asks such a
    # file is as good as none, and it is no reason for a worker to end. The rest is a bug, and would stay one.
    passes = isinstance(error, sqlite3.OperationalError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
    return _unavailable(error) if passes else error


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
