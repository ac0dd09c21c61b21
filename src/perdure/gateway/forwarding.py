"""A request that one backend answers: passed on as it is, and its response passed back as it comes.

Of what comes back only task handles are looked at: a route is laid before one goes out. One that may not go out is
refused, and its task cancelled, since nobody will ever ask for it. Not so if the call had an idempotency key: whoever
calls again under it may have the task then. And not if it is another owner's task: that is not ours to cancel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import JSONObject
from perdure.domain.names import IDEMPOTENCY_KEY

from . import rewriting
from .answers import Answer, failure, passed, refused_handle
from .backends import Asker, Backend
from .envelope import Request
from .faults import Fault, Unrouted
from .feed import TASKS
from .inflight import Pending
from .relay import Outlet
from .retrying import Safe, is_keyed_call
from .routing import Routing, TakenRoute, is_handle, is_id
from .snapshots import task_of
from .steady import aside

__all__ = ["Forwarded", "Forwarding"]

logger = logging.getLogger(__name__)

_CANCEL_WITHIN: Final = 30.0
"""Seconds: nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request as it goes to one backend.

    `name`: what `Mcp-Name` says there, if anything. `honours_keys`: of a tool, whether a second call under one key is
    the first one, as the backend lists it now.
    """

    request: Request
    backend: Backend
    params: JSONObject
    name: str | None = None
    honours_keys: Callable[[], Awaitable[bool]] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """What of the client's goes along."""
        return self.request.headers if self.name is None else rewriting.named(self.request.headers, self.name)

    def safe(self, message: JSONObject) -> Safe | None:
        """Leave to send it again, if there is any."""
        bounds = self.backend.upstream.safe(message)
        if bounds is None or not is_keyed_call(message):
            return bounds
        return None if self.honours_keys is None else replace(bounds, confirm=self.honours_keys)


class Forwarding:
    """Passes requests on. `group` runs what has to be done once a request is over."""

    def __init__(self, routing: Routing, group: TaskGroup) -> None:
        self._routing = routing
        self._group = group

    async def forward(self, it: Forwarded, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        """Have it answered.

        Raises:
            Fault: the backend did not.
            MCPError, StoreUnavailable: its answer can't be passed on.
        """
        pending.backend = it.backend.name
        outlet.keep_alive()
        deadline = anyio.current_time() + it.backend.timeout
        message = it.request.message(it.params)
        # The deadline is the backend's: what the client takes to read what comes is on nobody's account.
        stream = it.backend.upstream.stream(
            message, it.headers, it.backend.who(asker), deadline=deadline, retry=it.safe(message), lane=asker.owner
        )
        async with stream as exchange:
            if not exchange.is_stream:
                response = cast("JSONObject", await exchange.body())
                await outlet.answer(await self._answer(it, asker, response, exchange.status))
                return
            async with aclosing(exchange.events()) as events:
                async for each in events:
                    if "method" not in each:  # the last one: what is left to hear is that the stream ends
                        await outlet.answer(await self._answer(it, asker, each, 200))
                    elif each["method"] != TASKS and "id" not in each:
                        await outlet.event(each)

    async def _answer(self, it: Forwarded, asker: Asker, response: JSONObject, status: int) -> Answer:
        if response.get("id") is None:  # an error may come without one
            response = {**response, "id": it.request.id}
        if is_handle(response):
            try:
                response = await self._routed(it, asker, response)
            except StoreUnavailable as error:
                return failure(it.request.id, Unrouted(it.backend.name, str(error), error.retry_after_ms))
            except MCPError as error:
                return failure(it.request.id, error)
        return passed(response, status)

    async def _routed(self, it: Forwarded, asker: Asker, response: JSONObject) -> JSONObject:
        if not it.request.declares_tasks:
            self._abandon(it, asker, response)
            logger.error("the backend %s answered with a task to a client without the extension", it.backend.name)
            raise refused_handle(it.backend.name)
        try:
            return await self._routing.laid(asker.owner, it.backend.name, response)
        except TakenRoute:
            raise refused_handle(it.backend.name) from None
        except (MCPError, StoreUnavailable):
            self._abandon(it, asker, response)
            raise

    def _abandon(self, it: Forwarded, asker: Asker, response: JSONObject) -> None:
        """Have a task cancelled that nobody will hear of."""
        task_id = task_of(cast("dict[str, Any]", response["result"]))
        if task_id is not None and is_id(task_id) and IDEMPOTENCY_KEY not in it.request.meta:
            self._group.start_soon(aside, partial(self._cancel, it.backend, asker, task_id))

    async def _cancel(self, backend: Backend, asker: Asker, task_id: str) -> None:
        try:
            await backend.ask("tasks/cancel", {"taskId": task_id}, asker, name=task_id, within=_CANCEL_WITHIN)
        except Fault as fault:
            logger.warning("a task of the backend %s that nobody knows could not be cancelled: %s", backend.name, fault)
