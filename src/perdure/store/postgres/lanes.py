"""Lanes: a few connections, each of which serves a batch at a time for everybody who is waiting.

A durable write costs round trips and an fsync, and a read costs a round trip, so callers share them. Jobs queue up by
kind while the connections are busy (`jobs`); a connection that is free takes all jobs of a kind that wait, up to a
bound. Alone, a job waits for no one. Nobody is told anything before the batch is through, and what a job wants
announced is announced before its caller is resumed.

What keeps a database that is gone from keeping anybody waiting: connecting and serving are bounded in time, a
connection that failed is dropped, whoever waits when it does hears so at once, and for a moment after it so does
whoever comes. Then the next job connects anew; nothing has to be restarted. If the database hangs, callers of some
kinds hear so before the batch is given up (`Kind.patience`): a client's request is to be answered, while a batch may
yet get through. And where a connection has shown that its server hangs or may no longer be written to, the others are
no better, and are dropped before they are used again. A lane that can't have a connection while others have
theirs leaves everything to those: a limit of connections that is reached costs speed, and nobody is refused for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import asyncpg

from perdure.domain.errors import NotStorable, PerdureError, StoreUnavailable
from perdure.domain.model import Change

from . import faults
from .jobs import Batch, Done, Jobs, Kind
from .outage import Outage
from .url import Connection

__all__ = ["Lanes"]

logger = logging.getLogger(__name__)

J = TypeVar("J")

_CONNECT: Final = 3.0
"""Seconds to connect in. A server that is there answers in milliseconds."""
_SERVE: Final = 12.0
"""Seconds for a batch: a little more than the server's own bound for a statement."""
_LOOK_EVERY: Final = 0.25
"""Seconds between looks for callers who have waited for too long."""
_PAUSE: Final = 0.25
"""Seconds after a failure to connect in which nobody tries again."""
_FEWER: Final = 1.0
"""Seconds for which a lane that can have no connection leaves everything to those that have theirs."""
_TRIES: Final = 5
"""How often a batch that fell victim to a deadlock is begun anew."""


