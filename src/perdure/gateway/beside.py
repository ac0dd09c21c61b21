"""Tasks that a stream is to tell of: what of it is news, and when they are asked for although the stream is open.

A server may tell of its tasks on a stream, and need not. Nothing makes it say how a task is when the stream begins, so
what changed before is never said by a server that only tells of changes; and a stream may die without a word while its
connection lives. So a task of which nothing is said is asked for, soon after the beginning and seldom later. Servers of
ours say at once how each task is, and cost the seldom questions only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio
from anyio.abc import TaskGroup

from perdure.domain.routing import Route

__all__ = ["POLL", "Beside", "Followed"]

POLL: Final = 1.0
"""Seconds between two polls of a task whose backend does not say how many."""
_UNSAID: Final = 2.0
"""Seconds after its beginning in which a stream has to say how a task is."""
_SELDOM: Final = 60.0
"""Seconds, and up to twice as many, after the last word on a task that a stream is about."""


@dataclass(slots=True)
class Followed:
    """One task that is not over yet. `seen`: when it last changed, as its last snapshot has it; `body`: a digest.

    `older`: the digest of what came last, if that was too old. `due`: when to ask for it while there is no stream;
    `silent`: while there is one. `listened`: whether the stream is about it.
    """

    route: Route
    seen: datetime | None = None
    body: int | None = None
    older: int | None = None
    due: float = 0.0
    every: float = POLL
    silent: float = 0.0
    listened: bool = True

    def is_news(self, seen: datetime | None, body: int, *, over: bool) -> bool:
        """Whether a snapshot is to be passed on that has a task as it is since `seen`.

        What is older than what was passed on may have been overtaken, and is left out. But a backend may have several
        clocks, or one that was set back. So an end is never too old, since nothing comes after it; and neither is what
        comes twice in a row.
        """
        same = body == self.body
        older = not same and seen is not None and self.seen is not None and seen < self.seen
        again = body == self.older
        self.older = body if older else None
        return not same and (not older or over or again)

    def heard_of(self) -> None:
        """It was said how it is, or somebody has asked for it."""
        wait = max(_SELDOM * random.uniform(1, 2), self.every) if self.listened else self.every  # noqa: S311 - no secret
        self.silent = anyio.current_time() + wait


class Beside:
    """Has those of the tasks asked for of which a stream says nothing, for as long as it is entered.

    `stream`: of whoever reads it; cancelled once none of the tasks is left. A timer waits and no task of the loop's,
    which would take memory for as long as the stream is open. What is asked then is asked in `group`.
    """

    def __init__(
        self,
        tasks: Mapping[str, Followed],
        poll: Callable[[str, Followed], Awaitable[None]],
        group: TaskGroup,
        stream: anyio.CancelScope,
    ) -> None:
        self._tasks = tasks
        self._poll = poll
        self._group = group
        self._stream = stream
        self._timer: asyncio.TimerHandle | None = None
        self._asking: anyio.CancelScope | None = None
        self._over = False

    def __enter__(self) -> None:
        now = anyio.current_time()
        for task in self._tasks.values():
            task.silent = now + _UNSAID if task.listened else now
        self._wait()

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _wait(self) -> None:
        """Until the first is silent for too long. If something is said of it meanwhile, that is found out then."""
        if self._tasks:
            first = min(task.silent for task in self._tasks.values())
            self._timer = asyncio.get_running_loop().call_at(first, self._group.start_soon, self._ask)

    async def _ask(self) -> None:
        with anyio.CancelScope() as self._asking:
            now = anyio.current_time()
            for theirs in [theirs for theirs, task in self._tasks.items() if task.silent <= now]:
                if not self._over and (task := self._tasks.get(theirs)) is not None:
                    await self._poll(theirs, task)
        if self._over:
            return
        if not self._tasks:
            self._stream.cancel()
        self._wait()
