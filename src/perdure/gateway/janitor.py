"""Keeping the table of routes: what is doubtful is asked about, and what is over is deleted.

A gateway hears how a task stands when its owner polls, and an owner need not. A ttl that ran out says little: the
backend may have lengthened it when the task ended, for the result to be read, and told nobody. So a route is deleted
only after somebody has asked its backend, under its owner, as the owner would have.

Only two answers end a route: that the task is over and has a ttl, and that there is no such task. Without a ttl it is
there for good, and asked about once a day. To be away, to be too busy, or to answer with something else leaves
everything as it is until the next time. So no task is lost to an outage, and what belongs to a backend that never comes
back is kept, unless an operator says for how long at most (`give_up_ms`).

How a backend is reached is not known here: `ask` does that, within a time of its own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import anyio
from mcp_types import INVALID_PARAMS

from perdure.domain.errors import StoreUnavailable, Unreadable
from perdure.domain.model import JSON
from perdure.domain.routing import Route
from perdure.store.clock import Clock
from perdure.store.routes import Routes

from .snapshots import status_of

__all__ = ["Ask", "Heard", "Janitor", "Nothing", "Standing", "heard", "settled"]

logger = logging.getLogger(__name__)

_BATCH: Final = 200
"""Routes that are asked about, or deleted, in one sweep."""


@dataclass(frozen=True, slots=True)
class Heard:
    """How a task stands, as its backend says: its ttl, None where it is unlimited, and whether it is over."""

    ttl_ms: int | None
    ended: bool


class Nothing(Enum):
    """An answer that does not say how a task stands."""

    GONE = "gone"
    """The backend has no such task of this owner's."""
    UNCLEAR = "unclear"
    """Nothing was said of this task that can be believed; of others there may be."""
    UNREACHABLE = "unreachable"
    """The backend can't be asked about any task."""


Standing = Heard | Nothing
Ask = Callable[[Route], Awaitable[Standing]]
"""Asks the backend of a route how the task stands, for the route's owner. Takes a bounded time, and raises nothing.

Where a backend hears of owners by their own tokens only, that is `UNCLEAR` for each task: the owner is not here."""


def heard(response: Mapping[str, JSON], route: Route) -> Standing:
    """What a backend's whole response to `tasks/get` says of the task that a route leads to."""
    error, result = response.get("error"), response.get("result")
    if isinstance(error, dict):
        # What `tasks/get` answers where the owner has no such task, be it unknown, expired or purged.
        return Nothing.GONE if error.get("code") == INVALID_PARAMS else Nothing.UNCLEAR
    if not isinstance(result, dict) or result.get("taskId") != route.backend_task_id:
        return Nothing.UNCLEAR
    status, ttl_ms = status_of(result), result.get("ttlMs")
    if status is None or isinstance(ttl_ms, bool) or not (ttl_ms is None or isinstance(ttl_ms, int)):
        return Nothing.UNCLEAR
    return Heard(ttl_ms, status.terminal)


def settled(route: Route, answer: Standing, give_up_ms: int | None, now: int) -> Heard | None:
    """What to note of a route after an answer; None: nothing, and it is asked about again later.

    `give_up_ms`: for how long past its ttl a task is believed in whose backend can't be asked; None: for ever. One
    without a ttl always is.
    """
    if isinstance(answer, Heard):
        return answer
    past = 0 if route.expires_at is None else now - route.expires_at
    if answer is Nothing.GONE or (give_up_ms is not None and past > give_up_ms):
        return Heard(route.gone_ttl_ms, ended=True)
    return None


class Janitor:
    """Keeps the routes of all gateways that share a table; each of them may have one.

    `clock`: the time of the routes. `retention_ms`: how long a route stays after its task is over. `again_ms`: how long
    after an answer that settled nothing the same is asked again. `at_once`: how many questions are under way.
    """

    def __init__(
        self,
        routes: Routes,
        ask: Ask,
        clock: Clock,
        *,
        retention_ms: int,
        again_ms: int = 3_600_000,
        give_up_ms: int | None = None,
        every_ms: int = 60_000,
        at_once: int = 8,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._routes = routes
        self._ask = ask
        self._clock = clock
        self._retention_ms = retention_ms
        self._again_ms = again_ms
        self._give_up_ms = give_up_ms
        self._every = every_ms / 1000
        self._at_once = at_once
        self._chance = chance
        self._away: set[str] = set()

    async def sweep(self) -> bool:
        """One batch of questions and one of deletions. Returns whether there may be more.

        A backend that was not reached is not asked again until there was nothing more: what has gathered while it was
        away would else hold up the others, by a time-out each.

        Raises:
            StoreUnavailable: what was taken by then is asked about later.
        """
        doubtful = await self._routes.take_doubtful(_BATCH, self._again_ms)
        await self._settle_all(doubtful.values())
        purged = await self._routes.purge(_BATCH, self._retention_ms)
        more = bool(doubtful) or purged == _BATCH
        if not more:
            self._away.clear()
        return more

    async def keep_house(self) -> None:
        """Sweep again and again, until cancelled."""
        while True:
            more = False
            try:
                more = await self.sweep()
            except StoreUnavailable:
                logger.warning("routes could not be looked after: the store is unavailable")
            # Gateways that were started at one time need not come at one time.
            await anyio.sleep(0.01 if more else self._every * (0.5 + self._chance()))

    async def _settle_all(self, doubtful: Iterable[Route]) -> None:
        limiter = anyio.CapacityLimiter(self._at_once)
        async with anyio.create_task_group() as group:
            for route in doubtful:
                group.start_soon(self._settle, route, limiter)

    async def _settle(self, route: Route, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            answer = Nothing.UNREACHABLE if route.backend in self._away else await self._ask(route)
        if answer is Nothing.UNREACHABLE and route.backend not in self._away:
            self._away.add(route.backend)
            logger.info("the backend %s could not be asked about its tasks; it is asked again later", route.backend)
        note = settled(route, answer, self._give_up_ms, self._clock())
        if note is None:
            return
        try:
            await self._routes.update(route.id, ttl_ms=note.ttl_ms, ended=note.ended)
        except (StoreUnavailable, Unreadable):
            logger.warning("what the backend %s said of a task could not be noted; it is asked again", route.backend)
