"""What one session's watcher knows of one task: the newest snapshot, when to poll next, and who waits for news.

Several may wait for one task; it is asked for once. Waiters see every state that is newer than the one they know, or
the newest of several: a state that came and went while they were busy is not kept for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from .snapshot import Snapshot

__all__ = ["Watched"]


class Watched:
    """A task that is waited for.

    `due`: when it is polled next, by the loop's clock. `answered`: when the server last told of it in a response;
    `failures`: how many polls in a row came to nothing. `heard`: the open stream has told of it. `waiters`: how many
    wait.
    """

    def __init__(self, task_id: str, snapshot: Snapshot | None) -> None:
        self.id = task_id
        self.snapshot = snapshot
        self.due = 0.0
        self.answered = 0.0
        self.failures = 0
        self.heard = False
        self.polling = False
        self.waiters = 0
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether there is anything to come."""
        return self._failure is None and (self.snapshot is None or not self.snapshot.is_terminal)

    def offer(self, snapshot: Snapshot) -> bool:
        """Take what a server said; whether it is news."""
        if self.snapshot is not None and not snapshot.follows(self.snapshot):
            return False
        self.snapshot = snapshot
        self._tell()
        return True

    def fail(self, error: Exception) -> None:
        """Nothing more will come."""
        if self.is_open:
            self._failure = error
            self._tell()

    async def news(self, known: Snapshot | None = None) -> AsyncIterator[Snapshot]:
        """Each state from one that is not `known` on, to the terminal one.

        Raises:
            ClientError: the task can't be waited for any more.
        """
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
