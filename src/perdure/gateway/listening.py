"""`subscriptions/listen`: one client stream over the tasks, tools, prompts and resources of several backends.

Each backend that is concerned has a `Feed`. What it takes part in goes into the one acknowledgement, which waits a
little for them: one that can't be reached just now is believed to have the tasks that there are routes to. After that
the feeds speak, each for itself, under the client's subscription id and the gateway's task ids. Once all tasks are
over, and no other kind was asked for, the stream ends with the result.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, SERVER_INFO_META_KEY

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId
from perdure.domain.model import JSONObject, Owner
from perdure.domain.routing import Route
from perdure.wire.identity import is_one_of_many

from . import changes, envelope, rewriting
from .answers import UNAVAILABLE, success
from .backends import Asker, Backend, of_each
from .catalog import Catalog
from .changes import Change
from .envelope import Request
from .feed import ACKNOWLEDGED, LISTEN, Feed
from .inflight import Pending
from .relay import Outlet, Stalled
from .routing import Routing

__all__ = ["LISTEN", "Listening"]

logger = logging.getLogger(__name__)

_BEGIN_WITHIN: Final = 5.0
"""Seconds that the acknowledgement waits for the backends."""
_RETRY_MS: Final = 5_000
"""Milliseconds after which to come back, if there are too many streams."""


class Listening:
    """All streams of one gateway. `most`: at once; `of_owner`: of one owner's; `tasks`, and resources: on one."""

    def __init__(
        self,
        routing: Routing,
        backends: dict[str, Backend],
        catalog: Catalog,
        *,
        most: int,
        of_owner: int,
        tasks: int,
    ) -> None:
        self._routing = routing
        self._backends = backends
        self._catalog = catalog
        self._most = most
        self._of_owner = of_owner
        self._tasks = tasks
        self._open: set[anyio.CancelScope] = set()
        self._owners: Counter[Owner] = Counter()
        self._ended = False

    def __len__(self) -> int:
        return len(self._open)

    def end(self) -> None:
        """Have all streams end, and say so."""
        self._ended = True
        for scope in self._open:
            scope.cancel()

    async def serve(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        """Serve one stream.

        Raises:
            MCPError: -32602, too many tasks or resources for one stream among it; -32021; -32000 if there are too many.
            Stalled: the client does not read it.
        """
        task_ids, core = _asked(request)
        for what, asked in (("tasks", task_ids or []), ("resources", changes.uris(core))):
            if len(asked) > self._tasks:
                text = f"A subscription may ask for {self._tasks} {what} at most (subscribed_tasks)"
                raise MCPError(INVALID_PARAMS, text)
        with self._admitted(asker) as scope:
            stream = _Stream(self, request, asker, outlet)
            routes = await self._routing.find_many(asker.owner, task_ids or ())
            feeds = await self._feeds(stream, routes, core)
            with scope:
                await stream.serve(feeds, routes, core, task_ids)
        if stream.stalled:
            raise Stalled
        if not outlet.begun:
            await stream.acknowledge({}, None if task_ids is None else [])
        meta: JSONObject = {**stream.meta, SERVER_INFO_META_KEY: self._catalog.server_info}
        await outlet.answer(success(request.id, {"resultType": "complete", "_meta": meta}))

    @contextmanager
    def _admitted(self, asker: Asker) -> Generator[anyio.CancelScope]:
        if (why := self._why_not(asker.owner)) is not None:
            raise MCPError(UNAVAILABLE, why, {"gateway": True, "retryAfterMs": _RETRY_MS})
        scope = anyio.CancelScope(deadline=anyio.current_time() + _life(asker.token))
        self._open.add(scope)
        self._owners[asker.owner] += 1
        try:
            yield scope
        finally:
            self._open.discard(scope)
            self._owners[asker.owner] -= 1
            if not self._owners[asker.owner]:
                del self._owners[asker.owner]

    def _why_not(self, owner: Owner) -> str | None:
        if self._ended:
            return "The gateway is shutting down"
        if len(self._open) >= self._most:
            return f"Too many subscriptions are open already: {self._most} is the limit for all (subscriptions)"
        if is_one_of_many(owner) and self._owners[owner] >= self._of_owner:
            bound = f"{self._of_owner} is the limit (subscriptions_per_owner)"
            return f"Too many subscriptions of this owner are open already: {bound}"
        return None

    async def _feeds(self, stream: _Stream, routes: Mapping[str, Route], core: JSONObject) -> list[Feed]:
        tasks: dict[str, dict[str, Route]] = {}
        for route in routes.values():
            tasks.setdefault(route.backend, {})[route.backend_task_id] = route
        asked = await self._core_of_each(stream.asker, core) if core else {}
        return [
            *(self._feed(name, stream, tasks[name], {}) for name in self._backends if name in tasks),
            *(self._feed(name, stream, {}, asked[name]) for name in self._backends if name in asked),
        ]

    def _feed(self, name: str, stream: _Stream, tasks: dict[str, Route], core: JSONObject) -> Feed:
        def changed(change: Change) -> None:
            self._catalog.forget(name, change.lists)

        backend = self._backends[name]
        return Feed(backend, stream.asker, stream.request.meta, self._routing, tasks, core, stream.say, changed)

    async def _core_of_each(self, asker: Asker, core: JSONObject) -> dict[str, JSONObject]:
        """What each backend is asked of the core's kinds: what it can do, and the resources that are its own."""
        asked: dict[str, JSONObject] = {}

        async def look(backend: Backend) -> JSONObject:
            said = await self._catalog.discovery.of(backend.name, asker)
            return cast("JSONObject", (said or {}).get("capabilities") or {})

        for name, capabilities in (await of_each([*self._backends.values()], look)).items():
            for change in changes.flagged(core):
                if change.capability in capabilities:
                    asked.setdefault(name, {})[change.flag] = True
        for uri in changes.uris(core):
            backend = await self._catalog.resource(uri, asker, fresh=False)  # there may be a thousand
            if backend is not None:
                cast("list[Any]", asked.setdefault(backend.name, {}).setdefault(changes.URIS, [])).append(uri)
        return asked


class _Stream:
    """One response."""

    def __init__(self, listening: Listening, request: Request, asker: Asker, outlet: Outlet) -> None:
        self.request = request
        self.asker = asker
        self.meta: JSONObject = {SUBSCRIPTION_ID_META_KEY: request.id}
        self.stalled = False
        self._outlet = outlet
        self._group: TaskGroup | None = None

    async def serve(
        self, feeds: list[Feed], routes: Mapping[str, Route], core: JSONObject, task_ids: list[str] | None
    ) -> None:
        """Acknowledge, and pass on what the feeds say until they have nothing more to say."""
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._begin, feeds, routes, core, task_ids)
            for feed in feeds[1:]:
                self._group.start_soon(feed.run, self._group)
            if feeds:  # most streams have one, and a task takes memory for as long as the stream is open
                await feeds[0].run(self._group)
            if task_ids is None:  # who asks for none of our kinds stays, whatever comes of it
                await anyio.sleep_forever()

    async def _begin(
        self, feeds: list[Feed], routes: Mapping[str, Route], core: JSONObject, task_ids: list[str] | None
    ) -> None:
        with anyio.move_on_after(_BEGIN_WITHIN):
            for feed in feeds:
                await feed.acknowledged.wait()
        accepted = {each for feed in feeds for each in feed.accepted}
        known = None if task_ids is None else [each for each in routes if each in accepted]
        await self.acknowledge(_together(core, feeds), known)
        for feed in feeds:
            feed.released.set()

    async def acknowledge(self, honored: JSONObject, accepted: list[str] | None) -> None:
        """The first frame."""
        notifications = honored if accepted is None else {**honored, "taskIds": cast("Any", accepted)}
        params: JSONObject = {"_meta": self.meta, "notifications": notifications}
        await self._event({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params})

    async def say(self, message: JSONObject, route: Route | None) -> None:
        """One frame of a feed's."""
        theirs, ours = (None, None) if route is None else (route.backend_task_id, route.id)
        await self._event(rewriting.notification(message, self.request.id, theirs, ours))

    async def _event(self, message: JSONObject) -> None:
        try:
            await self._outlet.event(message)
        except Stalled:
            self.stalled = True
            if self._group is not None:
                self._group.cancel_scope.cancel()


