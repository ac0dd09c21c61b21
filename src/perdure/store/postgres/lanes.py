"""Lanes: a few connections, each of which serves a batch at a time for everybody who is waiting.

A durable write costs round trips and an fsync, and a read costs a round trip, so callers share them. Jobs queue up by
kind while the connections are busy; a connection that is free takes all jobs of a kind that wait, up to a bound. Alone,
a job waits for no one. Nobody is told anything before the batch is through, and what a job wants announced is announced
before its caller is resumed.

What keeps a database that is gone from keeping anybody waiting: connecting and serving are bounded in time, a
connection that failed is dropped, whoever waits when it does hears so at once, and for a moment after it so does
whoever comes. Then the next job connects anew; nothing has to be restarted. If the database hangs, callers of some
kinds hear so before the batch is given up (`Kind.patience`): a client's request is to be answered, while a batch may
yet get through. And where a connection has shown that its server hangs or may no longer be written to, the others are
no better, and are dropped before they are used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import asyncpg

from perdure.domain.errors import NotStorable, PerdureError, StoreUnavailable
from perdure.domain.model import Change

from . import faults
from .outage import Outage
from .url import Connection

__all__ = ["Done", "Job", "Kind", "Lanes"]

logger = logging.getLogger(__name__)

J = TypeVar("J")
T = TypeVar("T")

_CONNECT: Final = 3.0
"""Seconds to connect in. A server that is there answers in milliseconds."""
_SERVE: Final = 12.0
"""Seconds for a batch: a little more than the server's own bound for a statement."""
_LOOK_EVERY: Final = 0.25
"""Seconds between looks for callers who have waited for too long."""
_PAUSE: Final = 0.25
"""Seconds after a failure to connect in which nobody tries again."""
_TRIES: Final = 5
"""How often a batch that fell victim to a deadlock is begun anew."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job: a value or an error for its caller, and changes for everybody."""

    value: Any = None
    error: Exception | None = None
    changes: Sequence[Change] = ()


Serve = Callable[[Connection, Sequence[J]], Awaitable[Sequence[Done]]]
"""Does a batch of jobs, in a transaction of its own if it writes; one `Done` for each, in their order.

It may be called a second time after a first call failed and was rolled back, so it keeps nothing to itself."""


@dataclass(slots=True, eq=False)
class Job(Generic[J]):
    """One caller's wish, the future that it waits for, and since when."""

    wish: J
    future: asyncio.Future[Any]
    since: float


@dataclass(slots=True, eq=False)
class Kind(Generic[J]):
    """Jobs that are served alike: `most` in a batch, and on so many connections `at_once`.

    `patience`: seconds after which a caller hears that the store is unavailable, whatever becomes of the job.
    """

    serve: Serve[J]
    most: int = 200
    at_once: int = 2
    patience: float = math.inf
    waiting: deque[Job[J]] = field(default_factory=deque[Job[J]])
    running: int = 0
    offered: bool = False


class _Offers:
    """Kinds with jobs that wait, for whichever lane was busy last: its connection is warm, and may be the only one.

    A connection costs the server a process, and each of them plans every statement anew; so the others stay closed for
    as long as one is enough.
    """

    def __init__(self) -> None:
        self._kinds: deque[Kind[Any]] = deque()
        self._idle: list[asyncio.Future[Kind[Any]]] = []

    def put(self, kind: Kind[Any], *, by_lane: bool) -> None:
        """`by_lane`: the one who offers it is a lane that is about to take what there is."""
        if self._idle and not by_lane:
            self._idle.pop().set_result(kind)
        else:
            self._kinds.append(kind)

    async def take(self) -> Kind[Any]:
        """The kind that waits longest, or the next. Not to be cancelled while there is more to come."""
        if self._kinds:
            return self._kinds.popleft()
        self._idle.append(asyncio.get_running_loop().create_future())
        return await self._idle[-1]


