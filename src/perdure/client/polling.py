"""The poll loop of a watcher: one heap of due times, and a few requests at once.

A task is asked for when its own time has come, never sooner than the server's newest interval after the server's last
word in a response; how much later is `pace`'s. What is due waits for a free place among the requests, so a server that
is slow is asked less, not more.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from . import faults, pace
from .errors import Disconnected
from .remote import Remote
from .snapshot import Snapshot
from .watched import Watched

__all__ = ["Polling"]

_AT_ONCE: Final = 4
_AWAY: Final = 3
"""Failures in a row, of whichever tasks, that say that it is the server and none of these."""


class Polling:
    """Polls the tasks in `watched`, which whoever owns it adds to and takes from. `chance`: from 0 to 1."""

    def __init__(self, remote: Remote, watched: Mapping[str, Watched], chance: Callable[[], float]) -> None:
        self._remote = remote
        self._watched = watched
        self._chance = chance
        self._heap: list[tuple[float, int, Watched]] = []
        self._numbers = itertools.count()
        self._sooner = asyncio.Event()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._over = 0
        self._in_a_row = 0

    def begin(self, task: Watched) -> None:
        """Poll a task that was just added: at once if nothing is known of it."""
        now = _now()
        task.answered = now
        self.plan(task, now + (self._spread() if task.snapshot is None else self._interval(task.snapshot)))

    def plan(self, task: Watched, due: float) -> None:
        """Poll `task` at `due`, in place of what was planned before."""
        task.due = due
        heapq.heappush(self._heap, (due, next(self._numbers), task))
        if self._heap[0][2] is task:
            self._sooner.set()

    def at_once(self, task: Watched, *, after: float = 0.0) -> None:
        """Poll `task` as soon as manners allow, and not within `after` seconds."""
        due = _now() + after + self._spread()
        if task.snapshot is not None:
            due = max(due, task.answered + self._interval(task.snapshot))
        self.plan(task, due)

    def heard(self, task: Watched) -> None:
        """The stream told of `task`: a poll is only needed in case that the stream is dead."""
        if task.snapshot is None or not task.is_open:
            return
        due = _now() + pace.listened(task.snapshot, self._chance())
        if due < task.due:
            self.plan(task, due)
        else:
            # Written down and not pushed: the heap's entry is looked at when its own time comes. A stream that says
            # much would fill the heap else.
            task.due = due

    async def run(self) -> None:
        """Poll, for ever."""
        async with anyio.create_task_group() as group:
            while True:
                self._sooner.clear()
                await self._start_due(group)
                await self._rest()

    async def _start_due(self, group: TaskGroup) -> None:
        while self._heap and self._heap[0][0] <= _now():
            due, _, task = heapq.heappop(self._heap)
            if self._watched.get(task.id) is not task or task.polling or not task.is_open:
                continue
            if task.due > due:
                self._later(task)
            elif task.due == due:
                await self._places.acquire()
                task.polling = True
                group.start_soon(self._poll, task)

    def _later(self, task: Watched) -> None:
        heapq.heappush(self._heap, (task.due, next(self._numbers), task))

    async def _rest(self) -> None:
        wait = max(0.0, self._heap[0][0] - _now()) if self._heap else None
        with anyio.move_on_after(wait):
            await self._sooner.wait()

    async def _poll(self, task: Watched) -> None:
        try:
            snapshot = await self._remote.get(task.id)
        except Exception as error:  # noqa: BLE001 - boundary: whatever the SDK makes of a server
            self._failed(task, error)
        else:
            self._over, task.failures, task.answered = 0, 0, _now()
            self._answered()
            task.offer(snapshot)
            if task.is_open:
                wait = pace.listened(snapshot, self._chance()) if task.heard else self._interval(snapshot)
                self.plan(task, task.answered + wait)
        finally:
            task.polling = False
            self._places.release()

    def _interval(self, snapshot: Snapshot) -> float:
        return pace.interval(snapshot, self._chance(), len(self._watched))

    def _answered(self) -> None:
        """The server is there. If it was not, nobody need wait until the end of a pause that grew meanwhile."""
        was_away, self._in_a_row = self._in_a_row >= _AWAY, 0
        if was_away:
            for task in self._watched.values():
                if task.failures and not task.polling:
                    self.at_once(task)

    def _spread(self) -> float:
        """What is asked for at once is still asked for one after the other, if it is many."""
        return pace.spread(len(self._watched), self._chance())

    def _failed(self, task: Watched, error: Exception) -> None:
        self._over = self._over + 1 if faults.is_over(error) else 0
        fault = faults.judge(error, task.id)
        # Twice in a row, since a server may say that too.
        ends = Disconnected(task.id) if self._over > 1 else fault.ends
        if isinstance(ends, Disconnected):
            for each in self._watched.values():
                each.fail(Disconnected(each.id))
        if ends is not None:
            ends.__cause__ = error
            task.fail(ends)
            return
        task.failures += 1
        self._in_a_row += 1
        task.answered = _now()
        least = 0.0 if task.snapshot is None else pace.interval(task.snapshot, 0.0)
        wait = max(least, pace.backoff(task.failures, fault.after, self._chance()))
        self.plan(task, task.answered + wait)


def _now() -> float:
    return asyncio.get_running_loop().time()
