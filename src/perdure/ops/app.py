"""`Tasks`, what users make and declare their tools by. The composition root: a URL and options in, the parts out.

It is an SDK `Extension`, since that is what an `MCPServer` takes. What a user has no use for is in `assembly`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool

from perdure.domain.errors import ConfigurationError
from perdure.domain.limits import Limits
from perdure.domain.policy import Duration, milliseconds
from perdure.domain.retry import Retry
from perdure.engine.handler import DEFAULT_QUEUE
from perdure.engine.runtime import Options
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from perdure.tools.declaration import Mode, TaskTool, ToolOptions
from perdure.tools.external import ExternalWork
from perdure.wire.attachment import Lifespan
from perdure.wire.callbacks import Callbacks
from perdure.wire.extension import TasksExtension
from perdure.wire.identity import Identify
from perdure.wire.middleware import Middleware

from . import checks
from .assembly import Assembly
from .server import Server

__all__ = ["Tasks"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Tasks(TasksExtension):
    """Durable tasks for one MCP server. An SDK `Extension`.

    Args:
        store: where tasks live: a URL (`"sqlite:///tasks.db"`), or a `Store` of your own.
        keys: seal what is in tasks under these (arguments, answers, results, what steps came to), for a store that is
            named by a URL. None: it is stored in the clear.
        worker: run tasks in this process. Without, it only serves requests, and another process has to run them.
        concurrency: how many tasks this process runs at once.
        queues: the queues whose tasks this process runs, as names or as a mapping of names to how many tasks of each it
            runs at once (None: no bound of its own). None: all queues.
        backlog: how many tasks may wait to be run, in all; past it calls are refused until there are fewer. Kept give
            or take what other processes create within a quarter of a second. None: no bound.
        tenant_backlog: the same for the tasks of one tenant, as a number or as a share of `backlog`. A share is no
            bound where tenants are not told apart, having neither `tenant_claim` nor `identify`.
        owner_tasks: how many unfinished tasks one owner may have, whatever they wait for, likewise; of a server without
            authentication, whose clients are all one, they are not counted. None: no bound.
        subscriptions: how many `subscriptions/listen` for tasks may be open in this process at once; past it others are
            refused, and have to poll. None: no bound.
        owner_subscriptions: the same for one owner, as a number or as a share; of a server without authentication,
            whose clients are all one, only the bound of all counts.
        subscribed_tasks: for how many unfinished tasks they may be together, each counted as often as somebody listens.
            None: no bound.
        owner_subscribed_tasks: the same for those of one owner, as a number or as a share, likewise.
        polls: how many polls a second this process should have to answer. Past it clients are told longer intervals, in
            proportion. None: no bound.
        owner_polls: how many polls a second of one owner this process answers, in the long run, whatever it asks for;
            ten seconds' worth may come at once. Past it they are refused. Not counted of a server without
            authentication, whose clients are all one. None: no bound.
        limits: how much one task may ask of the store, in characters, bytes and entries, and one request of the server.
        lease: how long after this worker's last sign of life others may take over its tasks.
        grace: how long running tasks may go on at a shutdown, before they are handed to others.
        cleanup: how long a tool that was cancelled, or that ran past its `timeout`, has for its end; then its task ends
            without it.
        inline_timeout: how long one request may wait for a tool that runs inside it. Past that, a client that declared
            tasks gets a handle after all; for any other the call fails (-32021) and the work is cancelled.
        linger: how long a finished task stays readable after its ttl.
        tombstone: how long after that its owner hears that it expired, rather than that there is no such task.
        identify: whose request it is, by a plain function; the default reads the verified access token.
        tenant_claim: the claim of the token that holds the tenant, for the default `identify`.
        allow_anonymous: let the server listen beyond this machine though it has no authentication.
        legacy: serve the experimental tasks of revision 2025-11-25 as well, to clients that speak it.

    Durations are `"500ms"`, `"30s"`, `"15m"`, `"2h"`, `"7d"`, a `timedelta`, or a number of seconds.

    Raises:
        InvalidDuration: a duration is unreadable, zero or negative.
        ConfigurationError: a number is none or below 1, `queues` names none, `identify` is no plain function,
            `tenant_claim` names none or comes with an `identify`, or `keys` is no `KeyRing` or comes with a store of
            your own.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        keys: KeyRing | None = None,
        worker: bool = True,
        concurrency: int = 32,
        queues: checks.Queues | None = None,
        backlog: int | None = 10_000,
        tenant_backlog: int | str | None = "50%",
        owner_tasks: int | str | None = "10%",
        subscriptions: int | None = 10_000,
        owner_subscriptions: int | str | None = "10%",
        subscribed_tasks: int | None = 100_000,
        owner_subscribed_tasks: int | str | None = "10%",
        polls: int | None = 1_000,
        owner_polls: int | None = 1_000,
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
        legacy: bool = False,
    ) -> None:
        waiting = checks.bound(backlog, "backlog")
        streams = checks.bound(subscriptions, "subscriptions")
        listened = checks.bound(subscribed_tasks, "subscribed_tasks")
        tenants = tenant_claim is not None or identify is not None
        engine = Options(
            worker=worker,
            concurrency=checks.count(concurrency, "concurrency"),
            queues=checks.queues(queues),
            backlog=waiting,
            tenant_backlog=checks.share(tenant_backlog, "tenant_backlog", waiting if tenants else None),
            owner_tasks=checks.share(owner_tasks, "owner_tasks", waiting),
            subscriptions=streams,
            owner_subscriptions=checks.share(owner_subscriptions, "owner_subscriptions", streams),
            subscribed_tasks=listened,
            owner_subscribed_tasks=checks.share(owner_subscribed_tasks, "owner_subscribed_tasks", listened),
            polls=checks.bound(polls, "polls"),
            owner_polls=checks.bound(owner_polls, "owner_polls"),
            limits=checks.limits(limits),
            lease_ms=milliseconds(lease, what="lease"),
            grace_ms=milliseconds(grace, what="grace"),
            cleanup_ms=milliseconds(cleanup, what="cleanup"),
            linger_ms=milliseconds(linger, what="linger"),
            tombstone_ms=milliseconds(tombstone, what="tombstone"),
        )
        identified, identify = identify is not None, checks.identify(identify, tenant_claim)
        ring = checks.ring(keys)
        self.assembly = Assembly(
            store, engine, identify=identify, identified=identified, allow_anonymous=allow_anonymous, keys=ring
        )
        """What this is made of, for the command line and the harness. Not for users: it may change any day."""
        super().__init__(
            self.assembly.runtime,
            self.assembly.catalog,
            self.assembly.attachment,
            inline_timeout_ms=milliseconds(inline_timeout, what="inline_timeout"),
            identify=identify,
            legacy=legacy,
        )
        self._external = ExternalWork(self.assembly.runtime.opened, self._limits)

    def _limits(self) -> Limits:
        return self.assembly.options.limits

    def configure(
        self,
        *,
        store: str | None = None,
        worker: bool | None = None,
        concurrency: int | None = None,
        queues: checks.Queues | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        """Override what the constructor was told, before the server runs: what `perdure serve --store URL` does.

        None leaves an option as it is.

        Raises:
            StoreUnusable: the URL names no store.
            ConfigurationError: as the constructor.
        """
        ring = checks.ring(keys)
        self.assembly.configure(store=store, worker=worker, concurrency=concurrency, queues=queues, keys=ring)

    # -- the server ----------------------------------------------------------------------------------------------------

    @property
    def middleware(self) -> Middleware:
        """What a server that you make yourself takes as one of its `middleware=`."""
        return self.assembly.attachment.middleware

    @property
    def lifespan(self) -> Lifespan:
        """What a server that you make yourself takes as its `lifespan=`, or enters within its own.

        It runs the engine while the server lives. It may be entered several times at once; the last one out stops it.

        Raises, when entered:
            ConfigurationError: the server lacks the extension or the middleware, or these tasks have another server.
            StoreUnusable: the store can't be opened; one line says why and what to do.
        """
        return self.assembly.attachment.lifespan

    def server(self, name: str, *, lifespan: Lifespan | None = None, **options: Any) -> MCPServer[Any]:
        """An ordinary `MCPServer` with these tasks wired in.

        `options` are those of `MCPServer`; `lifespan` is your own, and what it yields is `task.lifespan_context` in a
        tool. A server that you make yourself needs no more than `MCPServer(name, extensions=[tasks],
        middleware=[tasks.middleware], lifespan=tasks.lifespan)`.

        Raises:
            ConfigurationError: these tasks have a server already.
        """
        attachment = self.assembly.attachment
        server = Server(name, **attachment.wiring(self, lifespan, options))
        server.assembly = self.assembly
        attachment.bind(server)
        return server

    # -- tools ---------------------------------------------------------------------------------------------------------

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
            keep_result: how long a result stays readable from the finish on, extending the ttl if it must. Only with a
                ttl.
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
            tool = TaskTool.declare(fn, options, name=name, **sdk_options)
            self.assembly.catalog.add(fn, tool, {"name": name, **sdk_options})
            self.assembly.attachment.list_tools()
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
            tool = TaskTool.declare(fn, options, name=name, structured_output=structured_output)
            self.assembly.catalog.add_retired(tool)
            return fn

        return declare

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
        async with self.assembly.runtime.opened.somewhere():
            yield

    def callbacks(self, server: MCPServer[Any], path: str = "/perdure/external") -> None:
        """Let other systems settle external work over HTTP: serve `POST path` next to the server's own endpoint.

        Which URL leads there from outside is the server's business, so pass it on together with the handle:

            curl -X POST https://example.org/perdure/external -H "Authorization: Bearer $HANDLE" -d '{"result": 42}'

        The body is one of `{"result": …}`, `{"error": "…"}` and `{"message": "…"}`, of `Limits.request_body` at most.
        204: it is said. 400: the body is none of these. 401: there is no such handle. 409: it ended otherwise before.
        413: too large. 503: try again later. The handle is all the authentication that there is, so whoever is not on
        this machine has to come by HTTPS.

        Raises:
            ConfigurationError: the path does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ConfigurationError(f"{path!r} is no path: write for example '/perdure/external'")
        callbacks = Callbacks(self._external, self._limits)
        server.custom_route(path, methods=["POST"], name="perdure-external")(callbacks.endpoint)


def _optional(duration: Duration | None, what: str) -> int | None:
    return None if duration is None else milliseconds(duration, what=what)
