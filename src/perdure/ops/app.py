"""`Tasks`: the composition root. Puts engine and wire on top of the store that a URL names."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool

from perdure.domain.errors import ConfigurationError, StoreUnusable
from perdure.domain.limits import Limits
from perdure.domain.policy import Duration, milliseconds
from perdure.domain.retry import Retry
from perdure.engine.handler import DEFAULT_QUEUE, Handler
from perdure.engine.runtime import Options, Runtime
from perdure.store.base import Store
from perdure.wire.extension import NO_LIFESPAN, Lifespan, TasksExtension
from perdure.wire.identity import Identify, by_token
from perdure.wire.tools import Mode, TaskTool, ToolOptions

from . import checks, exposure, http, ports, stdin, stores

__all__ = ["Tasks", "tasks_of"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Server(MCPServer[Any]):
    """An `MCPServer` that looks at its store, its port and who reaches it before it runs, and that ends in order.

    What can't be used or must not be is one line and no traceback. It does not end the process, as `serve` does: what
    the program has to do after `run` is its own.
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
        match transport:
            case "stdio":
                with stdin.ends_when_told() if threading.current_thread() is threading.main_thread() else nullcontext():
                    super().run("stdio", **kwargs)
            case "streamable-http":
                self._run_http(ports.bind(host, kwargs.pop("port", 8000)), **kwargs)
            case _:
                # The SDK binds by itself, later; whoever takes the port between is told of in its words.
                ports.close(ports.bind(host, kwargs.get("port", 8000)))
                exposure.warn(self)
                super().run(transport, **kwargs)

    def _run_http(self, sockets: list[socket.socket], **options: Any) -> None:
        exposure.warn(self)
        level = self.settings.log_level.lower()
        http.listen(self.streamable_http_app(**options), sockets, log_level=level, told=self.tasks.stop_working)


