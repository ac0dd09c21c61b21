"""The poll loop of a watcher: a few requests at once, for what `schedule` says is due.

A task is asked for when its own time has come, never sooner than the server's newest interval after the server's last
word in a response; how much later is `pace`'s. What is due waits for a free place among the requests, so a server that
is slow is asked less, not more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from . import faults
from .errors import ClientError, Disconnected
from .remote import Remote
from .schedule import Schedule
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
        self._schedule = Schedule(watched, chance)
        self._sooner = asyncio.Event()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._over = 0
        self._in_a_row = 0

    def begin(self, task: Watched) -> None:
        """Poll a task that was just added: at once, but for what is left of an interval or a pause."""
        if len(self._watched) == 1 and task.trouble is not None:
            # Nobody else was answered since.
            self._over = int(faults.is_over(task.trouble))
        self._schedule.begin(task, anyio.current_time())
        self._sooner.set()

    def at_once(self, task: Watched, *, after: float = 0.0) -> None:
        """Poll `task` as soon as manners allow, and not within `after` seconds."""
        self._schedule.at_once(task, anyio.current_time(), after=after)
        self._sooner.set()

    def heard(self, task: Watched) -> None:
        """The stream told of `task`: a poll is only needed in case that the stream is dead."""
        self._schedule.heard(task, anyio.current_time())

    async def run(self) -> None:
        """Poll, for ever."""
        async with anyio.create_task_group() as group:
            while True:
                # The place first: what is due then is the newest that is known of each task.
                await self._places.acquire()
                task = await self._next()
                task.polling = True
                group.start_soon(self._poll, task)

    async def _next(self) -> Watched:
        """Wait for a task that is due."""
        while True:
            self._sooner.clear()
            now = anyio.current_time()
            task = self._schedule.pop(now)
            if task is not None:
                return task
            with anyio.move_on_after(self._schedule.wait(now)):
                await self._sooner.wait()

    async def _poll(self, task: Watched) -> None:
        try:
            snapshot = await self._remote.get(task.id)
        except Exception as error:  # noqa: BLE001 - boundary: whatever the SDK makes of a server
            self._failed(task, error)
        else:
            self._over = 0
            self._answered()
            now = anyio.current_time()
            task.answer(snapshot, now)
            if task.is_open:
                self._schedule.answered(task, snapshot, now)
        finally:
            task.polling = False
            self._places.release()
            self._sooner.set()

    def _answered(self) -> None:
        """The server is there. If it was not, nobody need wait until the end of a pause that grew meanwhile."""
        was_away, self._in_a_row = self._in_a_row >= _AWAY, 0
        if was_away:
            for task in self._watched.values():
                if task.failures and not task.polling:
                    self.at_once(task)

    def _failed(self, task: Watched, error: Exception) -> None:
        self._over = self._over + 1 if faults.is_over(error) else 0
        fault, now = faults.judge(error, task.id), anyio.current_time()
        # Twice in a row, since a server may say that too.
        if self._over > 1 or isinstance(fault.ends, Disconnected):
            for each in self._watched.values():
                each.fail(_caused(Disconnected(each.id), error))
        elif (ends := task.grace.ended(fault, now)) is not None:
            task.fail(_caused(ends, error))
        else:
            self._in_a_row += 1
            task.trouble = error
            self._schedule.failed(task, fault.after, now)


def _caused(ends: ClientError, error: Exception) -> ClientError:
    if ends is not error:
        ends.__cause__ = error
    return ends