def _together(core: JSONObject, feeds: list[Feed]) -> JSONObject:
    """What of the core's kinds anybody takes part in. Without an answer yet, what was asked."""
    of_each = [feed.honored if feed.acknowledged.is_set() else feed.core for feed in feeds]
    flags = {change.flag: True for each in of_each for change in changes.flagged(each)}
    served: list[Any] = [uri for each in of_each for uri in changes.uris(each)]
    return changes.honored(core, {**flags, changes.URIS: served})


def _asked(request: Request) -> tuple[list[str] | None, JSONObject]:
    """The tasks that are asked for, as far as these can be ids (None: not about tasks), and the rest.

    Raises:
        MCPError: -32602, -32021.
    """
    notifications: Any = request.params.get("notifications")
    names_tasks = isinstance(notifications, dict) and "taskIds" in notifications
    if names_tasks:
        envelope.require_tasks(request)
    elif "taskIds" in request.params and request.declares_tasks:
        raise MCPError(INVALID_PARAMS, "taskIds belongs into notifications, and not beside it")
    envelope.validate(request)
    asked = cast("JSONObject", notifications)
    core: JSONObject = {change.flag: True for change in changes.flagged(asked)}
    if uris := changes.uris(asked):
        core[changes.URIS] = [*dict.fromkeys(uris)]
    if not names_tasks:
        return None, core
    task_ids: Any = asked["taskIds"]
    if not isinstance(task_ids, list) or not all(isinstance(each, str) for each in cast("list[Any]", task_ids)):
        raise MCPError(INVALID_PARAMS, "notifications.taskIds must be a list of strings")
    return [task_id for task_id in dict.fromkeys(cast("list[str]", task_ids)) if _is_id(task_id)], core


def _is_id(text: str) -> bool:
    try:
        ids.parse(text)
    except MalformedTaskId:
        return False
    return True


def _life(token: AccessToken | None) -> float:
    """Seconds until the access token expires, the last second included; infinity without one that does."""
    if token is None or token.expires_at is None:
        return math.inf
    return max(0.0, token.expires_at + 1 - time.time())
