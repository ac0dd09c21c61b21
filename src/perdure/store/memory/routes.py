"""`MemoryRoutes`: the routes of one process, in a dictionary. The oracle of the tests; nothing in it is durable."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perdure.domain import routing
from perdure.domain.errors import RouteTaken, TaskNotFound
from perdure.domain.model import Owner
from perdure.domain.routing import Route
from perdure.store import route_rows
from perdure.store.clock import Clock, WallClock

__all__ = ["MemoryRoutes"]


class MemoryRoutes:
    """`Routes` in this process's memory. `clock` is their one source of time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or WallClock()
        self._routes: dict[str, Route] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def lay(self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str) -> Route:
        route_rows.fit(owner, backend, backend_task_id, gateway_id)
        for route in self._routes.values():
            if (route.backend, route.backend_task_id) == (backend, backend_task_id):
                if route.owner != owner:
                    raise RouteTaken
                return route
        if gateway_id in self._routes:
            raise RouteTaken
        route = routing.laid(gateway_id, owner, backend, backend_task_id, ttl_ms, self._clock())
        self._routes[gateway_id] = route
        return route

    async def find(self, owner: Owner, id: str) -> Route:
        route = self._routes.get(id)
        if route is None or route.owner != owner:
            raise TaskNotFound
        return route

    async def find_many(self, owner: Owner, ids: Collection[str]) -> Mapping[str, Route]:
        found = [self._routes[each] for each in ids if each in self._routes]
        return {route.id: route for route in found if route.owner == owner}

    async def update(self, id: str, *, ttl_ms: int | None, ended: bool) -> None:
        if id in self._routes:
            self._routes[id] = routing.told(self._routes[id], ttl_ms, self._clock(), ended=ended)

    async def take_doubtful(self, limit: int, again_ms: int) -> Mapping[str, Route]:
        now = self._clock()
        doubtful = [route for route in self._routes.values() if routing.is_doubtful(route, now)]
        taken = sorted(doubtful, key=lambda route: (route.doubtful_at, route.id))[:limit]
        asked = {route.id: routing.asked(route, again_ms, now) for route in taken}
        self._routes |= asked
        return asked

    async def purge(self, limit: int, retention_ms: int) -> int:
        now = self._clock()
        over = [route for route in self._routes.values() if routing.is_over(route, retention_ms, now)]
        gone = sorted(over, key=lambda route: (route.over_at, route.id))[:limit]
        for route in gone:
            del self._routes[route.id]
        return len(gone)

    async def count(self) -> int:
        return len(self._routes)
