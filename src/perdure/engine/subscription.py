"""What one client asked to hear of, and what it has not been handed yet. Who fills it, and from what, is `snapshots`'.

Nothing here waits but the reader. There is one slot for each task, so that whoever comes slowly, or never, holds the
newest states at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from perdure.domain.model import Owner, Task

__all__ = ["Home", "Snapshot", "Subscription"]


class Home(Protocol):
    """Where a subscription is kept."""

    def forget(self, subscription: Subscription) -> None:
        """Give back what is held for it. Safe to call twice."""
        ...


class Snapshot:
    """A task as it was at one version. `made`: what its readers made of it, by what for, so that it is made once."""

    __slots__ = ("made", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.made: dict[frozenset[str], Any] = {}


class Subscription:
    """What one client asked for: its tasks. For one reader; made by `Snapshots.subscribe`.

    `accepted`: the ids of the tasks that are its owner's, in the order asked for. `owner`: whose bound it counts for;
    None: nobody's. `pending`: what it has to hand out, by task. `stays`: it goes on when they all are over.
    """

    # There may be thousands, nearly all of which wait: nothing here is made before it is needed.
    __slots__ = ("_ended", "_home", "_open", "_waiting", "accepted", "owner", "pending", "stays")

    def __init__(self, home: Home, owner: Owner | None, *, stays: bool) -> None:
        self.accepted: tuple[str, ...] = ()
        self.owner = owner
        self.stays = stays
        self._home = home
        self._open: set[str] = set()
        self.pending: dict[str, Snapshot] = {}
        self._waiting: asyncio.Future[None] | None = None
        self._ended = False

    async def next(self) -> Snapshot | None:
        """The newest state of a task that it has not handed out, the one that waits longest first. None: it is over.

        It is over once all of its tasks are (terminal, or deleted), unless it stays; and once the engine ends.
        """
        while not self.pending:
            if self._ended or not (self._open or self.stays):
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.pending.pop(next(iter(self.pending)))

    def close(self) -> None:
        """Hear no more. Safe to call twice."""
        self._home.forget(self)
        self.end()

    # -- what the snapshots say to it ----------------------------------------------------------------------------------

    @property
    def open(self) -> Iterable[str]:
        """Its tasks that may change yet."""
        return self._open

    def accept(self, snapshot: Snapshot) -> None:
        """Listen to one task more, and begin with how it stands."""
        self.accepted = (*self.accepted, snapshot.task.id)
        self._open.add(snapshot.task.id)
        self.put(snapshot)

    def put(self, snapshot: Snapshot) -> None:
        """Hand this out next, in place of an older state of the same task."""
        self.pending[snapshot.task.id] = snapshot
        if snapshot.task.status.terminal:
            self._open.discard(snapshot.task.id)
        self._wake()

    def lose(self, task_id: str) -> None:
        """Hear that there is no such task any more."""
        self._open.discard(task_id)
        self._wake()

    def end(self) -> None:
        """Be over, once what is pending is handed out."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
