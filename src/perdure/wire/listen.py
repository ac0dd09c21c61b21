"""`subscriptions/listen` for tasks (contract 7): one request, whose response is a stream of snapshots.

It lies over the SDK's own handler, which serves the core kinds and knows no `taskIds`. Who asks for tasks only is
served here alone. Who asks for both gets one stream: the SDK's handler runs beside ours with a session that hands its
notifications over, the two acknowledgements become one, and the first that fails or ends is the end of both.

All that a stream has is its `Subscription`, and that is given back however the stream ends: its tasks are over, the
server shuts down, the access token expires, the client hangs up (the transport cancels us), or it stops reading.

**A client that stops reading.** A frame that its transport has not taken within `FRAME_WITHIN` seconds is the last.
Over stdio there is one pipe for all, and whoever does not read it gets no answer to anything: only the subscription is
ended, and the answer waits like all others. Over HTTP the response is this stream's own, and has to go. The SDK gives a
handler no way to hang up, and an answer, be it a result or an error, would wait in the same queue as the frame that is
stuck. A handler that ends as cancelled does it: the SDK runs it in a task group, and a child that ends so cancels its
group, with the task that is stuck in the write. What was written before is the kernel's to drop (`ops.ports`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

import anyio
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    Notification,
    RequestId,
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    methods,
)

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId
from perdure.domain.model import JSONObject
from perdure.engine.news import Snapshot
from perdure.engine.runtime import Runtime
from perdure.engine.subscription import Subscription

from . import render
from .capabilities import input_kinds
from .errors import translated
from .identity import Identify, is_one_of_many
from .models import RequestContext

__all__ = ["FRAME_WITHIN", "Listen"]

logger = logging.getLogger(__name__)

FRAME_WITHIN: Final = 30.0
"""Seconds that a transport has to take a frame."""


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """One snapshot on its way. Not the SDK's type of that name, which is of the revision before."""