class Lanes:
    """So many connections, and the queues before them.

    `connect` opens one, within the seconds that it is given. `max_waiting` bounds the queues, past which callers hear
    `StoreUnavailable` at once instead of waiting without end.
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
        self._waiting = 0
        self._offers = _Offers()
        self._lanes: list[asyncio.Task[None]] = []
        self._kinds: set[Kind[Any]] = set()
        self._serving: dict[int, tuple[Kind[Any], list[Job[Any]]]] = {}
        self._spare: Connection | None = None
        self._connections: set[Connection] = set()
        self._doubtful: set[Connection] = set()
        self._outage = Outage("The task store's database")
        self._idle = asyncio.Event()
        self._refuse_until = 0.0

    def open(self, connection: Connection | None = None) -> None:
        """Start; with `connection`, if there is one already. Others are opened as they are needed."""
        self._offers, self._waiting, self._idle = _Offers(), 0, asyncio.Event()
        self._idle.set()
        self._refuse_until = 0.0
        self._spare = connection
        self._lanes = [asyncio.create_task(self._lane(n), name=f"perdure-lane-{n}") for n in range(self._count)]
        self._lanes.append(asyncio.create_task(self._keep_looking(), name="perdure-lanes-patience"))

    async def close(self) -> None:
        """Serve what waits, then close the connections."""
        lanes, self._lanes = self._lanes, []
        if not lanes:
            return
        await self._idle.wait()
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
        if self._waiting >= self._max_waiting:
            raise StoreUnavailable("The task store has too many callers waiting")
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._refuse_until:
            raise StoreUnavailable
        job = Job(wish, loop.create_future(), now)
        self._kinds.add(kind)
        kind.waiting.append(job)
        self._waiting += 1
        self._idle.clear()
        self._offer(kind)
        return await job.future

    def _offer(self, kind: Kind[Any], *, by_lane: bool = False) -> None:
        if kind.waiting and not kind.offered and kind.running < kind.at_once:
            kind.offered = True
            self._offers.put(kind, by_lane=by_lane)

    # -- a lane --------------------------------------------------------------------------------------------------------

    async def _lane(self, number: int) -> None:
        connection: Connection | None = None
        try:
            while True:
                kind = await self._offers.take()
                kind.offered = False
                jobs = [kind.waiting.popleft() for _ in range(min(len(kind.waiting), kind.most))]
                if not jobs:  # their callers were told meanwhile that they wait in vain
                    continue
                kind.running += 1
                self._offer(kind)  # what is left, to the next lane
                self._serving[number] = kind, jobs
                try:
                    connection = await self._serve(connection, kind, jobs)
                finally:
                    kind.running -= 1
                    del self._serving[number]
                self._offer(kind, by_lane=True)
        finally:
            if connection is not None:
                self._forget(connection)
                await _close(connection)

    async def _serve(self, connection: Connection | None, kind: Kind[J], jobs: list[Job[J]]) -> Connection | None:
        """Serve a batch, on a new connection if the last one broke; the connection for the next one.

        The boundary of the lane: if it ended here, every later job would wait for ever.
        """
        done: Sequence[Done]
        try:
            if connection is not None and (connection.is_closed() or connection in self._doubtful):
                self._drop(connection)
                connection = None
            if connection is None:
                connection = await self._connected()
            async with asyncio.timeout(_SERVE):
                done = await self._attempts(connection, kind, [job.wish for job in jobs])
        except Exception as error:  # noqa: BLE001
            self._failed(error, kind, jobs, connection)
            if isinstance(error, TimeoutError) or faults.moved(error):
                self._doubtful |= self._connections
            if connection is not None:
                self._drop(connection)
                connection = None
        else:
            self._deliver(jobs, done)
        return connection

    async def _connected(self) -> Connection:
        connection, self._spare = self._spare, None
        if connection is None or connection.is_closed():
            try:
                async with asyncio.timeout(_CONNECT + 1):  # the driver's own bound is not kept while it looks up a name
                    connection = await self._connect(_CONNECT)
            except Exception:
                self._refuse_until = asyncio.get_running_loop().time() + _PAUSE
                raise
        self._connections.add(connection)
        return connection

    async def _attempts(self, connection: Connection, kind: Kind[J], wishes: Sequence[J]) -> Sequence[Done]:
        """Serve the batch; again if it lost against another; each job alone if one is at fault."""
        for left in reversed(range(_TRIES)):
            try:
                return await kind.serve(connection, wishes)
            except Exception as error:
                if faults.passes(error) and not faults.retriable(error):
                    raise
                await _roll_back(connection)
                if faults.retriable(error):
                    if left:
                        continue
                    raise
                if len(wishes) == 1:
                    return [Done(error=_refused(error))]
        return [each for wish in wishes for each in await self._attempts(connection, kind, [wish])]

    def _drop(self, connection: Connection) -> None:
        connection.terminate()
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._doubtful.discard(connection)

    # -- telling the callers -------------------------------------------------------------------------------------------

    def _deliver(self, jobs: Sequence[Job[Any]], done: Sequence[Done]) -> None:
        self._outage.ends()
        self._announce([change for each in done for change in each.changes])
        for job, each in zip(jobs, done, strict=True):
            self._resolve(job, each)

    async def _keep_looking(self) -> None:
        """Let nobody wait for longer than is right for the kind."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            for kind, jobs in self._serving.values():
                self._lose_patience(kind, jobs, loop.time())
            for kind in self._kinds:
                while kind.waiting and kind.waiting[0].since < loop.time() - kind.patience:
                    self._resolve(kind.waiting.popleft(), Done(error=StoreUnavailable()))

    def _lose_patience(self, kind: Kind[Any], jobs: Sequence[Job[Any]], now: float) -> None:
        """Tell the callers of a batch that is under way, if they have waited for too long. It goes on all the same."""
        for job in jobs:
            if job.since < now - kind.patience and not job.future.done():
                self._outage.begins("it does not answer in time")
                self._doubtful |= self._connections
                job.future.set_exception(StoreUnavailable())

    def _failed(self, error: Exception, kind: Kind[Any], jobs: Sequence[Job[Any]], on: Connection | None) -> None:
        """Nobody knows what came of the batch, and for those behind it there is no connection just now.

        Unless it was known before that this one is no good: by now others may be served elsewhere.
        """
        news = on not in self._doubtful
        if on is not None and not faults.passes(error):
            logger.error("The task store failed", exc_info=error)
        elif news:
            self._outage.begins(_summary(error))
        failed = [*jobs, *kind.waiting] if news else jobs
        if news:
            kind.waiting.clear()
        for job in failed:
            unavailable = StoreUnavailable()
            unavailable.__cause__ = error
            self._resolve(job, Done(error=unavailable))

    def _resolve(self, job: Job[Any], done: Done) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._idle.set()
        if job.future.done():  # its caller was cancelled while it waited; what it wished has happened all the same
            return
        if done.error is None:
            job.future.set_result(done.value)
        else:
            job.future.set_exception(done.error)


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
