"""Work that asked something within a request, whose answer nobody can give any more: it is stopped.

Its only handle went out in the state of that request, which is good for a while and then for nothing. Without this, the
work would wait for its ttl, and count for its owner as long.

Kept in the memory of the process that asked. If that ends, or can't know how long a state is good, the ttl remains.
Another process may have been given the answer: so what counts is what is open when the time is up, by keys, which are
never used again. Asked anew there before the answer to all of it, it is stopped by the earlier time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from perdure.domain import ids
from perdure.domain.errors import PerdureError, StoreUnavailable
from perdure.domain.model import Owner, Task
from perdure.store.base import Store

__all__ = ["Unanswered"]

logger = logging.getLogger(__name__)

_EVERY: Final = 1.0
"""Seconds between looks for those whose time is up."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked, by key, and until when the answer may come."""

    owner: Owner
    keys: frozenset[str]
    until: float


class Unanswered:
    """What one process has asked within requests. Its `keep_watch` has to run.

    The store is asked for each time, since it may be set after the program was put together.
    """

    def __init__(self, store: Callable[[], Store], clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    def expect(self, task: Task, seconds: float) -> None:
        """The open questions of a task were put just now, and can be answered for so long, unless they are put anew."""
        keys = frozenset(question.key for question in task.inputs)
        self._asked[task.id] = _Asked(task.owner, keys, self._clock() + seconds)

    async def sweep(self) -> None:
        """Stop the work whose time is up.

        Raises:
            StoreUnavailable: some of it is left for the next time.
        """
        now = self._clock()
        for task_id, asked in [each for each in self._asked.items() if each[1].until <= now]:
            await self._give_up(task_id, asked)
            if self._asked.get(task_id) is asked:
                del self._asked[task_id]

    async def _give_up(self, task_id: str, asked: _Asked) -> None:
        try:
            task = await self._store().get(asked.owner, task_id)
            if asked.keys <= {question.key for question in task.inputs}:
                logger.info("task %s: nobody came back with the answer to what it asks", ids.abbreviated(task_id))
                await self._store().request_cancel(asked.owner, task_id)
        except StoreUnavailable:
            raise
        except PerdureError as error:  # it is gone, or can't be read here: its ttl will do
            logger.debug("task %s was left to its ttl: %s", ids.abbreviated(task_id), error)

    async def keep_watch(self) -> None:
        """Sweep again and again, until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreUnavailable:
                logger.debug("could not stop what nobody can answer: the store is unavailable")
            await asyncio.sleep(_EVERY)
