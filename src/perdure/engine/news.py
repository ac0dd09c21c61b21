"""What those who listen to a task are told: that it has changed and how it stands, and the whole of it when they read.

A result may take megabytes, and those who are told may be thousands, or come late, or never. So what is kept for them
says how the task stands and no more. The rest is read when one of them comes for it: once for all who wait for it then,
and held no longer than they hold it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.domain.model import Status, Task

__all__ = ["News", "Snapshot"]

_IN_FULL: Final = frozenset({Status.WORKING, Status.CANCELLED})
"""A task of this status has neither result nor error nor questions: how it stands is all there is."""


class Snapshot:
    """A task as it was at one version. `made`: what its readers made of it, by what for, so that it is made once."""

    __slots__ = ("__weakref__", "made", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.made: dict[frozenset[str], Any] = {}


class News:
    """That a task has come to a version, for all who listen to it.

    `task`: how it stood then, without result, error and questions. `in_full`: there was nothing else. `read`: gives all
    of it, as it is by then; None if it is gone.
    """

    __slots__ = ("_kept", "_read", "_reading", "in_full", "task")

    def __init__(self, task: Task, read: Callable[[Task], Awaitable[Task | None]]) -> None:
        self.task = task
        self._read = read
        self._reading: asyncio.Future[Snapshot | None] | None = None
        self.in_full = task.status in _IN_FULL
        snapshot = Snapshot(task) if self.in_full else None
        self._kept: Callable[[], Snapshot | None] = lambda: snapshot

    async def snapshot(self) -> Snapshot | None:
        """The whole task, as of this version or a later one. None if it is gone, or the store was set back behind it.

        Raises:
            StoreUnavailable: it can't be read now.
        """
        while (kept := self._kept()) is None:
            if self._reading is None:
                return await self._look()
            # Not by awaiting it: a reader that is cancelled would cancel it for all.
            await asyncio.wait({reading := self._reading})
            if not reading.cancelled():
                return reading.result()
        return kept

    async def _look(self) -> Snapshot | None:
        """Read it, for oneself and whoever comes meanwhile. If that fails, the next of them tries."""
        reading = self._reading = asyncio.get_running_loop().create_future()
        try:
            await asyncio.sleep(0)  # all who were woken by the same change come before a store that reads at once
            task = await self._read(self.task)
            snapshot = None if task is None or task.version < self.task.version else Snapshot(task)
            if snapshot is not None:
                self._kept = weakref.ref(snapshot)
            reading.set_result(snapshot)
            return snapshot
        finally:
            self._reading = None
            reading.cancel()  # unless there was a result
