"""What one client asked to hear of, and what it has not been handed yet. Who fills it, and from what, is `snapshots`'.

Nothing here waits but the reader. There is one slot for each task, with the news of how it stands and nothing large, so
that whoever comes slowly, or never, holds little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from perdure.domain.errors import StoreUnavailable, Unreadable
from perdure.domain.model import Owner

from . import patience
from .news import News, Snapshot

__all__ = ["Home", "Subscription"]


class Home(Protocol):
    """Where a subscription is kept."""

    def forget(self, subscription: Subscription) -> None:
        """Give back what is held for it. Safe to call twice."""
        ...

    def leave(self, subscription: Subscription, task_id: str) -> None:
        """Hear no more of one of its open tasks."""
        ...


class Subscription:
    """What one client asked for: its tasks. For one reader; made by `Snapshots.subscribe`.

    `accepted`: the ids of the tasks that are its owner's, in the order asked for. `owner`: whose bound it counts for;
    None: nobody's. `pending`: what it has to hand out, by task. `stays`: it goes on when they all are over.
    `unreadable`: of one of them at least there was something to hand out that can't be read here. That task is left,
    the others go on, and in the end whoever reads this must not take it for a good one.
    """

    # There may be thousands, nearly all of which wait: nothing here is made before it is needed.
    __slots__ = ("_ended", "_home", "_open", "_waiting", "accepted", "owner", "pending", "stays", "unreadable")

    def __init__(self, home: Home, owner: Owner | None, *, stays: bool) -> None:
        self.accepted: tuple[str, ...] = ()
        self.owner = owner
        self.stays = stays
        self.unreadable = False
        self.pending: dict[str, News] = {}
        self._home = home
        self._open: dict[str, int] = {}
        """Its tasks that may change yet, with the version of each that was handed out last."""
        self._waiting: asyncio.Future[None] | None = None
        self._ended = False

    async def next(self) -> Snapshot | None:
        """A state of a task that is newer than what it handed out, the one that waits longest first. None: it is over.

        It is over once all of its tasks are (terminal, deleted, or left as `unreadable`), unless it stays and has heard
        the end of all; and once the engine ends. While the store is unavailable this waits. Whoever cancels it loses
        nothing.
        """
        while await self._something():
            task_id, news = next(iter(self.pending.items()))
            try:
                snapshot = await news.snapshot()
            except StoreUnavailable:
                if self._ended:
                    return None
                self.pending[task_id] = self.pending.pop(task_id)  # another one may be small enough for a slow store
                await asyncio.wait({self._event()}, timeout=patience.BACKOFF)
                continue
            except Unreadable:
                self._give_up(task_id)
                continue
            self._hand_out(task_id, news, snapshot)
            if snapshot is not None:
                return snapshot
        return None

    async def _something(self) -> bool:
        """Wait until there is something to hand out; whether there is, or will never be."""
        while not self.pending:
            if self._ended or not (self._open or (self.stays and not self.unreadable)):
                return False
            await self._event()
        return True

    def _give_up(self, task_id: str) -> None:
        """Leave a task that can't be read: an answer to what it asks, or its end, would not be shown either."""
        self.unreadable = True
        self.pending.pop(task_id, None)
        if task_id in self._open:
            self._home.leave(self, task_id)
            del self._open[task_id]

    def _event(self) -> asyncio.Future[None]:
        """Done as soon as something happens."""
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def _hand_out(self, task_id: str, news: News, snapshot: Snapshot | None) -> None:
        """What was read for `news` is about to be handed out. What has come meanwhile stays, if it is newer."""
        newest = self.pending.pop(task_id)
        version = 0 if snapshot is None else snapshot.task.version
        if newest is not news and newest.task.version > version:
            self.pending[task_id] = newest
        if task_id in self._open:
            self._open[task_id] = max(self._open[task_id], version)

    def close(self) -> None:
        """Hear no more. Safe to call twice."""
        self._home.forget(self)
        self.end()

    # -- what the snapshots say to it ----------------------------------------------------------------------------------

    @property
    def open(self) -> Collection[str]:
        """Its tasks that may change yet."""
        return self._open

    def accept(self, news: News) -> None:
        """Listen to one task more, and begin with how it stands."""
        self.accepted = (*self.accepted, news.task.id)
        self._open[news.task.id] = 0
        self.put(news)

    def put(self, news: News) -> None:
        """Hand this out next, in place of older news of the same task; unless the reader was ahead of it."""
        task = news.task
        if task.version > self._open[task.id]:
            self.pending[task.id] = news
        if task.status.terminal:
            del self._open[task.id]
        self._wake()

    def lose(self, task_id: str) -> None:
        """Hear that there is no such task any more."""
        self._open.pop(task_id, None)
        self._wake()

    def end(self) -> None:
        """Be over, once what is pending is handed out."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
