"""What one session's watcher knows of one task: the newest snapshot, when to poll next, and who waits for news.

Several may wait for one task; it is asked for once. Waiters see every state that is newer than the one they know, or
the newest of several: a state that came and went while they were busy is not kept for them.

A wait may be left and begun again at any moment, as by who waits in slices. What the server is owed (an interval, a
pause) and what it said does not begin anew with it, so what was known when somebody left is handed to the next.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from . import faults
from .snapshot import Snapshot

__all__ = ["Watched"]


class Watched:
    """A task that is waited for.

    `due`: when it is polled next, by the loop's clock, and `entry` its number in the schedule; `not_before`: until when
    the server does not want to be asked. `answered`: when the server last told of it in a response, or was last asked
    for it; `failures`: how many polls in a row came to nothing; `grace`: what is borne of them; `trouble`: the last.
    `heard`: the open stream has told of it. `waiters`: how many wait; `left`: when the last of them left.
    """

    def __init__(self, task_id: str, snapshot: Snapshot | None, answered: float = 0.0) -> None:
        self.id = task_id
        self.snapshot = snapshot
        self.due = math.inf
        self.entry = 0
        self.not_before = 0.0
        self.answered = answered
        self.failures = 0
        self.grace = faults.Grace()
        self.trouble: Exception | None = None
        self.heard = False
        self.polling = False
        self.waiters = 0
        self.left = -math.inf
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether there is anything to come."""
        return self._failure is None and (self.snapshot is None or not self.snapshot.is_terminal)

    def again(self, now: float) -> Watched:
        """The same task for who waits anew. What went wrong goes on, unless that ended the wait.

        A bad moment does so only where the waits follow each other: nobody saw whether it was over meanwhile.
        """
        task = Watched(self.id, self.snapshot, self.answered)
        task.not_before = self.not_before
        if self._failure is None:
            task.failures, task.trouble = self.failures, self.trouble
            if now - self.left < faults.BORNE:
                task.grace = self.grace
        return task

    def answer(self, snapshot: Snapshot, now: float) -> None:
        """Take the answer to a request about it."""
        self.failures, self.grace, self.answered, self.not_before = 0, faults.Grace(), now, 0.0
        self.offer(snapshot)

    def offer(self, snapshot: Snapshot) -> None:
        """Take what a server said, if it is news."""
        self.trouble = None
        if self.snapshot is None or snapshot.follows(self.snapshot):
            self.snapshot = snapshot
            self._tell()

    def fail(self, error: Exception) -> None:
        """Nothing more will come."""
        if self.is_open:
            self._failure = error
            self._tell()

    async def news(self) -> AsyncIterator[Snapshot]:
        """Each state from the one that is known on, to the terminal one.

        Raises:
            ClientError: the task can't be waited for any more.
        """
        known: Snapshot | None = None
        while True:
            news, snapshot = self._news, self.snapshot
            if snapshot is not None and snapshot is not known:
                yield snapshot
                known = snapshot
                if snapshot.is_terminal:
                    return
            elif self._failure is not None:
                raise self._failure
            else:
                await news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
