"""The bound of what may wait to be run, so that a server refuses work in time instead of promising what it can't keep.

How much waits is looked up now and then, and what this process has created since is added: a count at each creation
would cost more than the creation. So the bound is kept give or take what other processes create between two looks.
What was added may be done by now, so nobody is refused for it before there was another look.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from perdure.domain.errors import BacklogFull
from perdure.domain.model import NewTask, Task
from perdure.store.base import Store

__all__ = ["Backlog", "Bounds"]

_LOOK_EVERY = 0.25
"""Seconds for which a look counts, at most."""
_COST = 1e-5
"""Seconds between looks, at least, for each task that one may have to count: ten times what it takes to count it."""


class Bounds(Protocol):
    """How many tasks may wait; None is no bound."""

    @property
    def backlog(self) -> int | None: ...

    @property
    def tenant_backlog(self) -> int | None: ...


@dataclass(slots=True)
class _Gauge:
    """How many tasks waited when somebody last looked, and how many were admitted since."""

    looked_at: float
    found: int
    admitted: int = 0


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
        self._gauges: dict[str | None, _Gauge] = {}
        """By tenant, and under None in all; in the order of the looks."""
        self._under_way: Counter[str] = Counter()
        self._looking = asyncio.Lock()

    async def admit(self, tenant: str) -> None:
        """Count one task more.

        Raises:
            BacklogFull: too many wait already.
            StoreUnavailable: nobody can tell.
        """
        bounds = self._bounds()
        watched = {None: bounds.backlog, tenant: bounds.tenant_backlog}
        async with self._looking:  # whoever comes during a look waits for it, or would be admitted on an old count
            gauges = [await self._gauge(whose, bound) for whose, bound in watched.items() if bound is not None]
            for gauge in gauges:
                gauge.admitted += 1

    async def create(self, new: NewTask) -> Task:
        """Create a task that was admitted just now. A look that comes before the store has it counts it all the same.

        Raises:
            TaskNotFound, IdempotencyKeyReused, StoreUnavailable: as `Store.create`.
        """
        self._under_way[new.owner.tenant] += 1
        try:
            return await self._store().create(new)
        finally:
            self._under_way[new.owner.tenant] -= 1
            self._under_way += Counter()  # forgets whoever has none

    async def _gauge(self, whose: str | None, bound: int) -> _Gauge:
        """What says that one task more is within a bound.

        Raises:
            BacklogFull: it is not.
        """
        gauge = self._gauges.get(whose)
        if gauge is None or self._is_old(gauge, bound):
            gauge = await self._look(whose, bound)
        if gauge.found + gauge.admitted >= bound:
            raise BacklogFull
        return gauge

    def _is_old(self, gauge: _Gauge, bound: int) -> bool:
        age = self._clock() - gauge.looked_at
        doubtful = gauge.found < bound <= gauge.found + gauge.admitted
        return age >= _LOOK_EVERY or (doubtful and age >= bound * _COST)

    async def _look(self, whose: str | None, bound: int) -> _Gauge:
        found = sum((await self._store().backlog(bound, whose)).values())
        coming = self._under_way.total() if whose is None else self._under_way[whose]
        now = self._clock()
        self._gauges = {
            other: gauge
            for other, gauge in self._gauges.items()
            if other != whose and now - gauge.looked_at < _LOOK_EVERY
        }
        self._gauges[whose] = gauge = _Gauge(now, found + coming)
        return gauge
