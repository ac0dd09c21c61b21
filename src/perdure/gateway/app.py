"""The gateway over HTTP: one POST in, judged, and one response out, whoever answers it.

A request that takes its time is served beside whoever looks whether the client is still there. When the client hangs
up, serving it ends, and with it the request to the backend; what was accepted there goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR
from opentelemetry.trace import Tracer
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.domain.errors import PerdureError
from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER
from perdure.wire.identity import of_token

from . import bodies, envelope, tracing
from .answers import failure, method_not_found, success
from .asking import Asking
from .backends import Asker, Backend
from .bodies import TooLarge
from .catalog import Catalog
from .envelope import Notification, Refused, Request
from .extending import Extending
from .faults import Fault, Leaving
from .finding import FORWARDED, Finding
from .forwarding import Forwarding
from .inflight import Caller, InFlight, Pending
from .listening import LISTEN, Listening
from .metrics import Metrics, exposition
from .relay import Outlet, Stalled
from .routing import Routing
from .shelf import KINDS
from .steady import steadily
from .tasks import METHODS, TaskRequests
from .watching import watch

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

_CANCELLED: Final = "notifications/cancelled"

_WATCHED_AFTER: Final = 0.02
"""Seconds after which somebody looks whether the client is still there. Most requests are over by then, and a task that
is begun and cancelled costs a tenth of what they do."""

_KNOWN: Final = frozenset({*METHODS, *KINDS, *FORWARDED, DISCOVER, LISTEN})

Handler = Callable[[Request, Asker, Outlet, Pending], Awaitable[None]]


class Gateway:
    """The ASGI application at the one address. Enter `running` before it is called.

    Args:
        backends: in the order of the lists.
        catalog: of the same backends.
        routing: the routes of their tasks.
        retention: seconds that a route is kept once its task's time is over.
        give_up: seconds past its ttl for which a task is believed in whose backend can't be asked; None: for ever.
        subscriptions: streams that are listened to at once.
        subscriptions_per_owner: the same of one owner.
        subscribed_tasks: tasks of one stream.
        security: which hosts and origins are answered; None: any.
        tenant_claim: of the token, that holds the tenant.
        request_body: bytes that a request may have.
        tracer: of spans; None: that which the process has when `running` is entered, if any.
    """

    def __init__(
        self,
        backends: list[Backend],
        catalog: Catalog,
        routing: Routing,
        *,
        retention: float,
        give_up: float | None,
        subscriptions: int,
        subscriptions_per_owner: int,
        subscribed_tasks: int,
        security: TransportSecuritySettings | None = None,
        tenant_claim: str | None = None,
        request_body: int,
        tracer: Tracer | None = None,
    ) -> None:
        self.backends = {backend.name: backend for backend in backends}
        self.catalog = catalog
        self.routing = routing
        self.in_flight = InFlight()
        self.metrics = Metrics(_KNOWN)
        self._security = TransportSecurityMiddleware(security)
        self._tenant_claim = tenant_claim
        self._retention = retention
        self._give_up = give_up
        self._most = request_body
        self._tracer = tracer
        self.listening = Listening(
            routing,
            self.backends,
            catalog,
            most=subscriptions,
            of_owner=subscriptions_per_owner,
            tasks=subscribed_tasks,
        )
        self._tasks = TaskRequests(routing, self.backends)
        self._handlers: dict[str, Handler] = {}
        self._otherwise: Handler = _serve_nothing
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def reaching(self) -> AsyncGenerator[None]:
        """For as long as the backends may be asked, without serving anybody."""
        async with AsyncExitStack() as stack:
            for backend in self.backends.values():
                await stack.enter_async_context(backend.upstream)
            yield

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """For as long as requests are served."""
        async with self.reaching(), anyio.create_task_group() as group:
            self._group = group
            self._tracer = self._tracer or tracing.of_process()
            forwarding = Forwarding(self.routing, group)
            finding = Finding(self.catalog, forwarding)
            self._otherwise = Extending(self.backends, self.catalog, forwarding).serve
            self._handlers = {
                **dict.fromkeys(METHODS, self._serve_task),
                **dict.fromkeys(KINDS, self._serve_list),
                **finding.handlers,
                DISCOVER: self._discover,
                LISTEN: self.listening.serve,
            }
            for backend in self.backends.values():
                group.start_soon(steadily, backend.health.run)
                group.start_soon(steadily, partial(watch, backend, self.catalog, self.routing))
            janitor = self.routing.janitor(Asking(self.backends), self._retention, self._give_up)
            group.start_soon(steadily, janitor.keep_house)
            try:
                yield
            finally:
                self._handlers, self._otherwise, self._group = {}, _serve_nothing, None
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    for backend in self.backends.values():
                        await backend.passing.aclose()

    def exposition(self) -> str:
        """What is counted, as Prometheus reads it."""
        return exposition(self.metrics, self.backends.values(), len(self.in_flight), len(self.listening))

    def end_subscriptions(self) -> None:
        """Have all streams that are listened to end, and say so. On the event loop only."""
        self.listening.end()

    def end_requests(self) -> None:
        """Have all requests that are under way end, and their clients hear why: they would be cut off. As above."""
        self.in_flight.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP request."""
        outlet = Outlet(send)
        asked = await self._asked(scope, receive, send, outlet)
        if asked is None:
            return
        request, asker, caller = asked
        known = request.method if request.method in _KNOWN else None
        with tracing.of_request(self._tracer, known, request.meta, request.headers) as span:
            pending = await self._answer(request, asker, caller, outlet, receive)
            tracing.ended(span, pending.backend, outlet.said)

    async def _asked(
        self, scope: Scope, receive: Receive, send: Send, outlet: Outlet
    ) -> tuple[Request, Asker, Caller] | None:
        """What is to be answered, and to whom; None: nothing, or not any more."""
        http = HTTPRequest(scope, receive)
        refusal = await self._security.validate_request(http, is_post=http.method == "POST") or _refusal(http)
        try:
            body = None if refusal is not None else await bodies.read(http.headers, receive, self._most)
        except TooLarge:
            refusal, body = Response("Request body too large", status_code=413), None
        if refusal is not None:
            await refusal(scope, receive, send)
        if body is None:
            return None
        said = asker = None
        try:
            said = envelope.read(http.headers.items(), body)
            asker = self._asker()
        except Refused as refused:
            await outlet.answer(failure(refused.id, refused.error))
            return None
        except MCPError as error:
            await outlet.answer(failure(getattr(said, "id", None), error))
            return None
        caller = Caller(asker.owner, http.client.host if http.client else "")
        if isinstance(said, Notification):
            if said.method == _CANCELLED:
                self.in_flight.cancel(caller, said.params.get("requestId"))
            await outlet.acknowledge()
            return None
        if said.method == LISTEN and not check_accept_headers(http)[1]:
            await outlet.refuse(406)
            return None
        return said, asker, caller

    async def _answer(
        self, request: Request, asker: Asker, caller: Caller, outlet: Outlet, receive: Receive
    ) -> Pending:
        """Have a request answered, unless its client goes away or does not want that any more."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        scope = anyio.CancelScope()
        pending = self.in_flight.begin(caller, request.id, scope)
        with scope:
            soon = loop.call_later(_WATCHED_AFTER, self._watch, outlet, receive, scope)
            try:
                await self._serve(request, asker, outlet, pending)
            finally:
                soon.cancel()
                outlet.unwatched()
                self.in_flight.over(pending)
        self.metrics.note(pending.backend, request.method, _outcome(outlet.said), loop.time() - began)
        if pending.told and not outlet.over:
            error = MCPError(CONNECTION_CLOSED, "Request cancelled", {"gateway": True})
            await outlet.answer(failure(request.id, error))
        elif pending.cut_off and not outlet.over:
            await outlet.answer(failure(request.id, Leaving(pending.backend or "")))
        return pending

    def _watch(self, outlet: Outlet, receive: Receive, scope: anyio.CancelScope) -> None:
        if self._group is not None:
            self._group.start_soon(outlet.watch, receive, scope)

    def _asker(self) -> Asker:
        token = get_access_token()
        return Asker(of_token(token, self._tenant_claim), token)

    async def _serve(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        try:
            handler = self._handlers.get(request.method, self._otherwise)
            await handler(request, asker, outlet, pending)
        except (MCPError, PerdureError) as error:
            if isinstance(error, PerdureError) and not isinstance(error, Fault):
                logger.debug("%s: %s", request.method, error)
            await outlet.answer(failure(request.id, error))
        except Stalled:  # there is nobody to tell; a response that has no end is cut off by whoever serves us
            logger.warning("a client has not read its response in time: it is cut off")
        except Exception:  # the boundary of a request: whatever went wrong is no matter for others
            logger.exception("a request failed inside the gateway")
            error = MCPError(INTERNAL_ERROR, "Internal error", {"gateway": True})
            await outlet.answer(failure(request.id, error))

    async def _serve_task(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        await outlet.answer(await self._tasks.serve(request, asker, pending))

    async def _serve_list(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        envelope.validate(request)
        kind = KINDS[request.method]
        cursor = cast("str | None", request.params.get("cursor"))
        await outlet.answer(success(request.id, await self.catalog.page(kind, cursor, asker)))

    async def _discover(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        envelope.validate(request)
        await outlet.answer(success(request.id, await self.catalog.discovery.result(asker)))


async def _serve_nothing(request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
    raise method_not_found(request.method)


def _outcome(said: JSONObject | None) -> str:
    """What became of a request, for whoever counts."""
    if said is None:
        return "gone"
    error = said.get("error")
    if not isinstance(error, dict):
        return "ok"
    data = error.get("data")
    return "gateway" if isinstance(data, dict) and data.get("gateway") is True else "error"


def _refusal(http: HTTPRequest) -> Response | None:
    if http.method != "POST":
        return Response(status_code=405, headers={"Allow": "POST"})
    has_json, has_sse = check_accept_headers(http)
    return None if has_json and has_sse else Response(status_code=406)
