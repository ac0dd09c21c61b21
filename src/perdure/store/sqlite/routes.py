"""`SQLiteRoutes`: the routes of a gateway in a store's file, with a writer and a reader of their own.

The same writer as a store's: many callers' routes share a commit, and one that returned is on the disk. The same kind
of reader: a look takes microseconds, right where it is asked for. They are not a store's own, though a store may be
open on the file beside them: what a gateway writes would wait in a worker's batches for nothing, and a gateway has no
store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perdure.domain import routing
from perdure.domain.errors import RouteTaken, TaskNotFound
from perdure.domain.model import JSON, Owner
from perdure.domain.routing import Route
from perdure.store import route_rows
from perdure.store.clock import Clock, WallClock
from perdure.store.codec import encode

from . import sql_routes
from .file import OnFile
from .writer import Transaction

__all__ = ["SQLiteRoutes"]


class SQLiteRoutes(OnFile):
    """`Routes` in one SQLite file, named by a URL such as `sqlite:///tasks.db`."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__(url)
        self._clock = clock or WallClock()

    async def lay(self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str) -> Route:
        route_rows.fit(owner, backend, backend_task_id, gateway_id)

        def operation(tx: Transaction) -> Route:
            return _lay(tx, routing.laid(gateway_id, owner, backend, backend_task_id, ttl_ms, self._clock()))

        return await self._writer.submit(operation)

    async def find(self, owner: Owner, id: str) -> Route:
        row = None
        if route_rows.is_sayable(id, owner):
            row = self._read(lambda reader: reader.one(sql_routes.ROUTE_OWNED, id, owner.tenant, owner.principal))
        if row is None:
            raise TaskNotFound
        return route_rows.route(row)

    async def find_many(self, owner: Owner, ids: Collection[str]) -> Mapping[str, Route]:
        sayable: list[JSON] = [each for each in ids if route_rows.is_sayable(each, owner)]
        if not sayable:
            return {}
        values = encode(sayable), owner.tenant, owner.principal
        return route_rows.by_id(self._read(lambda reader: reader.all(sql_routes.ROUTES_OWNED, *values)))

    async def update(self, id: str, *, ttl_ms: int | None, ended: bool) -> None:
        # The look costs an index probe, and most snapshots say nothing new.
        route = self._read(lambda reader: _by_id(reader, id))
        if route is not None and routing.is_news(route, ttl_ms, ended=ended):
            await self._writer.submit(lambda tx: _update(tx, id, ttl_ms, self._clock(), ended=ended))

    async def take_doubtful(self, limit: int, again_ms: int) -> Mapping[str, Route]:
        # As above: without a look, an idle gateway would begin a transaction each time.
        if not self._read(lambda reader: reader.all(sql_routes.ROUTE_DOUBTFUL, self._clock(), 1)):
            return {}
        return await self._writer.submit(lambda tx: _take_doubtful(tx, limit, again_ms, self._clock()))

    async def purge(self, limit: int, retention_ms: int) -> int:
        if not self._read(lambda reader: reader.all(sql_routes.ROUTE_OVER, self._clock() - retention_ms, 1)):
            return 0
        return await self._writer.submit(lambda tx: _purge(tx, limit, self._clock() - retention_ms))

    async def count(self) -> int:
        return self._read(lambda reader: reader.all(sql_routes.ROUTE_COUNT))[0][0]


def _lay(tx: Transaction, route: Route) -> Route:
    if tx.run(sql_routes.ROUTE_INSERT, *route_rows.values(route)):
        return route
    row = tx.one(sql_routes.ROUTE_BEHIND, route.backend, route.backend_task_id)
    standing = None if row is None else route_rows.route(row)
    if standing is None or standing.owner != route.owner:
        raise RouteTaken
    return standing


def _by_id(tx: Transaction, id: str) -> Route | None:
    row = tx.one(sql_routes.ROUTE_BY_ID, id) if route_rows.is_sayable(id) else None
    return None if row is None else route_rows.route(row)


def _update(tx: Transaction, id: str, ttl_ms: int | None, now: int, *, ended: bool) -> None:
    """Look again, since another gateway may have been told more meanwhile."""
    if (route := _by_id(tx, id)) is not None:
        after = routing.told(route, ttl_ms, now, ended=ended)
        if after != route:
            tx.run(sql_routes.ROUTE_UPDATE, after.expires_at, after.ended_at, after.doubtful_at, id)


def _take_doubtful(tx: Transaction, limit: int, again_ms: int, now: int) -> dict[str, Route]:
    doubtful: list[JSON] = [route_id for (route_id,) in tx.all(sql_routes.ROUTE_DOUBTFUL, now, limit)]
    until = [now + routing.pause(again_ms, unlimited=unlimited) for unlimited in (True, False)]
    return route_rows.by_id(tx.all(sql_routes.ROUTE_ASKED, *until, encode(doubtful)))


def _purge(tx: Transaction, limit: int, before: int) -> int:
    over: list[JSON] = [route_id for (route_id,) in tx.all(sql_routes.ROUTE_OVER, before, limit)]
    return tx.run(sql_routes.ROUTE_DELETE, encode(over))
