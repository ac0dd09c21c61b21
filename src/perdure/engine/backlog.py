"""The bounds of what may wait to be run, and of what one owner may have, so that a server refuses work in time.

Instead of promising what it can't keep, or keeping so much for one that nothing is left for others.

How much there is is looked up now and then, and what this process has created since is added: a count at each creation
would cost more than the creation. So the bound is kept give or take what other processes create between two looks.
What was added may be done by now, so nobody is refused for it before there was another look. What is being created
while somebody looks may be in the store already, or come to nothing: who would be refused for that waits a moment until
it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol
from weakref import WeakValueDictionary

from perdure.domain.errors import BacklogFull
from perdure.domain.model import NewTask, Owner, Task
from perdure.store.base import Store

from . import patience

__all__ = ["Backlog", "Bounds"]

_LOOK_EVERY = 0.25
"""Seconds for which a look counts, at most."""
_COST = 1e-5
"""Seconds between looks, at least, for each task that one may have to count: ten times what it takes to count it."""


class Bounds(Protocol):
    """How many tasks may wait, in all and of one tenant, and how many unfinished ones an owner may have.

    None is no bound.
    """

    @property
    def backlog(self) -> int | None: ...

    @property
    def tenant_backlog(self) -> int | None: ...

    @property
    def owner_tasks(self) -> int | None: ...


Whose = Owner | str | None
"""Whose tasks are counted: an owner's, a tenant's, or everybody's."""


@dataclass(slots=True)
class _Gauge:
    """How many tasks there were when somebody last looked, and how many were admitted since.

    Those that were being created at that time count as admitted, though the look may have found some of them. `final`:
    somebody has waited to know what came of them, in vain, and nobody else has to.
    """

    looked_at: float
    found: int
    admitted: int = 0
    final: bool = False

    @property
    def count(self) -> int:
        return self.found + self.admitted


class Backlog:
    """Refuses tasks past any of the bounds.

    Store and bounds are asked for each time, since both may be set after the program was put together.
    """

    def __init__(
        self, store: Callable[[], Store], bounds: Callable[[], Bounds], clock: Callable[[], float] = monotonic
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._gauges: dict[Whose, _Gauge] = {}
        """In the order of the looks."""
        self._under_way: dict[asyncio.Event, Owner] = {}
        """What is being created: each sets its event once it is known what came of it."""
        self._looking: WeakValueDictionary[Whose, asyncio.Lock] = WeakValueDictionary()

    async def admit(self, owner: Owner, *, counted: bool = True) -> None:
        """Count one task more. `counted`: its owner has a bound of its own.

        Raises:
            BacklogFull: too many wait already, or the owner has too many.
            StoreUnavailable: nobody can tell.
        """
        bounds = self._bounds()
        watched: dict[Whose, int | None] = {None: bounds.backlog, owner.tenant: bounds.tenant_backlog}
        if counted:
            watched[owner] = bounds.owner_tasks
        bound_of = {whose: bound for whose, bound in watched.items() if bound is not None}
        while True:
            gauges = [
                (self._at_hand(whose, bound) or await self._check(whose, bound, owner), bound)
                for whose, bound in bound_of.items()
            ]
            # During the later looks others may have been admitted.
            if all(gauge.count < bound for gauge, bound in gauges):
                break
        for gauge, _ in gauges:
            gauge.admitted += 1

    async def create(self, new: NewTask) -> Task:
        """Create a task that was admitted just now. A look that comes before the store has it counts it all the same.

        Raises:
            TaskNotFound, IdempotencyKeyReused, StoreUnavailable: as `Store.create`.
        """
        known = asyncio.Event()
        self._under_way[known] = new.owner
        try:
            return await self._store().create(new)
        finally:
            del self._under_way[known]
            known.set()

    def _at_hand(self, whose: Whose, bound: int) -> _Gauge | None:
        """What says that one task more is within a bound, where nobody has to look or to wait: nearly always."""
        gauge = self._gauges.get(whose)
        if gauge is None or gauge.count >= bound or whose in self._looking:
            return None
        return None if self._is_old(gauge, bound) else gauge

    async def _check(self, whose: Whose, bound: int, owner: Owner) -> _Gauge:
        """What says that one task more, of `owner`, is within a bound.

        Raises:
            BacklogFull: it is not.
        """
        looking = self._looking.setdefault(whose, asyncio.Lock())
        async with looking:  # whoever comes during a look waits for it, or would be admitted on an old count
            gauge = await self._settled(whose, bound)
        if gauge.count >= bound:
            raise BacklogFull(_full(whose, bound), owner=owner)
        return gauge

    async def _settled(self, whose: Whose, bound: int) -> _Gauge:
        """One that says nothing of what may be there twice, unless it takes long until that is known."""
        gauge, coming = await self._gauge(whose, bound), self._coming(whose)
        if gauge.final or not coming or not gauge.found < bound <= gauge.count:
            return gauge
        known = await patience.within(_LOOK_EVERY, _all(coming))
        gauge = await self._look(whose, bound)
        gauge.final = not known
        return gauge

    async def _gauge(self, whose: Whose, bound: int) -> _Gauge:
        gauge = self._gauges.get(whose)
        return await self._look(whose, bound) if gauge is None or self._is_old(gauge, bound) else gauge

    def _is_old(self, gauge: _Gauge, bound: int) -> bool:
        age = self._clock() - gauge.looked_at
        doubtful = gauge.found < bound <= gauge.count and not gauge.final
        return age >= _LOOK_EVERY or (doubtful and age >= bound * _COST)

    async def _look(self, whose: Whose, bound: int) -> _Gauge:
        if isinstance(whose, Owner):
            found = await self._store().unfinished(whose, bound)
        else:
            found = sum((await self._store().backlog(bound, whose)).values())
        coming = len(self._coming(whose))
        now = self._clock()
        self._gauges = {
            other: gauge
            for other, gauge in self._gauges.items()
            if other != whose and now - gauge.looked_at < _LOOK_EVERY
        }
        self._gauges[whose] = gauge = _Gauge(now, found, coming)
        return gauge

    def _coming(self, whose: Whose) -> list[asyncio.Event]:
        return [known for known, owner in self._under_way.items() if whose in (None, owner, owner.tenant)]


def _full(whose: Whose, bound: int) -> str:
    if isinstance(whose, Owner):
        return f"Too many tasks of this owner are unfinished already: {bound} is the limit (owner_tasks)"
    if whose is None:
        return f"Too many tasks are waiting already: {bound} is the limit for all (backlog)"
    return f"Too many tasks of this tenant are waiting already: {bound} is the limit (tenant_backlog)"


async def _all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
