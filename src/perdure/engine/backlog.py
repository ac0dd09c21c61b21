"""The bound of what may wait to be run, so that a server refuses work in time instead of promising what it can't keep.

How much waits is looked up now and then, and what this process has created since is added: a count at each creation
would cost more than the creation. So the bound is kept give or take what other processes create between two looks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from perdure.domain.errors import QueueFull
from perdure.store.base import Store

__all__ = ["Backlog", "Bounds"]

_LOOK_EVERY = 0.25
"""Seconds between looks, at least."""


class Bounds(Protocol):
    """How many tasks may wait; None is no bound."""

    @property
    def backlog(self) -> int | None: ...

    @property
    def tenant_backlog(self) -> int | None: ...


class Backlog:
    """Refuses tasks past `Bounds.backlog` waiting in all, or `Bounds.tenant_backlog` of one tenant.

    Store and bounds are asked for each time, since both may be set after the program was put together.
    """

    def __init__(
        self, store: Callable[[], Store], bounds: Callable[[], Bounds], clock: Callable[[], float] = monotonic
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._waiting: Counter[str] = Counter()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    async def admit(self, tenant: str) -> None:
        """Count one task more.

        Raises:
            QueueFull: too many wait already.
            StoreUnavailable: nobody can tell.
        """
        bounds = self._bounds()
        most = max((bound for bound in (bounds.backlog, bounds.tenant_backlog) if bound is not None), default=None)
        if most is None:
            return
        async with self._looking:  # whoever comes during a look waits for it, or would be admitted on an old count
            await self._look(most)
        if _is_full(bounds.backlog, self._waiting.total()) or _is_full(bounds.tenant_backlog, self._waiting[tenant]):
            raise QueueFull
        self._waiting[tenant] += 1

    async def _look(self, most: int) -> None:
        if self._clock() - self._looked_at >= _LOOK_EVERY:
            self._waiting = Counter(await self._store().backlog(most))
            self._looked_at = self._clock()


def _is_full(bound: int | None, waiting: int) -> bool:
    return bound is not None and waiting >= bound
