"""The one server that the tasks belong to: what it has to be made with, and the engine that runs while it lives.

People put their servers together by hand, and the SDK tells an extension of no server. So whether all the parts are
there is looked at wherever something shows it: where the lifespan is entered, before a program serves, and, for a
server that lacks the very lifespan, at its first request.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.extension import Extension, ToolBinding
from mcp.server.mcpserver import MCPServer, RequestStateSecurity
from mcp_types import Implementation

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.engine.runtime import Runtime
from perdure.tools.catalog import Catalog

from . import idempotency
from .guard import Guard
from .identity import Identify
from .listen import Listen
from .middleware import Middleware
from .models import EXTENSION

__all__ = ["NO_LIFESPAN", "Attachment", "Lifespan"]

logger = logging.getLogger(__name__)

Lifespan = Callable[[MCPServer[Any]], AbstractAsyncContextManager[Any]]

NO_LIFESPAN = (
    "The server lacks the lifespan of its Tasks, without which there is no store and no worker: pass "
    "lifespan=tasks.lifespan to MCPServer, or make the server by tasks.server(name)"
)

_CACHE_HINTS: dict[CacheableMethod, CacheHint] = {
    "server/discover": CacheHint(ttl_ms=300_000, scope="public"),
    "tools/list": CacheHint(ttl_ms=300_000, scope="public"),
}


class Attachment:
    """What ties a runtime and its tools to a server.

    `server`: which one it is, once that is known. `server_info`: how it presents itself. `settings`: what the extension
    advertises; nothing, in a dictionary of its own, by which it is told from others'. `applied`: whether a server took
    what the extension adds to it. `started`: whether the lifespan was ever entered. `key_of_its_own`: the server is
    known to seal `requestState` with a key that no other process has; of one made by hand nobody can tell.
    `state_lives`: for how many seconds what it seals is good; None of one made by hand.
    """

    def __init__(self, runtime: Runtime, catalog: Catalog, identify: Identify) -> None:
        listen = Listen(runtime, identify, lambda: self.server_info, self.check_started)
        self.middleware = Middleware(Guard(catalog.tools.keys(), lambda: runtime.options.limits), listen)
        self.server: MCPServer[Any] | None = None
        self.server_info: JSONObject = {}
        self.settings: dict[str, Any] = {}
        self.applied = False
        self.started = False
        self.key_of_its_own = False
        self.state_lives: float | None = None
        self._runtime = runtime
        self._catalog = catalog
        self._complained = False
        self._users = 0
        self._lock = anyio.Lock()
        self._stack = AsyncExitStack()

    # -- putting a server together -------------------------------------------------------------------------------------

    def wiring(self, extension: Extension, lifespan: Lifespan | None, options: dict[str, Any]) -> dict[str, Any]:
        """`options` of an `MCPServer` with `extension`, the middleware and the lifespan added to what is there."""
        given: RequestStateSecurity | None = options.get("request_state_security")
        self.key_of_its_own = given is None
        self.state_lives = (given or RequestStateSecurity.ephemeral()).ttl
        return {
            **options,
            "extensions": [*options.get("extensions", ()), extension],
            "middleware": [*options.get("middleware", ()), self.middleware],
            "cache_hints": {**_CACHE_HINTS, **options.get("cache_hints", {})},
            "lifespan": self.lifespan if lifespan is None else self._within(lifespan),
        }

    def bind(self, server: MCPServer[Any]) -> None:
        """Belong to `server` from now on.

        Raises:
            ConfigurationError: there is another one.
        """
        if self.server not in (None, server):
            raise ConfigurationError(
                "One Tasks serves one server: make another Tasks (on the same store) for the other"
            )
        self.server, self.server_info = server, _described(server)
        self.list_tools()

    def list_tools(self) -> None:
        """List on the server, if it is known, what was declared since the last time."""
        if self.server is not None:
            for binding in self.unlisted():
                self.server.add_tool(binding.fn, meta=binding.meta, **binding.kwargs)

    def unlisted(self) -> list[ToolBinding]:
        """What was declared since the last time, as it is listed."""
        return [*map(idempotency.marked, self._catalog.unlisted())]

    def is_of(self, server: MCPServer[Any]) -> bool:
        """Whether `server` was made with any part of these tasks: the extension, the middleware or the lifespan."""
        visible = self.middleware in server.middleware or server.settings.lifespan == self.lifespan
        return self.server is server or visible or self._was_taken_by(server)

    def _was_taken_by(self, server: MCPServer[Any]) -> bool:
        if not self.applied or self.server is not None:
            return False
        # What extensions a server has is not public; what they advertise is, on the server that its session manager is
        # for. There is one from here on, and whoever serves over HTTP makes another.
        server.streamable_http_app()
        return server.session_manager.app.extensions.get(EXTENSION) is self.settings

    # -- what may be missing -------------------------------------------------------------------------------------------

    def check_parts(self, server: MCPServer[Any]) -> None:
        """That `server` can be served: it has the extension, the middleware and a lifespan.

        Raises:
            ConfigurationError: it lacks one of them; the message says which.
        """
        self._check_wiring(server)
        if server.settings.lifespan is None:
            raise ConfigurationError(NO_LIFESPAN)

    def check_started(self) -> None:
        """A server that lacks the lifespan comes up all the same, so its requests are where it can be told.

        Raises:
            ConfigurationError: it does. Clients hear of an internal error; the log, once, what to change.
        """
        if self.started:
            return
        error = ConfigurationError(NO_LIFESPAN)
        if not self._complained:
            self._complained = True
            logger.error("%s", error)
        raise error

    def _check_wiring(self, server: MCPServer[Any]) -> None:
        if not self.applied:
            raise ConfigurationError(
                "The server lacks its Tasks, without which task tools run as plain ones: pass extensions=[tasks] to "
                "MCPServer, or make the server by tasks.server(name)"
            )
        if self.middleware not in server.middleware:
            raise ConfigurationError(
                "The server lacks the middleware of its Tasks, without which requests go unchecked: pass "
                "middleware=[tasks.middleware] to MCPServer, or make the server by tasks.server(name)"
            )

    async def _check_names(self, server: MCPServer[Any]) -> None:
        """The SDK keeps the first of two tools with one name, so that one would be listed and the other one called."""
        for listed in await server.list_tools():
            tool = self._catalog.tools.get(listed.name)
            if tool is not None and not tool.is_listed_as(listed):
                raise ConfigurationError(
                    f"A task tool and an ordinary one are both named {listed.name!r}: rename one of them"
                )

    # -- while it lives ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lifespan(self, server: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
        """Runs the engine while the server lives. May be entered several times at once; the last one out stops it."""
        self._check_wiring(server)
        self.bind(server)
        await self._check_names(server)
        await self._enter()
        try:
            yield {}
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()

    def _within(self, inner: Lifespan) -> Lifespan:
        """The engine inside the user's own lifespan: tools may use what that yields until the last of them is done."""

        @asynccontextmanager
        async def lifespan(server: MCPServer[Any]) -> AsyncGenerator[Any]:
            async with inner(server) as state:
                self._catalog.state = state
                async with self.lifespan(server):
                    yield state

        return lifespan

    async def _enter(self) -> None:
        async with self._lock:
            if self._users == 0:
                await self._stack.enter_async_context(self._runtime.running())
            self._users += 1
            self.started = True

    async def _leave(self) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0:
                await self._stack.aclose()


def _described(server: MCPServer[Any]) -> JSONObject:
    info = Implementation(
        name=server.name,
        version=server.version,
        title=server.title,
        description=server.description,
        website_url=server.website_url,
        icons=server.icons,
    )
    return cast("JSONObject", info.model_dump(mode="json", by_alias=True, exclude_none=True))
