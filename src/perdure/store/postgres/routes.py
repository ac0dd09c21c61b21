"""`PostgresRoutes`: the routes of gateways in a store's database, each verb a job for the lanes.

On connections of their own, and as many as are needed: a gateway hears of no task's changes, so it has no connection
for hints, and nobody has to have a store open beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from perdure.domain.errors import TaskNotFound
from perdure.domain.model import Owner
from perdure.domain.routing import Route
from perdure.store import route_rows
from perdure.store.clock import Clock

from . import routing, url
from .access import Access
from .jobs import Done, Kind, Serve
from .lanes import Lanes
from .opening import opened
from .routing import Laying, Sought, Telling
from .url import Connection

__all__ = ["PostgresRoutes"]

J = TypeVar("J")

_PATIENCE: Final = 3.5
"""Seconds after which a client's request hears that the store is unavailable, as those of a store do."""
_Errand = Callable[[Access], Awaitable[Done]]


class PostgresRoutes:
    """`Routes` in a PostgreSQL database, named by a URL (`url`).

    `clock`: for tests; by default time is the database's. `lanes`: connections to work with. `max_batch` bounds how
    many callers share a statement.
    """

    def __init__(self, url_: str, clock: Clock | None = None, *, lanes: int = 4, max_batch: int = 200) -> None:
        self._target = url.parse(url_)
        self._clock = clock
        self._lanes = Lanes(self._target.connect, _unheard, count=lanes)
        self._laid = Kind(self._serve(routing.lay), max_batch, patience=_PATIENCE)
        self._found = Kind(self._serve(routing.find), max_batch, patience=_PATIENCE)
        self._told = Kind(self._serve(routing.update), max_batch, patience=_PATIENCE)
        self._errands = Kind(self._serve(_run_errands), 1, 1)

    # -- lifetime ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._lanes.open(await opened(self._target))

    async def close(self) -> None:
        await self._lanes.close()

    # -- verbs ---------------------------------------------------------------------------------------------------------

    async def lay(self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str) -> Route:
        route_rows.fit(owner, backend, backend_task_id, gateway_id)
        return await self._lanes.do(self._laid, Laying(gateway_id, owner, backend, backend_task_id, ttl_ms))

    async def find(self, owner: Owner, id: str) -> Route:
        route = (await self.find_many(owner, [id])).get(id)
        if route is None:
            raise TaskNotFound
        return route

    async def find_many(self, owner: Owner, ids: Collection[str]) -> Mapping[str, Route]:
        sayable = [each for each in ids if route_rows.is_sayable(each, owner)]
        return await self._lanes.do(self._found, Sought(owner, sayable)) if sayable else {}

    async def update(self, id: str, *, ttl_ms: int | None, ended: bool) -> None:
        if route_rows.is_sayable(id):
            await self._lanes.do(self._told, Telling(id, ttl_ms, ended))

    async def take_doubtful(self, limit: int, again_ms: int) -> Mapping[str, Route]:
        return await self._errand(lambda access: routing.take_doubtful(access, limit, again_ms))

    async def purge(self, limit: int, retention_ms: int) -> int:
        return await self._errand(lambda access: routing.purge(access, limit, retention_ms))

    async def count(self) -> int:
        return await self._errand(routing.count)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _errand(self, errand: _Errand) -> Any:
        return await self._lanes.do(self._errands, errand)

    def _serve(self, batch: Callable[[Access, Sequence[J]], Awaitable[Sequence[Done]]]) -> Serve[J]:
        async def serve(connection: Connection, wishes: Sequence[J]) -> Sequence[Done]:
            clock = None if self._clock is None else self._clock()
            return await batch(Access(connection, self._target, clock), wishes)

        return serve


async def _run_errands(access: Access, errands: Sequence[_Errand]) -> list[Done]:
    return [await errand(access) for errand in errands]


def _unheard(_: object) -> None:
    """Nobody is told of routes: a change is one of a task."""
