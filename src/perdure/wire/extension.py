"""The SDK `Extension` itself: declares tools, serves `tasks/*`, takes over `tools/call`, runs the engine.

It holds no rule of its own. What a call comes to is in `calls`, what is refused early in `guard`, what clients read in
`render`. The engine runs for as long as the server lives: its lifespan is the server's.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.domain import ids
from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.engine.handler import Handler, Handlers
from perdure.engine.runtime import Runtime
from perdure.store.base import Store

from . import answers, render
from .callbacks import Callbacks
from .calls import Calls
from .capabilities import input_kinds
from .errors import translated
from .external import ExternalWork
from .guard import Guard
from .handler import ToolHandler
from .identity import Identify
from .models import EXTENSION, RequestContext, TaskParams, UpdateParams
from .tools import TaskTool

__all__ = ["NO_LIFESPAN", "TasksExtension"]

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


class TasksExtension(Extension):
    """The Tasks extension of one server, over a runtime that the composition root made.

    `handlers` is the map that the runtime reads; declaring a tool adds to it.
    """

    identifier = EXTENSION

    def __init__(
        self, runtime: Runtime, handlers: dict[str, Handler], *, inline_timeout_ms: int, identify: Identify
    ) -> None:
        self._tools: dict[str, TaskTool] = {}
        self.middleware = Guard(self._tools.keys())
        self._runtime = runtime
        self._handlers = handlers
        self._identify = identify
        self._calls = Calls(runtime, inline_timeout_ms, lambda: self._server)
        self._external = ExternalWork(runtime, lambda: runtime.options.limits)
        self._bindings: list[ToolBinding] = []
        self._server: MCPServer[Any] | None = None
        self._server_info: JSONObject = {}
        self._advertised: dict[str, Any] = {}
        self._applied = False
        """Whether a server took what the extension adds to it."""
        self._started = False
        """Whether the lifespan was ever entered."""
        self._complained = False
        self._users = 0
        self._lock = anyio.Lock()
        self._stack = AsyncExitStack()
        self._state: object = None

    # -- declaring -----------------------------------------------------------------------------------------------------

    def wiring(self, lifespan: Lifespan | None, options: dict[str, Any]) -> dict[str, Any]:
        """`options` of an `MCPServer` with the extension, its middleware and its lifespan added to what is there."""
        return {
            **options,
            "extensions": [*options.get("extensions", ()), self],
            "middleware": [*options.get("middleware", ()), self.middleware],
            "cache_hints": {**_CACHE_HINTS, **options.get("cache_hints", {})},
            "lifespan": self.lifespan if lifespan is None else _nested(self.lifespan, lifespan, self._keep_state),
        }

    def add_tool(self, fn: Callable[..., Any], tool: TaskTool, sdk_options: dict[str, Any]) -> None:
        """Declare `fn` as a task tool: listed by the server, and run by workers.

        Raises:
            ConfigurationError: the name is taken, or this version of it is retired.
        """
        if tool.name in self._tools:
            raise ConfigurationError(f"There is a task tool named {tool.name!r} already")
        self._add_handler(tool)
        self._tools[tool.name] = tool
        self._bindings.append(ToolBinding(fn, kwargs=sdk_options))
        if self._server is not None:
            self.bind(self._server)

    def add_retired(self, tool: TaskTool) -> None:
        """Keep the code of an earlier version of a tool, for the tasks that it began. Nobody can call it.

        Raises:
            ConfigurationError: there is such a version already, retired or not.
        """
        self._add_handler(tool)

    def _add_handler(self, tool: TaskTool) -> None:
        if tool.handler in self._handlers:
            which = f"version {tool.options.version!r} of" if tool.options.version else "code without a version for"
            raise ConfigurationError(
                f"There is {which} the task tool {tool.name!r} already: a version is one code, current or retired"
            )
        self._handlers[tool.handler] = ToolHandler(tool, lambda: self._state)

    def bind(self, server: MCPServer[Any]) -> None:
        """List on `server` what was declared since the last time."""
        if self._server not in (None, server):
            raise ConfigurationError(
                "One Tasks serves one server: make another Tasks (on the same store) for the other"
            )
        self._server = server
        info = Implementation(
            name=server.name,
            version=server.version,
            title=server.title,
            description=server.description,
            website_url=server.website_url,
            icons=server.icons,
        )
        self._server_info = cast("JSONObject", info.model_dump(mode="json", by_alias=True, exclude_none=True))
        bindings, self._bindings = self._bindings, []
        for binding in bindings:
            server.add_tool(binding.fn, **binding.kwargs)

    def is_part_of(self, server: MCPServer[Any]) -> bool:
        """Whether `server` was made with any part of these tasks: the extension, the middleware or the lifespan."""
        visible = self.middleware in server.middleware or server.settings.lifespan == self.lifespan
        return self._server is server or visible or self._was_taken_by(server)

    def _was_taken_by(self, server: MCPServer[Any]) -> bool:
        if not self._applied or self._server is not None:
            return False
        # What extensions a server has is not public; what they advertise is, on the server that its session manager is
        # for. There is one from here on, and whoever serves over HTTP makes another.
        server.streamable_http_app()
        return server.session_manager.app.extensions.get(EXTENSION) is self._advertised

    def check_parts(self, server: MCPServer[Any]) -> None:
        """That `server` can be served: it has the extension, the middleware and a lifespan.

        Raises:
            ConfigurationError: it lacks one of them; the message says which.
        """
        self._check_wiring(server)
        if server.settings.lifespan is None:
            raise ConfigurationError(NO_LIFESPAN)

    # -- work that other systems do ------------------------------------------------------------------------------------

    @property
    def external(self) -> ExternalWork:
        """Says how work ended that other systems do for tasks, from this server or from any other process."""
        return self._external

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """The store is open inside, without a server or a worker: for programs that only talk to `external`.

        Raises:
            StoreUnusable: it can't be opened; one line says why and what to do.
        """
        async with self._runtime.connected():
            yield

    def callbacks(self, server: MCPServer[Any], path: str = "/perdure/external") -> None:
        """Let other systems settle external work over HTTP: serve `POST path` next to the server's own endpoint.

        Which URL leads there from outside is the server's business, so pass it on together with the handle:

            curl -X POST https://example.org/perdure/external -H "Authorization: Bearer $HANDLE" -d '{"result": 42}'

        The body is one of `{"result": …}`, `{"error": "…"}` and `{"message": "…"}`, of 1 MiB at most. 204: it is said.
        400: the body is none of these. 401: there is no such handle. 409: it ended otherwise before. 413: too large.
        503: try again later. The handle is all the authentication that there is, so whoever is not on this machine has
        to come by HTTPS.

        Raises:
            ConfigurationError: the path does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ConfigurationError(f"{path!r} is no path: write for example '/perdure/external'")
        server.custom_route(path, methods=["POST"], name="perdure-external")(Callbacks(self._external).endpoint)

    # -- what a test harness needs -------------------------------------------------------------------------------------

    @property
    def handlers(self) -> Handlers:
        """What a worker calls, by the operation's handler."""
        return self._handlers

    def task_tool(self, name: str) -> TaskTool:
        """A declared task tool.

        Raises:
            KeyError: there is none of that name.
        """
        return self._tools[name]

    def lend(self, store: Store, state: object) -> Store:
        """Use another store, and another state than the server's lifespan yields, while nothing runs.

        Returns the store that was used before.
        """
        before, self._runtime.store = self._runtime.store, store
        self._keep_state(state)
        return before

    # -- the SDK's interface -------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        return self._advertised

    def tools(self) -> Sequence[ToolBinding]:
        bindings, self._bindings = self._bindings, []
        return bindings

    def methods(self) -> Sequence[MethodBinding]:
        self._applied = True
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, versions),
            MethodBinding("tasks/update", UpdateParams, self._update, versions),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, versions),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: RequestContext, call_next: CallNext
    ) -> HandlerResult:
        tool = self._tools.get(params.name)
        if tool is None:
            return await call_next(ctx)
        with translated():
            self._check_started()
            return await self._calls.call(tool, params, self._identify(ctx), ctx)

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

    async def _enter(self) -> None:
        async with self._lock:
            if self._users == 0:
                await self._stack.enter_async_context(self._runtime.running())
            self._users += 1
            self._started = True

    async def _leave(self) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0:
                await self._stack.aclose()

    def _check_wiring(self, server: MCPServer[Any]) -> None:
        if not self._applied:
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
            tool = self._tools.get(listed.name)
            if tool is not None and not tool.is_listed_as(listed):
                raise ConfigurationError(
                    f"A task tool and an ordinary one are both named {listed.name!r}: rename one of them"
                )

    def _check_started(self) -> None:
        """A server that lacks the lifespan comes up all the same, so its requests are where it can be told.

        Raises:
            ConfigurationError: it does. Clients hear of an internal error; the log, once, what to change.
        """
        if self._started:
            return
        error = ConfigurationError(NO_LIFESPAN)
        if not self._complained:
            self._complained = True
            logger.error("%s", error)
        raise error

    def _keep_state(self, state: object) -> None:
        self._state = state

    # -- tasks/* -------------------------------------------------------------------------------------------------------

    # The guard has seen to it that the client declared the extension, before the parameters were looked at.

    async def _get(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        with translated():
            self._check_started()
            task = await self._runtime.store.get(self._identify(ctx), ids.parse(params.task_id))
        return render.detailed(task, input_kinds(ctx) if task.inputs else frozenset(), self._server_info)

    async def _update(self, ctx: RequestContext, params: UpdateParams) -> HandlerResult:
        owner, store = self._identify(ctx), self._runtime.store
        with translated():
            self._check_started()
            task_id = ids.parse(params.task_id)
            questions = await store.open_questions(owner, task_id)
            # Checked against what the task asked, not stored unless it fits: a question never changes, so nothing can
            # come between.
            responses = answers.check(questions, params.input_responses)
            if responses:
                await store.answer(owner, task_id, responses)
        return render.acknowledged()

    async def _cancel(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        with translated():
            self._check_started()
            await self._runtime.store.request_cancel(self._identify(ctx), ids.parse(params.task_id))
        return render.acknowledged()


def _nested(outer: Lifespan, inner: Lifespan, keep: Callable[[object], None]) -> Lifespan:
    """The engine around the user's own lifespan: tools may use what it yields until the last of them is done."""

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncGenerator[Any]:
        async with inner(server) as state:
            keep(state)
            async with outer(server):
                yield state

    return lifespan