class Tasks(TasksExtension):
    """Durable tasks for one MCP server. An SDK `Extension`.

    Args:
        store: where tasks live: a URL (`"sqlite:///tasks.db"`), or a `Store` of your own.
        worker: run tasks in this process. Without, it only serves requests, and another process has to run them.
        concurrency: how many tasks this process runs at once.
        queues: the queues whose tasks this process runs, as names or as a mapping of names to how many tasks of each it
            runs at once (None: no bound of its own). None: all queues.
        backlog: how many tasks may wait to be run, in all; past it calls are refused until there are fewer. Kept give
            or take what other processes create within a quarter of a second. None: no bound.
        tenant_backlog: the same for the tasks of one tenant.
        limits: how much one task may ask of the store, in characters, bytes and entries.
        lease: how long after this worker's last sign of life others may take over its tasks.
        grace: how long running tasks may go on at a shutdown, before they are handed to others.
        cleanup: how long a tool that was cancelled, or that ran past its `timeout`, has for its end; then its task ends
            without it.
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
        ConfigurationError: a number is none or below 1, or `queues` names none.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        worker: bool = True,
        concurrency: int = 32,
        queues: checks.Queues | None = None,
        backlog: int | None = 10_000,
        tenant_backlog: int | None = None,
        limits: Limits | None = None,
        lease: Duration = "30s",
        grace: Duration = "10s",
        cleanup: Duration = "10s",
        inline_timeout: Duration = "60s",
        linger: Duration = "5m",
        tombstone: Duration = "1d",
        identify: Identify | None = None,
        tenant_claim: str | None = None,
        allow_anonymous: bool = False,
    ) -> None:
        engine = Options(
            worker=worker,
            concurrency=checks.count(concurrency, "concurrency"),
            queues=checks.queues(queues),
            backlog=checks.bound(backlog, "backlog"),
            tenant_backlog=checks.bound(tenant_backlog, "tenant_backlog"),
            limits=checks.limits(limits),
            lease_ms=milliseconds(lease, what="lease"),
            grace_ms=milliseconds(grace, what="grace"),
            cleanup_ms=milliseconds(cleanup, what="cleanup"),
            linger_ms=milliseconds(linger, what="linger"),
            tombstone_ms=milliseconds(tombstone, what="tombstone"),
        )
        handlers: dict[str, Handler] = {}
        super().__init__(
            Runtime(stores.open_store(store) if isinstance(store, str) else store, handlers, engine),
            handlers,
            inline_timeout_ms=milliseconds(inline_timeout, what="inline_timeout"),
            identify=identify or by_token(tenant_claim),
        )
        self.allow_anonymous = allow_anonymous
        self._named = store
        _declared.add(self)

    def configure(
        self,
        *,
        store: str | None = None,
        worker: bool | None = None,
        concurrency: int | None = None,
        queues: checks.Queues | None = None,
    ) -> None:
        """Override what the constructor was told, before the server runs: what `perdure serve --store URL` does.

        None leaves an option as it is.

        Raises:
            StoreUnusable: the URL names no store.
            ConfigurationError: as the constructor.
        """
        before = self._runtime.options
        self._runtime.options = replace(
            before,
            worker=before.worker if worker is None else worker,
            concurrency=before.concurrency if concurrency is None else checks.count(concurrency, "concurrency"),
            queues=before.queues if queues is None else checks.queues(queues),
        )
        if store is not None:
            self._runtime.store, self._named = stores.open_store(store), store

    @property
    def engine(self) -> Options:
        """How this process takes part, as it is configured now."""
        return self._runtime.options

    @property
    def named(self) -> str | Store:
        """The store as it was given: the URL, or the object."""
        return self._named

    def check_queues(self) -> None:
        """That each queue that is to be served has a tool.

        Raises:
            ConfigurationError: one has none; the message names those that there are.
        """
        known = sorted({handler.placement.queue for handler in self.handlers.values()})
        for queue in self.engine.queues or ():
            if queue not in known:
                raise ConfigurationError(
                    f"no tool belongs to the queue {queue!r}: there is {', '.join(known) or 'none'}"
                )

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

    @asynccontextmanager
    async def working(self, app: MCPServer[Any]) -> AsyncGenerator[None]:
        """The lifespan of `app`, entered without serving it: what `perdure worker` runs inside of.

        Raises:
            ConfigurationError: `app` was put together without these tasks, or without a part of them.
        """
        lifespan = app.settings.lifespan
        if lifespan is None:
            raise ConfigurationError(NO_LIFESPAN)
        async with lifespan(app) as state:
            if not self._started:
                raise ConfigurationError(NO_LIFESPAN)
            if self._state is None:
                # `app` was made by hand, around `Tasks.lifespan`: nobody else knows what its lifespan yields.
                self._keep_state(state)
            yield

    def stop_working(self) -> None:
        """Claim no more tasks, ahead of the end: the grace period of those that run begins. On the event loop only."""
        self._runtime.stop_working()

    def server(self, name: str, *, lifespan: Lifespan | None = None, **options: Any) -> MCPServer[Any]:
        """An ordinary `MCPServer` with these tasks wired in.

        `options` are those of `MCPServer`; `lifespan` is your own, and what it yields is `task.lifespan_context` in a
        tool. A server that you make yourself needs no more than `MCPServer(name, extensions=[tasks],
        middleware=[tasks.middleware], lifespan=tasks.lifespan)`.

        Raises:
            ConfigurationError: these tasks have a server already.
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
        retry: Retry | None = None,
        timeout: Duration | None = None,
        version: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        concurrency: int | None = None,
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
            retry: run the tool again if it raises what `retry.on` names, as often and as late as that says. A new
                attempt starts over from the step that the error came out of; the steps before it keep their results,
                and if it came out of none, all do. An error that the tool means as its answer (`ToolError`,
                `MCPError`) is tried again only if `on` names its kind, and what `task.decline` says never. Nor is there
                another attempt after `StepInterrupted`, or if it would run a step again that may run at most once.
            timeout: how long one run of the tool may take; waiting for people, times and other systems is none. Past
                it, the tool is cancelled, and that counts as a `TimeoutError` for `retry`. Without another attempt, it
                is a tool error.
            version: which code this is. A task is finished by the code that began it: if you change what a tool does
                (its steps, their order or names), give it another version, and keep the old code by `retired` until
                the tasks are over that it began.
            queue: the queue that its tasks are in, for workers that serve certain queues only.
            priority: among what could run, the tool with the larger one goes first.
            concurrency: how many tasks of this tool each worker runs at once. None: as many as it runs in all.
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
                stands; or there is a task tool of that name already.
            TypeError: it was written without parentheses.
        """
        if callable(name):
            raise TypeError("Use @tasks.tool() instead of @tasks.tool")
        options = ToolOptions(
            mode=mode,
            ttl_ms=_optional(ttl, "ttl"),
            keep_ms=_optional(keep_result, "keep_result"),
            poll_ms=milliseconds(poll_interval, what="poll_interval"),
            max_attempts=max_attempts,
            retry=retry,
            timeout_ms=_optional(timeout, "timeout"),
            version="" if version is None else version,
            queue=queue,
            priority=priority,
            concurrency=concurrency,
            when=when,
            prepare=None if prepare is None else Tool.from_function(prepare, structured_output=False),
        )

        def declare(fn: FunctionT) -> FunctionT:
            self.add_tool(fn, TaskTool.declare(fn, options, name=name, **sdk_options), {"name": name, **sdk_options})
            return fn

        return declare

    def retired(
        self,
        name: str,
        *,
        version: str | None,
        retry: Retry | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        concurrency: int | None = None,
        structured_output: bool | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        """Keep the code of an earlier version of a tool, to finish the tasks that it began. The function is unchanged.

        It is not listed, and no call begins a task with it. What a task was created with (`ttl`, `timeout`,
        `max_attempts`) holds for it as it is.

        Args:
            name: the tool's name.
            version: the version that it had; None for the tasks from before it had any.
            retry: as `tool`, and so are the others: they belong to the code.
            queue: as `tool`.
            priority: as `tool`.
            concurrency: as `tool`.
            structured_output: as `MCPServer.tool`.

        Raises:
            ConfigurationError: the tool has this version, or it was retired before; or as `tool`.
        """
        options = ToolOptions(
            version="" if version is None else version,
            retry=retry,
            queue=queue,
            priority=priority,
            concurrency=concurrency,
        )

        def declare(fn: FunctionT) -> FunctionT:
            self.add_retired(TaskTool.declare(fn, options, name=name, structured_output=structured_output))
            return fn

        return declare


_declared: WeakSet[Tasks] = WeakSet()


def tasks_of(app: MCPServer[Any]) -> Tasks | None:
    """The `Tasks` that `app` was made with, among all of this process; also if `app` lacks a part of it."""
    return next((tasks for tasks in _declared if tasks.is_part_of(app)), None)


def _optional(duration: Duration | None, what: str) -> int | None:
    return None if duration is None else milliseconds(duration, what=what)