class Lanes:
    """So many connections, and what they do.

    `connect` opens one, within the seconds that it is given. `max_waiting`: how many callers may wait.
    """

    def __init__(
        self,
        connect: Callable[[float], Awaitable[Connection]],
        announce: Callable[[Sequence[Change]], None],
        *,
        count: int = 4,
        max_waiting: int = 20_000,
    ) -> None:
        self._connect = connect
        self._announce = announce
        self._count = count
        self._max_waiting = max_waiting
        self._jobs = Jobs(max_waiting)
        self._lanes: list[asyncio.Task[None]] = []
        self._spare: Connection | None = None
        self._connections: set[Connection] = set()
        self._doubtful: set[Connection] = set()
        self._outdated: set[Connection] = set()
        self._outage = Outage("The task store's database")
        self._shortage = Outage("One connection more to the task store's database")
        self._refuse_until = 0.0
        self._served = 0.0

    def open(self, connection: Connection | None = None) -> None:
        """Start; with `connection`, if there is one already. Others are opened as they are needed."""
        self._jobs = Jobs(self._max_waiting)
        self._refuse_until = 0.0
        self._served = 0.0
        self._spare = connection
        self._lanes = [asyncio.create_task(self._lane(), name=f"perdure-lane-{n}") for n in range(self._count)]
        self._lanes.append(asyncio.create_task(self._keep_looking(), name="perdure-lanes-patience"))

    async def close(self) -> None:
        """Serve what waits, then close the connections."""
        lanes, self._lanes = self._lanes, []
        if not lanes:
            return
        await self._jobs.empty.wait()
        for lane in lanes:
            lane.cancel()
        await asyncio.wait(lanes)
        if self._spare is not None:
            await _close(self._spare)

    async def do(self, kind: Kind[J], wish: J) -> Any:
        """Have `wish` served in the next batch of its kind.

        Raises:
            StoreUnavailable: the queue is full, this is closed, or the database did not do it in time; whether a write
                happened all the same is unknown then.
            Exception: what came of it.
        """
        if not self._lanes:
            raise StoreUnavailable("The task store is closed")
        if asyncio.get_running_loop().time() < self._refuse_until:
            raise StoreUnavailable
        return await self._jobs.add(kind, wish)

    # -- a lane --------------------------------------------------------------------------------------------------------

    async def _lane(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                batch = await self._jobs.take()
                try:
                    connection = await self._serve(connection, batch)
                except _Shortage:
                    connection = None
                    self._jobs.put_back(batch)
                    await asyncio.sleep(_FEWER)
                else:
                    self._jobs.over(batch)
        finally:
            if connection is not None:
                self._forget(connection)
                await _close(connection)

    async def _serve(self, connection: Connection | None, batch: Batch[Any]) -> Connection | None:
        """Serve a batch, on a new connection if the last one broke; the connection for the next one.

        The boundary of the lane: if it ended here, every later job would wait for ever.

        Raises:
            _Shortage: it can have none, and others can.
        """
        done: Sequence[Done]
        began = asyncio.get_running_loop().time()
        try:
            if connection is not None and (connection.is_closed() or connection in self._doubtful):
                self._drop(connection)
                connection = None
            if connection is None:
                connection = await self._connected()
            started = asyncio.get_running_loop().time()
            async with asyncio.timeout(_SERVE):
                done = await self._attempts(connection, batch.kind, [job.wish for job in batch.jobs])
            batch.kind.took(asyncio.get_running_loop().time() - started, len(batch.jobs))
        except _Shortage:
            raise
        except Exception as error:  # noqa: BLE001
            self._failed(error, batch, connection, began)
            if isinstance(error, TimeoutError) or faults.moved(error):
                self._doubtful |= self._connections
            if faults.moved(error):
                self._outdated |= self._connections
            if connection is not None:
                batch.kind.failed(len(batch.jobs))
                self._drop(connection)
                connection = None
        else:
            self._deliver(batch, done, connection)
        return connection

    async def _connected(self) -> Connection:
        began = asyncio.get_running_loop().time()
        connection, self._spare = self._spare, None
        if connection is None or connection.is_closed():
            try:
                async with asyncio.timeout(_CONNECT + 1):  # the driver's own bound is not kept while it looks up a name
                    connection = await self._connect(_CONNECT)
            except Exception as error:
                # The limit of connections is reached, or a password was changed: those that are open go on. A server
                # that does not answer at all answers on none of them.
                others = (each for each in self._connections - self._doubtful if not each.is_closed())
                if not isinstance(error, TimeoutError) and any(others):
                    self._shortage.begins(_summary(error))
                    raise _Shortage from error
                if self._served < began:
                    self._refuse_until = asyncio.get_running_loop().time() + _PAUSE
                raise
            self._shortage.ends()
        self._connections.add(connection)
        return connection

    async def _attempts(self, connection: Connection, kind: Kind[J], wishes: Sequence[J]) -> Sequence[Done]:
        """Serve the batch; again if it lost against another; each job alone if one is at fault."""
        left = _TRIES
        while True:
            try:
                return await kind.serve(connection, wishes)
            except Exception as error:
                if faults.passes(error) and not faults.retriable(error):
                    raise
                await _roll_back(connection)
                if not faults.retriable(error):  # it would fail as often as it is tried
                    if len(wishes) == 1:
                        return [Done(error=_refused(error))]
                    break
                left -= 1
                if not left:
                    raise
        return [each for wish in wishes for each in await self._attempts(connection, kind, [wish])]

    def _drop(self, connection: Connection) -> None:
        connection.terminate()
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._doubtful.discard(connection)
        self._outdated.discard(connection)

    # -- telling the callers -------------------------------------------------------------------------------------------

    def _deliver(self, batch: Batch[Any], done: Sequence[Done], on: Connection) -> None:
        if on not in self._outdated:  # else it was on its way already, and the next one would not be served
            self._outage.ends()
            self._served = asyncio.get_running_loop().time()
        self._announce([change for each in done for change in each.changes])
        self._jobs.deliver(batch, done)

    def _failed(self, error: Exception, batch: Batch[Any], on: Connection | None, began: float) -> None:
        """Nobody knows what came of the batch, and for those behind it there is no connection just now.

        Unless that is no news: it was known that this connection is no good, or one was asked for when there was none
        to be had, and somebody has been served since.
        """
        news = on not in self._doubtful and (on is not None or self._served < began)
        if on is not None and not faults.passes(error):
            logger.error("The task store failed", exc_info=error)
        elif news:
            self._outage.begins(_summary(error))
        self._jobs.fail(batch, error, also_behind=news)

    async def _keep_looking(self) -> None:
        """Let nobody wait for longer than is right for the kind."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._jobs.lose_patience():
                self._outage.begins("it does not answer in time")
                self._doubtful |= self._connections


class _Shortage(Exception):
    """There are fewer connections to be had than lanes."""


async def _roll_back(connection: Connection) -> None:
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


async def _close(connection: Connection) -> None:
    try:
        with contextlib.suppress(Exception):
            await connection.close(timeout=1)
    finally:
        connection.terminate()


def _refused(error: Exception) -> Exception:
    """What the caller hears of an error that is nobody else's. Values too large or odd for the database are its own."""
    if isinstance(error, PerdureError) or not faults.at_value(error):
        return error
    refused = NotStorable("The database can't store the value")
    refused.__cause__ = error
    return refused


def _summary(error: Exception) -> str:
    """One line, of errors whose words are known to hold nothing secret."""
    if isinstance(error, asyncpg.PostgresError | OSError) and str(error):
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return type(error).__name__
