"""The writer: one thread, one connection, one transaction for everybody who is waiting.

The cost of a durable write is the fsync of its commit, so callers share it. Operations queue up while a commit is on
its way to the disk; the next transaction takes all of them (up to a bound), each in a savepoint of its own, so that one
that fails is rolled back alone. Nobody is told anything before the commit has returned. Under load a commit carries
dozens of operations; alone, an operation waits for no one.

The thread owns its connection entirely and no lock of SQLite's is ever held while Python waits for anything else. What
an operation wants announced (`Transaction.changes`) is announced on the event loop after the commit, before its caller
is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perdure.domain.errors import PerdureError, StoreUnavailable
from perdure.domain.model import Change

__all__ = ["Operation", "Transaction", "Writer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Transaction:
    """What an operation works with: a connection inside a transaction, and the changes to announce after the commit."""

    connection: sqlite3.Connection
    changes: list[Change] = field(default_factory=list[Change])

    def all(self, sql: str, *values: object) -> list[Any]:
        """All rows that a statement returns."""
        return self.connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> Any | None:
        """The first row, or None."""
        return self.connection.execute(sql, values).fetchone()

    def insert(self, sql: str, *values: object) -> int:
        """Execute an INSERT of one row; the number that it got."""
        return self.connection.execute(sql, values).lastrowid or 0

    def run(self, sql: str, *values: object) -> int:
        """Execute a statement that returns nothing; how many rows it touched."""
        return self.connection.execute(sql, values).rowcount


Operation = Callable[[Transaction], T]
"""Runs on the writer's thread in a transaction; raises to be rolled back. Must not block on anything but SQLite."""


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


class Writer:
    """Serializes operations onto one connection and commits them in groups.

    `max_batch` bounds a transaction, so that the first caller of a burst does not wait for the last; `max_pending`
    bounds the queue, past which callers hear `StoreUnavailable` at once instead of waiting without end.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        announce: Callable[[Change], None],
        *,
        max_batch: int = 500,
        max_pending: int = 20_000,
    ) -> None:
        self._connect = connect
        self._announce = announce
        self._max_batch = max_batch
        self._max_pending = max_pending
        self._jobs: deque[_Job] = deque()
        self._arrived = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

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
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._arrived:
            if self._thread is None or self._closing:
                raise StoreUnavailable("The task store is closed")
            if len(self._jobs) >= self._max_pending:
                raise StoreUnavailable("The task store has too many writes waiting")
            self._jobs.append(_Job(operation, future))
            self._arrived.notify()
        return await future

    # -- on the writer's thread ----------------------------------------------------------------------------------------

    def _main(self, opened: asyncio.Future[None]) -> None:
        loop = opened.get_loop()
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whoever opens the store hears of it
            _on_loop(loop, _settle, opened, None, error)
            return
        _on_loop(loop, _settle, opened, None, None)
        try:
            while batch := self._next_batch():
                _on_loop(loop, self._deliver, self._commit(connection, batch))
        finally:
            connection.close()

    def _next_batch(self) -> list[_Job]:
        """The jobs that wait, at least one; none once the writer is closing and the queue is empty."""
        with self._arrived:
            while not self._jobs and not self._closing:
                self._arrived.wait()
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), self._max_batch))]

    def _commit(self, connection: sqlite3.Connection, batch: list[_Job]) -> list[_Done]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            done = [self._attempt(connection, job) for job in batch]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # A full disk or an I/O error may end the whole transaction, at a statement or at the commit: nobody's write
            # happened.
            logger.warning("The task store could not commit: %s", error)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return [_Done(job, error=_unavailable(error)) for job in batch]
        return done

    def _attempt(self, connection: sqlite3.Connection, job: _Job) -> _Done:
        transaction = Transaction(connection)
        connection.execute("SAVEPOINT operation")
        try:
            result = job.operation(transaction)
        except sqlite3.Error as error:
            if not connection.in_transaction:
                raise
            _roll_back(connection)
            logger.warning("The task store refused a write: %s", error)
            return _Done(job, error=_unavailable(error))
        except Exception as error:  # noqa: BLE001 - the operation's boundary: its caller hears of it, the batch goes on
            _roll_back(connection)
            return _Done(job, error=error)
        connection.execute("RELEASE operation")
        return _Done(job, result, changes=transaction.changes)

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def _deliver(self, batch: list[_Done]) -> None:
        for done in batch:
            for change in done.changes:
                self._announce(change)
            _settle(done.job.future, done.result, done.error)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed: nobody is left to tell
        logger.debug("a commit outlived its event loop")


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # its caller was cancelled while it waited; the write has happened all the same
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _roll_back(connection: sqlite3.Connection) -> None:
    connection.execute("ROLLBACK TO operation")
    connection.execute("RELEASE operation")


def _unavailable(error: sqlite3.Error) -> PerdureError:
    unavailable = StoreUnavailable()
    unavailable.__cause__ = error
    return unavailable
