"""What those who listen to a task are told: that it has changed and how it stands, and the whole of it when they read.

A result may take megabytes, and those who are told may be thousands, or come late, or never. So what is kept for them
says how the task stands and no more. The rest is read when one of them comes for it: once for all who wait for it then,
and held no longer than they hold it.

Few tasks are read at a time, since a store that reads hundreds of large results together takes long. And those who are
handed something large go on one after the other (`Reading`): to encode it takes a good part of a second of the event
loop, and nobody else would be served until all of them had.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.domain.errors import StoreUnavailable, Unreadable
from perdure.domain.model import JSON, Status, Task

__all__ = ["News", "Reading", "Snapshot"]

_IN_FULL: Final = frozenset({Status.WORKING, Status.CANCELLED})
"""A task of this status has neither result nor error nor questions: how it stands is all there is."""
_READS: Final = 2
"""Tasks that are read at a time."""
_LARGE: Final = 1 << 16
"""About as many characters of JSON are large."""
_LONGEST_REST: Final = 1.0
"""Seconds until the next reader's turn, at most."""


class Snapshot:
    """A task as it was at one version. `made`: what its readers made of it, by the kinds of input that each can give.

    `large`: to make something of it takes long.
    """

    __slots__ = ("__weakref__", "large", "made", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.large = _is_large([task.result, task.error and task.error.data, *(each.request for each in task.inputs)])
        self.made: dict[frozenset[str], Any] = {}


class Reading:
    """How the readers of one process get at what may be large. `read`: gives a task as it is; None if it is gone."""

    def __init__(self, read: Callable[[Task], Awaitable[Task | None]], clock: Callable[[], float]) -> None:
        self.read = read
        self.slots = asyncio.Semaphore(_READS)
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._last: Snapshot | None = None
        """What went out in the last turn, for as long as somebody waits, who may come for the same."""

    @property
    def is_free(self) -> bool:
        """Whether `turn` would not wait."""
        return not self._turn.locked()

    async def turn(self) -> None:
        """Wait for one's turn with something large. It ends some time after `go_on`, which has to be called."""
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1

    def go_on(self, snapshot: Snapshot | None) -> None:
        """What comes of this turn is about to be used by the caller, in this very step of its task.

        The next turn comes no sooner than after as long as that kept the event loop from everybody else. What others
        wait for meanwhile, such as what a store reads, arrives in many passes of the loop.
        """
        self._last = snapshot
        asyncio.get_running_loop().call_soon(self._rest, self._clock())

    def _rest(self, begun: float) -> None:
        took = self._clock() - begun
        asyncio.get_running_loop().call_later(min(took, _LONGEST_REST), self._end_turn)

    def _end_turn(self) -> None:
        if not self._waiting:
            self._last = None
        self._turn.release()


class News:
    """That a task has come to a version, for all who listen to it.

    `task`: how it stood then, without result, error and questions.
    """

    __slots__ = ("__weakref__", "_coming", "_kept", "_large", "_reading", "task")

    def __init__(self, task: Task, reading: Reading) -> None:
        self.task = task
        self._reading = reading
        self._large = False
        self._coming: asyncio.Future[Snapshot | None] | None = None
        snapshot = Snapshot(task) if task.status in _IN_FULL else None
        self._kept: Callable[[], Snapshot | None] = lambda: snapshot

    async def snapshot(self) -> Snapshot | None:
        """The whole task, as of this version or a later one. None if it is gone, or the store was set back behind it.

        If it is large, once it is the caller's turn to make something of it.

        Raises:
            StoreUnavailable: it can't be read now.
            Unreadable: it can't be read here at all.
        """
        snapshot = None
        if not self._large:
            snapshot = await self._whole()
            if snapshot is None or not snapshot.large:
                return snapshot
            self._large = True
            if not self._reading.is_free:
                snapshot = None  # rather than hold it for as long as others take
        await self._reading.turn()
        try:
            snapshot = snapshot or await self._whole()
            return snapshot
        finally:
            self._reading.go_on(snapshot)

    async def _whole(self) -> Snapshot | None:
        """What somebody holds already, or else what is read for all who come for it now."""
        while (kept := self._kept()) is None:
            if self._coming is None:
                return await self._read()
            # Not by awaiting it: a reader that is cancelled would cancel it for all.
            await asyncio.wait({coming := self._coming})
            if not coming.cancelled():
                return coming.result()
        return kept

    async def _read(self) -> Snapshot | None:
        """Read it, for oneself and whoever comes meanwhile. If one is cancelled, the next of them reads."""
        coming = self._coming = asyncio.get_running_loop().create_future()
        try:
            async with self._reading.slots:
                await asyncio.sleep(0)  # all who were woken by the same change come before a store that reads at once
                task = await self._reading.read(self.task)
            snapshot = None if task is None or task.version < self.task.version else Snapshot(task)
            if snapshot is not None:
                self._kept = weakref.ref(snapshot)
            coming.set_result(snapshot)
            return snapshot
        except (StoreUnavailable, Unreadable) as error:
            coming.set_exception(error)
            coming.exception()  # there may be nobody else to hear it
            raise
        finally:
            self._coming = None
            coming.cancel()  # unless it came to something


def _is_large(values: list[JSON]) -> bool:
    """Whether they come to more than `_LARGE`, give or take: no more of them is looked at than that takes."""
    size, pending = 0, values
    while pending and size <= _LARGE:
        value = pending.pop()
        size += len(value) if isinstance(value, str) else 8
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
    return size > _LARGE