class Listen:
    """Serves the streams for tasks of one server. `frame_within`: as `FRAME_WITHIN`.

    `server_info`: how it presents itself. `check_started`: raises if it was put together without its lifespan.
    """

    def __init__(
        self,
        runtime: Runtime,
        identify: Identify,
        server_info: Callable[[], JSONObject],
        check_started: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._identify = identify
        self._server_info = server_info
        self._check_started = check_started
        self.frame_within = FRAME_WITHIN

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Serve one stream.

        Raises:
            MCPError: -32602 for parameters that are none, -32000 if too many are open or the server is ending, -32600
                if the access token expired before there was a stream, -32603 in the end if one of the tasks can't be
                read; and what the SDK's handler raises before it has acknowledged.
            ValidationError: the parameters do not fit the core's schema; the SDK makes a -32602 of it.
        """
        deadline = anyio.current_time() + _life()
        with translated:
            self._check_started()
            task_ids, core = _asked(ctx)
            owner = self._identify(ctx)
            subscription = await self._runtime.snapshots.subscribe(
                owner, task_ids, counted=is_one_of_many(owner), stays=core is not None
            )
        try:
            stream = _Stream(ctx, subscription, self._server_info(), self.frame_within)
            with anyio.CancelScope(deadline=deadline) as stream.scope:
                await (stream.serve() if core is None else stream.serve_beside(core, call_next))
        finally:
            subscription.close()
        if stream.stalled and ctx.request is not None:
            raise anyio.get_cancelled_exc_class()
        if not (stream.acknowledged or stream.stalled):
            raise MCPError(INVALID_REQUEST, "The access token has expired")
        if subscription.unreadable:
            raise MCPError(INTERNAL_ERROR, "Internal error")  # as `tasks/get` says of that task
        return {"resultType": "complete", "_meta": {**stream.meta, SERVER_INFO_META_KEY: self._server_info()}}


class _Stream:
    """One response, frame by frame. `scope` bounds it: whatever cancels that ends the stream."""

    scope: anyio.CancelScope

    def __init__(
        self, ctx: RequestContext, subscription: Subscription, server_info: JSONObject, frame_within: float
    ) -> None:
        self._ctx = ctx
        self._subscription = subscription
        self._server_info = server_info
        self._frame_within = frame_within
        self._kinds = input_kinds(ctx)
        # Every request that comes here has one.
        self._id = cast("RequestId", ctx.request_id)
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: self._id}
        self.acknowledged = False
        self.stalled = False

    async def serve(self) -> None:
        """Acknowledge, and show all there is to see until it is over."""
        await self._acknowledge({})
        await self._show()

    async def serve_beside(self, core: Mapping[str, Any], call_next: CallNext) -> None:
        """The same, and what the handler of the core kinds has to say on this stream, for as long as both go on.

        Without any such kind there is nothing to stay for once the tasks are over.

        Raises:
            MCPError, ValidationError: as the handler.
        """
        try:
            async with anyio.create_task_group() as group:

                async def begin(honored: Mapping[str, Any]) -> None:
                    # What was asked for besides may be nothing that anybody here knows.
                    self._subscription.stays = bool(honored)
                    await self._acknowledge(honored)
                    group.start_soon(self._show_to_the_end)

                session = cast("ServerSession", _Relay(self._ctx.session, begin, self._send))
                try:
                    await call_next(replace(self._ctx, params=core, session=session))
                except MCPError as error:
                    if error.code != METHOD_NOT_FOUND or self.acknowledged:
                        raise
                if self.acknowledged:
                    self.scope.cancel()
                else:
                    await begin({})
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _show_to_the_end(self) -> None:
        await self._show()
        self.scope.cancel()

    async def _show(self) -> None:
        while await self._show_next():
            pass

    async def _show_next(self) -> bool:
        """Show one state; False: there is none to come. It is no longer held then, however long the next one takes."""
        snapshot = await self._subscription.next()
        if snapshot is None:
            return False
        said = self._said(snapshot)
        await self._send(TaskNotification.model_construct(method="notifications/tasks", params=said))
        return True

    def _said(self, snapshot: Snapshot) -> dict[str, Any]:
        # Only what is asked depends on who asks.
        kinds = self._kinds if snapshot.task.inputs else frozenset[str]()
        said = snapshot.made.get(kinds)
        if said is None:
            said = snapshot.made[kinds] = render.snapshot(
                snapshot.task, kinds, self._server_info, snapshot.task.poll_ms
            )
        return {**said, "_meta": self.meta}

    async def _acknowledge(self, honored: Mapping[str, Any]) -> None:
        accepted = SubscriptionFilter.model_validate({**honored, "taskIds": [*self._subscription.accepted]})
        params = SubscriptionsAcknowledgedNotificationParams(notifications=accepted, _meta=self.meta)
        await self._send(SubscriptionsAcknowledgedNotification(params=params))
        self.acknowledged = True

    async def _send(self, notification: Notification[Any, Any]) -> None:
        """Hand a frame to the transport; if it does not take it in time, there will be no other."""
        with anyio.move_on_after(self._frame_within) as waiting:
            # `notifications/tasks` is an extension's, so the SDK's union does not name it.
            await self._ctx.session.send_notification(cast("ServerNotification", notification), self._id)
        if waiting.cancelled_caught:
            logger.warning("a client has not read its stream for %g s: it is cut off", self._frame_within)
            self.stalled = True
            self.scope.cancel()


class _Relay:
    """The session of a request, but that notifications go to `send`, and the first acknowledgement to `begin`.

    Everything else is the session's own, so that it can stand in for it.
    """

    def __init__(
        self,
        session: ServerSession,
        begin: Callable[[Mapping[str, Any]], Any],
        send: Callable[[Notification[Any, Any]], Any],
    ) -> None:
        self._session = session
        self._begin = begin
        self._send = send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(
        self, notification: Notification[Any, Any], related_request_id: RequestId | None = None
    ) -> None:
        """As the session's. What belongs to no request is none of the stream's."""
        if related_request_id is None:
            await self._session.send_notification(cast("ServerNotification", notification))
        elif isinstance(notification, SubscriptionsAcknowledgedNotification):
            honored = notification.params.notifications.model_dump(by_alias=True, mode="json", exclude_none=True)
            await self._begin(honored)
        else:
            await self._send(notification)


def _asked(ctx: RequestContext) -> tuple[list[str], dict[str, Any] | None]:
    """The tasks that a request asks for, as far as these can be ids; and, if it asks for anything else, the rest of it.

    Raises:
        MCPError: -32602.
        ValidationError: as the SDK would.
    """
    params = ctx.params or {}
    methods.validate_client_request(ctx.method, ctx.protocol_version, params)
    notifications: dict[str, Any] = params["notifications"]
    task_ids = notifications["taskIds"]
    if not _are_texts(task_ids):
        raise MCPError(INVALID_PARAMS, "notifications.taskIds must be a list of strings")
    core = {kind: asked for kind, asked in notifications.items() if kind != "taskIds"}
    rest = {**params, "notifications": core} if any(core.values()) else None
    return [task_id for task_id in task_ids if _is_id(task_id)], rest


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def _is_id(text: str) -> bool:
    try:
        ids.parse(text)
    except MalformedTaskId:
        return False
    return True


def _life() -> float:
    """Seconds until the access token of this request expires; infinity without one that does."""
    token = get_access_token()
    if token is None or token.expires_at is None:
        return math.inf
    # The SDK lets a token in throughout the second that it names, so that is part of its life.
    return max(0.0, token.expires_at + 1 - time.time())
