"""`Tasks`: the composition root. Picks the store that a URL names and puts engine and wire on top of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool

from perdure.domain.errors import ConfigurationError, StoreUnusable
from perdure.domain.policy import Duration, milliseconds
from perdure.engine.handler import Handler
from perdure.engine.runtime import Options, Runtime
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore
from perdure.wire.extension import Lifespan, TasksExtension
from perdure.wire.identity import Identify, by_token
from perdure.wire.tools import Mode, TaskTool, ToolOptions

from . import exposure, ports

__all__ = ["Tasks", "open_store", "tasks_of"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def open_store(url: str) -> Store:
    """The store that `url` names, not opened yet.

    Raises:
        StoreUnusable: no store goes by such a URL.
    """
    if url.startswith("sqlite:"):
        return SQLiteStore(url)
    raise StoreUnusable(f"{url!r} names no store: write sqlite:///tasks.db")


class Server(MCPServer[Any]):
    """An `MCPServer` that looks at its store, its port and who reaches it before it runs.

    What can't be used or must not be is one line and no traceback.
    """

    tasks: Tasks

    def run(self, transport: Literal["stdio", "sse", "streamable-http"] = "stdio", **kwargs: Any) -> None:
        """As `MCPServer.run`.

        Raises:
            SystemExit: the store or the port can't be used, or everybody could call it; the message says what to do.
        """
        host = kwargs.get("host", "127.0.0.1")
        if transport != "stdio":
            allowed = self.tasks.allow_anonymous
            exposure.refuse(self, host, allowed=allowed, say="Tasks(…, allow_anonymous=True)")
        self.tasks.preflight()
        if transport != "stdio":
            # The SDK binds by itself, later; whoever takes the port between is told of in its words.
            ports.close(ports.bind(host, kwargs.get("port", 8000)))
            exposure.warn(self)
        run: Callable[..., None] = super().run
        run(transport, **kwargs)


class Tasks(TasksExtension):
    """Durable tasks for one MCP server. An SDK `Extension`.

    Args:
        store: where tasks live: a URL (`"sqlite:///tasks.db"`), or a `Store` of your own.
        worker: run tasks in this process. Without, it only serves requests, and another process has to run them.
        concurrency: how many tasks this process runs at once.
        lease: how long after this worker's last sign of life others may take over its tasks.
        grace: how long running tasks may go on at a shutdown, before they are handed to others.
        inline_timeout: how long one request may wait for a tool that runs inside it. Past that, a client that declared
            tasks gets a handle after all; for any other the call fails (-32021) and the work is cancelled.
        linger: how long a finished task stays readable after its ttl.
        tombstone: how long after that its owner hears that it expired, rather than that there is no such task.
        identify: whose request it is; the default reads the verified access token.
        tenant_claim: the claim of the token that holds the tenant, for the default `identify`.
        allow_anonymous: let the server listen beyond this machine though it has no authentication.

    Durations are `"500ms"`, `"30s"`, `"15m"`, `"2h"`, `"7d"`, a `timedelta`, or a number of seconds.

    Raises:
        StoreUnusable: the URL names no store.
        InvalidDuration: a duration is unreadable, zero or negative.
        ConfigurationError: `concurrency` is below 1.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        worker: bool = True,
        concurrency: int = 32,
        lease: Duration = "30s",
        grace: Duration = "10s",
        inline_timeout: Duration = "60s",
        linger: Duration = "5m",
        tombstone: Duration = "1d",
        identify: Identify | None = None,
        tenant_claim: str | None = None,
        allow_anonymous: bool = False,
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError("concurrency must be at least 1")
        options = Options(
            worker=worker,
            concurrency=concurrency,
            lease_ms=milliseconds(lease, what="lease"),
            grace_ms=milliseconds(grace, what="grace"),
            linger_ms=milliseconds(linger, what="linger"),
            tombstone_ms=milliseconds(tombstone, what="tombstone"),
        )
        handlers: dict[str, Handler] = {}
        super().__init__(
            Runtime(open_store(store) if isinstance(store, str) else store, handlers, options),
            handlers,
            inline_timeout_ms=milliseconds(inline_timeout, what="inline_timeout"),
            identify=identify or by_token(tenant_claim),
        )
        self.allow_anonymous = allow_anonymous
        _declared.add(self)

    def configure(self, *, store: str | None = None, worker: bool | None = None) -> None:
        """Override what the constructor was told, before the server runs: what `perdure serve --store URL` does.

        Raises:
            StoreUnusable: the URL names no store.
        """
        if store is not None:
            self._runtime.store = open_store(store)
        if worker is not None:
            self._runtime.options = replace(self._runtime.options, worker=worker)

    def preflight(self) -> None:
        """Open the store once, bring its schema up to date, and close it again. Not from within an event loop.

        Raises:
            SystemExit: it can't be used; the message, one line, says why and what to do.
        """
        try:
            anyio.run(self._open_once)
        except StoreUnusable as error:
            raise SystemExit(f"perdure: {error}") from None

    async def _open_once(self) -> None:
        await self._runtime.store.open()
        await self._runtime.store.close()

    def server(self, name: str, *, lifespan: Lifespan | None = None, **options: Any) -> MCPServer[Any]:
        """An ordinary `MCPServer` with these tasks wired in.

        `options` are those of `MCPServer`; `lifespan` is your own, and what it yields is `task.lifespan_context` in a
        tool. A server that you make yourself needs no more than `MCPServer(name, extensions=[tasks],
        middleware=[tasks.middleware], lifespan=tasks.lifespan)`.
        """
        server = Server(name, **self.wiring(lifespan, options))
        server.tasks = self
        self.bind(server)
        return server

    def tool(
        self,
        name: str | None = None,
        *,
        mode: Mode = "auto",
        ttl: Duration | None = None,
        keep_result: Duration | None = None,
        poll_interval: Duration = "1s",
        max_attempts: int = 10,
        when: Callable[..., bool] | None = None,
        prepare: Callable[..., Any] | None = None,
        **sdk_options: Any,
    ) -> Callable[[FunctionT], FunctionT]:
        """Declare a tool whose calls may become tasks. The function itself is returned unchanged.

        Args:
            name: the tool's name; the function's own by default.
            mode: "auto" makes a task whenever the client knows tasks, and runs the tool inside the request otherwise;
                "task" always makes a task, and refuses other clients.
            ttl: how long from its creation the task may live. Past it an unfinished task fails, and later it is
                deleted. None: unlimited.
            keep_result: how long a result stays readable from the finish on, extending the ttl if it must.
            poll_interval: how often clients should poll.
            max_attempts: how many workers may die running the task before it fails.
            when: a predicate on the (validated) arguments that it names; where it is false the tool runs inside the
                request. Past `inline_timeout` it becomes a task after all, with the tool's ttl or an hour, whichever is
                shorter.
            prepare: a function that runs inside the request, before there is a task, and may ask the client by
                returning an `InputRequiredResult`. It takes the tool's arguments that it names and the SDK's `Context`;
                what it returns is stored with the task and found in `task.prepared`.
            sdk_options: what `MCPServer.tool` takes: title, description, annotations, icons, meta, structured_output.

        Raises:
            InvalidDuration: a duration is unreadable, zero or negative.
            ConfigurationError: an option has a value that it can't have, or the function can't be a task tool as it
                stands.
        """
        if callable(name):
            raise TypeError("Use @tasks.tool() instead of @tasks.tool")
        options = ToolOptions(
            mode=mode,
            ttl_ms=_optional(ttl, "ttl"),
            keep_ms=_optional(keep_result, "keep_result"),
            poll_ms=milliseconds(poll_interval, what="poll_interval"),
            max_attempts=max_attempts,
            when=when,
            prepare=None if prepare is None else Tool.from_function(prepare, structured_output=False),
        )

        def declare(fn: FunctionT) -> FunctionT:
            self.add_tool(fn, TaskTool.declare(fn, options, name=name, **sdk_options), {"name": name, **sdk_options})
            return fn

        return declare


_declared: WeakSet[Tasks] = WeakSet()


def tasks_of(app: MCPServer[Any]) -> Tasks | None:
    """The `Tasks` that `app` is wired with, among all of this process. They are told by their middleware.

    The server's extensions are not public, and without its middleware a `Tasks` does not start.
    """
    return next((tasks for tasks in _declared if tasks.middleware in app.middleware), None)


def _optional(duration: Duration | None, what: str) -> int | None:
    return None if duration is None else milliseconds(duration, what=what)
