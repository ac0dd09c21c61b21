"""Which backend has which task, and whose it is: the gateway's side of the table of routes.

A route is written before its handle is passed on, and it outlives the request, the gateway and the backend. A client
only ever sees ids that are minted here. What a backend says of ids is not believed: a handle that is none, or that is
of a task of another owner's, is refused, and so is one for a client that can't wait for a task.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final, cast

from perdure.domain import ids
from perdure.domain.errors import RouteTaken, StoreUnavailable, Unreadable
from perdure.domain.model import JSON, JSONObject, Owner
from perdure.domain.routing import MAX_BACKEND_TASK_ID, Route, is_news
from perdure.store.clock import WallClock
from perdure.store.codec import is_plain
from perdure.store.routes import Routes

from . import rewriting
from .answers import refused_handle
from .janitor import Ask, Janitor
from .snapshots import status_of, task_of

__all__ = ["Routing", "TakenRoute", "is_handle", "is_id"]

logger = logging.getLogger(__name__)

_LONGEST: Final = 2**53
"""Milliseconds that a ttl may have, as much as JSON carries everywhere."""


class TakenRoute(Exception):
    """A handle of a task that another owner has."""


def is_handle(message: JSONObject) -> bool:
    """Whether a response says that the request became a task."""
    result = message.get("result")
    return isinstance(result, dict) and result.get("resultType") == "task"


class Routing:
    """The routes of all gateways that share one table."""

    def __init__(self, routes: Routes, randbytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._routes = routes
        self._randbytes = randbytes

    async def laid(self, owner: Owner, backend: str, message: JSONObject) -> JSONObject:
        """The response whose handle is of a task of `backend`, with a route to it: durable once this returns.

        Raises:
            MCPError: -32603, the handle is none.
            TakenRoute: it is of a task that another owner has.
            StoreUnavailable: there is no route; nobody may hear of the task.
        """
        result = cast("JSONObject", message["result"])
        theirs = task_of(result)
        ttl = result.get("ttlMs")
        if theirs is None or not is_id(theirs) or not _is_ttl(ttl) or status_of(result) is None:
            logger.error("the backend %s answered with a malformed task handle, which was refused", backend)
            raise refused_handle(backend)
        try:
            minted = ids.mint(self._randbytes)
            route = await self._routes.lay(owner, backend, theirs, cast("int | None", ttl), minted)
        except RouteTaken:
            logger.error("the backend %s answered with the task of another owner, which was refused", backend)  # noqa: TRY400
            raise TakenRoute from None
        return {**message, "result": rewriting.snapshot(result, theirs, route.id)}

    def janitor(self, ask: Ask, retention: float, give_up: float | None = None) -> Janitor:
        """Who keeps the table. `retention`: seconds that a route stays once its task is over. `give_up`: as there."""
        retention_ms, give_up_ms = round(retention * 1000), None if give_up is None else round(give_up * 1000)
        return Janitor(self._routes, ask, WallClock(), retention_ms=retention_ms, give_up_ms=give_up_ms)

    async def find(self, owner: Owner, task_id: str) -> Route:
        """The route to a task of this owner's.

        Raises:
            MalformedTaskId: it is no id.
            TaskNotFound: it is unknown, foreign, or purged.
        """
        return await self._routes.find(owner, ids.parse(task_id))

    async def find_many(self, owner: Owner, task_ids: Collection[str]) -> Mapping[str, Route]:
        """The routes to those of the tasks that are this owner's, in the order of `task_ids`."""
        found = await self._routes.find_many(owner, task_ids)
        return {task_id: found[task_id] for task_id in task_ids if task_id in found}

    async def note(self, route: Route, snapshot: Mapping[str, JSON]) -> None:
        """What a snapshot told of a task: its ttl, and whether it is over. Writes only what is new.

        A table that can't be reached keeps no snapshot from its client: what is not noted now is by the next one.
        """
        ttl, status = snapshot.get("ttlMs"), status_of(snapshot)
        if _is_ttl(ttl) and status is not None:
            await self._note(route, cast("int | None", ttl), ended=status.terminal)

    async def end(self, route: Route) -> None:
        """The backend has no such task any more. As `note`, in all else."""
        await self._note(route, route.gone_ttl_ms, ended=True)

    async def _note(self, route: Route, ttl_ms: int | None, *, ended: bool) -> None:
        if is_news(route, ttl_ms, ended=ended):
            try:
                await self._routes.update(route.id, ttl_ms=ttl_ms, ended=ended)
            except (StoreUnavailable, Unreadable) as error:
                logger.warning("what a task is like could not be noted on its route: %s", error)


def is_id(text: str) -> bool:
    """Whether a backend's text can be the id of a task: not empty, not endless, and one that every store takes."""
    return 0 < len(text) <= MAX_BACKEND_TASK_ID and is_plain(text)


def _is_ttl(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LONGEST)
