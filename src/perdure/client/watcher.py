"""The one watcher of a session: whoever waits for a task over it is told by the same stream or the same poll loop.

It runs as one asyncio task, which the first waiter starts and the last one to leave ends and awaits. So nothing runs
while nobody waits, and nothing is left when the session closes: who waits does so inside of it. What goes wrong in it
reaches everybody who waits.

It is an asyncio task and no task group of a waiter's, since waiters come and go in any order; the SDK's session, which
could own it, does not let extensions in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import anyio

from .listening import Listening
from .polling import Polling
from .remote import Remote
from .snapshot import Snapshot
from .watched import Watched

__all__ = ["Idle", "Watcher"]

logger = logging.getLogger(__name__)

_SETTLING: Final = 2.0
"""Seconds in which a new stream may tell of what the one before it told of; after that, it is polled."""
_END_WITHIN: Final = 5.0


class Idle(Protocol):
    """Told that nobody waits any more. `deaf`: whether the server has turned out to serve no streams."""

    def __call__(self, *, deaf: bool) -> None: ...


class Watcher:
    """Watches tasks of one session.

    `listens`: whether to try. `chance`: from 0 to 1.
    """

    def __init__(self, remote: Remote, *, listens: bool, chance: Callable[[], float], idle: Idle) -> None:
        self._watched: dict[str, Watched] = {}
        self._polling = Polling(remote, self._watched, chance)
        self._listening = Listening(remote, self, chance)
        self._listens = listens and remote.may_listen
        self._idle = idle
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self, before: Watched) -> AsyncGenerator[Watched]:
        """Watch a task for the length of the block. `before`: what is known of it, as from an earlier wait."""
        task = self._enter(before)
        try:
            yield task
        finally:
            await self._leave(task)

    def told(self, snapshot: Snapshot, subscription: object, *, trusted: bool) -> None:
        """A notification came. It is only taken as a reason to poll unless it is of a stream of ours.

        `trusted`: it came by this session, and nobody else can have sent it.
        """
        task = self._watched.get(snapshot.id)
        if task is None:
            return
        if not (trusted and snapshot.is_whole and self._listening.told(snapshot.id, subscription)):
            self._polling.at_once(task)
            return
        task.heard = True
        task.offer(snapshot)
        self._polling.heard(task)

    # -- for whom the stream is held -----------------------------------------------------------------------------------

    def wanted(self) -> Iterator[str]:
        """See `Audience`."""
        return (task.id for task in self._watched.values() if task.is_open)

    def unheard(self, task_ids: Collection[str], *, dropped: bool) -> None:
        """See `Audience`."""
        for task_id in task_ids:
            task = self._watched.get(task_id)
            if task is not None and task.heard:
                task.heard = False
                self._polling.at_once(task, after=0.0 if dropped else _SETTLING)

    # -- who waits -----------------------------------------------------------------------------------------------------

    def _enter(self, before: Watched) -> Watched:
        task = self._watched.get(before.id)
        if task is None or not task.is_open:
            task = self._watched[before.id] = before.again(anyio.current_time())
            # Of somebody who waited before. What it told since then is gone, and is asked for.
            task.heard = self._listening.hears(before.id)
            self._polling.begin(task)
        task.waiters += 1
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="perdure: watcher of a session")
        self._listening.audience_changed()
        return task

    async def _leave(self, task: Watched) -> None:
        task.waiters -= 1
        task.left = anyio.current_time()
        if task.waiters == 0 and self._watched.get(task.id) is task:
            del self._watched[task.id]
            self._listening.audience_changed()
        if not self._watched and self._running is not None:
            ending, self._running = self._running, None
            self._idle(deaf=self._listening.refused)
            ending.cancel()
            # It ends soon: what it does is to wait. But the scope that is left may be cancelled already.
            with anyio.CancelScope(shield=True), anyio.move_on_after(_END_WITHIN):
                await asyncio.wait([ending])

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                if self._listens:
                    group.start_soon(self._listening.run)
                await self._polling.run()
        except Exception as error:
            logger.exception("the watcher of a session failed")
            for task in self._watched.values():
                task.fail(error)
