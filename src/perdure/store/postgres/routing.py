"""Batches of routes: laid, looked for, brought up to what snapshots told; taken while doubtful, purged when over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from perdure.domain import routing
from perdure.domain.errors import RouteTaken, StoreUnavailable
from perdure.domain.model import Owner
from perdure.store import route_rows

from . import sql_routes
from .access import Access
from .jobs import Done

__all__ = ["Laying", "Sought", "Telling", "count", "find", "lay", "purge", "take_doubtful", "update"]

_TRIES: Final = 3
"""How often a route is laid that stood there at first and could not be found then: somebody purged it in between."""


@dataclass(frozen=True, slots=True)
class Laying:
    """A route that is to be laid."""

    id: str
    owner: Owner
    backend: str
    backend_task_id: str
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class Sought:
    """An owner's routes that are looked for, by their ids."""

    owner: Owner
    ids: Collection[str]


@dataclass(frozen=True, slots=True)
class Telling:
    """What a snapshot told of the task that a route leads to."""

    id: str
    ttl_ms: int | None
    ended: bool


# -- laying ------------------------------------------------------------------------------------------------------------


async def lay(access: Access, given: Sequence[Laying]) -> list[Done]:
    """The routes as they stand then.

    A batch is one statement, which is its own transaction. What stands there already is for the unique indexes to say,
    which know it also of a route that another gateway is laying at this moment; it is looked up afterwards.
    """
    done: dict[int, Done] = {}
    for _ in range(_TRIES):
        left = {number: each for number, each in enumerate(given) if number not in done}
        if not left:
            break
        done |= await _lay(access, left)
    return [done.get(number, Done(error=StoreUnavailable())) for number in range(len(given))]


async def _lay(access: Access, given: dict[int, Laying]) -> dict[int, Done]:
    """Lay those that can be laid, and find the others; without those that are neither."""
    # The same id twice in one batch is the same call twice: the second finds what the first has laid.
    first: dict[str, int] = {}
    for number, each in sorted(given.items(), key=lambda each: (each[1].backend, each[1].backend_task_id)):
        first.setdefault(each.id, number)
    async with access.reading():
        columns = zip(*(_row(given[number]) for number in first.values()), strict=True)
        made = await access.connection.fetch(sql_routes.ROUTE_LAY, access.clock, *map(list, columns))
    done = {first[row[0]]: Done(route_rows.route(row)) for row in made}
    return done | await _standing(access, {number: each for number, each in given.items() if number not in done})


def _row(of: Laying) -> tuple[str | int | None, ...]:
    owner = of.owner
    return of.id, owner.tenant, owner.principal, of.backend, of.backend_task_id, routing.bounded(of.ttl_ms)


async def _standing(access: Access, given: dict[int, Laying]) -> dict[int, Done]:
    if not given:
        return {}
    ids, backends, tasks = zip(*((of.id, of.backend, of.backend_task_id) for of in given.values()), strict=True)
    async with access.reading():
        found = await access.connection.fetch(sql_routes.ROUTE_STANDING, [*ids], [*backends], [*tasks])
    done: dict[int, Done] = {}
    for (number, each), (taken, *row) in zip(given.items(), found, strict=True):
        if row[0] is not None:
            route = route_rows.route(row)
            done[number] = Done(route) if route.owner == each.owner else Done(error=RouteTaken())
        elif taken:
            done[number] = Done(error=RouteTaken())
    return done


# -- looking -----------------------------------------------------------------------------------------------------------


async def find(access: Access, sought: Sequence[Sought]) -> list[Done]:
    """Of each, the owner's routes by their ids."""
    named = [(task_id, of.owner.tenant, of.owner.principal) for of in sought for task_id in of.ids]
    ids, tenants, principals = zip(*named, strict=True)
    async with access.reading():
        rows = await access.connection.fetch(sql_routes.ROUTE_FIND, [*ids], [*tenants], [*principals])
    found = route_rows.by_id(rows)
    # Several may ask for one route, and only one of them be its owner.
    each = ([found[task_id] for task_id in of.ids if task_id in found] for of in sought)
    return [
        Done({route.id: route for route in routes if route.owner == of.owner})
        for of, routes in zip(sought, each, strict=True)
    ]


async def count(access: Access) -> Done:
    async with access.reading():
        return Done(await access.connection.fetchval(sql_routes.ROUTE_COUNT))


# -- writing -----------------------------------------------------------------------------------------------------------


async def update(access: Access, told: Sequence[Telling]) -> list[Done]:
    """Nothing is locked, and no transaction begun, unless one of them is news."""
    async with access.reading():
        rows = await access.connection.fetch(sql_routes.ROUTE_READ, [each.id for each in told])
    routes = route_rows.by_id(rows)
    news = [
        each for each in told if each.id in routes and routing.is_news(routes[each.id], each.ttl_ms, ended=each.ended)
    ]
    if news:
        await _write(access, news)
    return [Done() for _ in told]


async def _write(access: Access, news: Sequence[Telling]) -> None:
    """Look again under the locks, since another gateway may have been told more meanwhile; in the order of telling."""
    async with access.writing():
        rows = await access.connection.fetch(sql_routes.ROUTE_LOCK, access.clock, sorted({each.id for each in news}))
        now = max((row[0] for row in rows), default=0)
        before = route_rows.by_id(row[1:] for row in rows)
        routes = dict(before)
        for each in news:
            if (route := routes.get(each.id)) is not None:
                routes[each.id] = routing.told(route, each.ttl_ms, now, ended=each.ended)
        after = [of for of in routes.values() if of != before[of.id]]
        times = [of.expires_at for of in after], [of.ended_at for of in after], [of.doubtful_at for of in after]
        await access.connection.execute(sql_routes.ROUTE_UPDATE, [of.id for of in after], *times)


async def take_doubtful(access: Access, limit: int, again_ms: int) -> Done:
    spans = [routing.pause(again_ms, unlimited=unlimited) for unlimited in (True, False)]
    async with access.reading():
        rows = await access.connection.fetch(sql_routes.ROUTE_TAKE_DOUBTFUL, access.clock, limit, *spans)
    return Done(route_rows.by_id(rows))


async def purge(access: Access, limit: int, retention_ms: int) -> Done:
    async with access.reading():
        gone = await access.connection.fetch(sql_routes.ROUTE_PURGE, access.clock, limit, retention_ms)
    return Done(len(gone))
