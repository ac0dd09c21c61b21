"""Jobs: what callers want of the database, in a queue for each kind, and who of them hears what came of it, and when.

Knows no database and no connection: `lanes` takes batches from here, and says what became of them. What is decided here
is who shares a batch, which kind is next, how many may wait, and for how long.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import Change

from .url import Connection

__all__ = ["Batch", "Done", "Job", "Jobs", "Kind", "Serve"]

J = TypeVar("J")

_QUICK: Final = 0.5
_SLOW: Final = 3.0
"""Seconds for a batch within which the next may be larger, and after which it is to be smaller."""


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
    """Jobs that are served alike: `most` in a batch, and so many batches `at_once`.

    `patience`: seconds after which a caller hears that the store is unavailable, whatever becomes of the job.
    """

    serve: Serve[J]
    most: int = 200
    at_once: int = 2
    patience: float = math.inf
    waiting: deque[Job[J]] = field(default_factory=deque[Job[J]])
    running: int = 0
    offered: bool = False
    room: int = field(init=False)
    """How many there are in a batch at present."""

    def __post_init__(self) -> None:
        self.room = self.most

    def took(self, seconds: float, jobs: int) -> None:
        """A batch of so many was served. How much they weigh is seen by that: a few large values are as good as many.

        Without this, a batch of large values that takes longer than it may would come again as it was, and never end.
        """
        if seconds < _QUICK:
            self.room = min(self.most, self.room * 2)
        elif seconds > _SLOW:
            self.room = max(1, min(self.room, jobs // 2))

    def failed(self, jobs: int) -> None:
        """A batch of so many was not served."""
        self.room = max(1, min(self.room, jobs // 4))


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Generic[J]):
    """Jobs that are served together."""

    kind: Kind[J]
    jobs: Sequence[Job[J]]


class Jobs:
    """All that wait or are being served: `most` of them, past which callers hear `StoreUnavailable` at once."""

    def __init__(self, most: int) -> None:
        self.empty = asyncio.Event()
        """Set while there are none."""
        self.empty.set()
        self._most = most
        self._count = 0
        self._offers = _Offers()
        self._kinds: set[Kind[Any]] = set()
        self._served: set[Batch[Any]] = set()

    def add(self, kind: Kind[J], wish: J) -> asyncio.Future[Any]:
        """Have `wish` served in the next batch of its kind.

        Raises:
            StoreUnavailable: too many wait already.
        """
        if self._count >= self._most:
            raise StoreUnavailable("The task store has too many callers waiting")
        loop = asyncio.get_running_loop()
        job = Job(wish, loop.create_future(), loop.time())
        self._kinds.add(kind)
        kind.waiting.append(job)
        self._count += 1
        self.empty.clear()
        self._offer(kind)
        return job.future

    # -- batches -------------------------------------------------------------------------------------------------------

    async def take(self) -> Batch[Any]:
        """The next batch. Whoever takes it says when it is `over`, and is not cancelled while there is more to come."""
        while True:
            kind = await self._offers.take()
            kind.offered = False
            jobs = [kind.waiting.popleft() for _ in range(min(len(kind.waiting), kind.room))]
            if jobs:  # else their callers were told meanwhile that they wait in vain
                break
        batch = Batch(kind, jobs)
        kind.running += 1
        self._served.add(batch)
        self._offer(kind)  # what is left, to whoever is free
        return batch

    def over(self, batch: Batch[Any]) -> None:
        """It was served, or could not be. Whoever had it is about to take another."""
        batch.kind.running -= 1
        self._served.remove(batch)
        self._offer(batch.kind, by_taker=True)

    def put_back(self, batch: Batch[Any]) -> None:
        """Nothing was done of it, and whoever had it takes no other for a while."""
        batch.kind.running -= 1
        self._served.remove(batch)
        batch.kind.waiting.extendleft(reversed(batch.jobs))
        self._offer(batch.kind)

    def _offer(self, kind: Kind[Any], *, by_taker: bool = False) -> None:
        if kind.waiting and not kind.offered and kind.running < kind.at_once:
            kind.offered = True
            self._offers.put(kind, by_taker=by_taker)

    # -- telling the callers -------------------------------------------------------------------------------------------

    def deliver(self, batch: Batch[Any], done: Sequence[Done]) -> None:
        """To each caller what came of its job."""
        for job, each in zip(batch.jobs, done, strict=True):
            self._resolve(job, each)

    def fail(self, batch: Batch[Any], error: Exception, *, also_behind: bool) -> None:
        """Nobody knows what came of the batch. `also_behind`: nor can those be served who wait for the next."""
        failed = [*batch.jobs]
        if also_behind:
            failed += batch.kind.waiting
            batch.kind.waiting.clear()
        for job in failed:
            unavailable = StoreUnavailable()
            unavailable.__cause__ = error
            self._resolve(job, Done(error=unavailable))

    def lose_patience(self) -> bool:
        """Tell those who have waited for longer than is right for their kind.

        Whether jobs that are being served were among them: those go on all the same.
        """
        now = asyncio.get_running_loop().time()
        for kind in self._kinds:
            while kind.waiting and _is_late(kind.waiting[0], kind, now):
                self._resolve(kind.waiting.popleft(), Done(error=StoreUnavailable()))
        late = [job for batch in self._served for job in batch.jobs if _is_late(job, batch.kind, now)]
        told = [job for job in late if not job.future.done()]
        for job in told:
            job.future.set_exception(StoreUnavailable())
        return bool(told)

    def _resolve(self, job: Job[Any], done: Done) -> None:
        self._count -= 1
        if not self._count:
            self.empty.set()
        if job.future.done():  # its caller waits no longer; what it wished has happened all the same
            return
        if done.error is None:
            job.future.set_result(done.value)
        else:
            job.future.set_exception(done.error)


class _Offers:
    """Kinds with jobs that wait, for whichever taker was busy last: its connection is warm, and may be the only one.

    A connection costs the server a process, and each of them plans every statement anew; so the others stay closed for
    as long as one is enough.
    """

    def __init__(self) -> None:
        self._kinds: deque[Kind[Any]] = deque()
        self._idle: list[asyncio.Future[Kind[Any]]] = []

    def put(self, kind: Kind[Any], *, by_taker: bool) -> None:
        """`by_taker`: the one who offers it is about to take what there is."""
        if self._idle and not by_taker:
            self._idle.pop().set_result(kind)
        else:
            self._kinds.append(kind)

    async def take(self) -> Kind[Any]:
        """The kind that waits longest, or the next."""
        if self._kinds:
            return self._kinds.popleft()
        self._idle.append(asyncio.get_running_loop().create_future())
        return await self._idle[-1]


def _is_late(job: Job[Any], kind: Kind[Any], now: float) -> bool:
    return job.since < now - kind.patience
