"""The middleware: what is refused before any handler, validation of ours or look-up.

It sees every request raw, which is the one place where it can be told that parameters hold what JSON text can't carry
(Python's parser takes NaN and lone surrogates), that `Mcp-Name` and the body name different tasks, and that a client
asks for task notifications without having declared the extension.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND

from perdure.domain.errors import NotStorable
from perdure.domain.model import JSON
from perdure.store.codec import encode

from .capabilities import is_modern, require_tasks
from .models import METHODS

__all__ = ["Guard"]

logger = logging.getLogger(__name__)

RequestContext = ServerRequestContext[Any, Any]


class Guard:
    """A `ServerMiddleware`.

    `unnamed` counts the requests for a task that came over HTTP without `Mcp-Name`: accepted, since clients leave it
    out, though a load balancer can't route them.
    """

    def __init__(self) -> None:
        self.unnamed = 0

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is not None:
            if is_modern(ctx):
                self._check(ctx)
            elif ctx.method in METHODS:
                # The SDK says so too, but only once the parameters are right, which would show that there is a method.
                raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await call_next(ctx)

    def _check(self, ctx: RequestContext) -> None:
        _refuse_unrepresentable(ctx)
        if ctx.method in METHODS:
            require_tasks(ctx)
            self._check_name(ctx)
        elif ctx.method == "subscriptions/listen" and _listens_for_tasks(ctx.params):
            require_tasks(ctx)

    def _check_name(self, ctx: RequestContext) -> None:
        """Leaves duplicates to the transport, and a task id that is no string to the validation of parameters."""
        task_id = (ctx.params or {}).get("taskId")
        if ctx.request is None or not isinstance(task_id, str):
            return
        header = cast("str | None", ctx.request.headers.get(MCP_NAME_HEADER))
        if header is None:
            self.unnamed += 1
            logger.debug("%s came without Mcp-Name", ctx.method)
        elif decode_header_value(header.strip()) != task_id:
            raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")


def _refuse_unrepresentable(ctx: RequestContext) -> None:
    try:
        encode(cast("JSON", [ctx.request_id, ctx.method, ctx.params]))
    except NotStorable:
        message = (
            "The request holds a value that JSON text can't carry (NaN, an infinity, a lone surrogate, or too deep)"
        )
        raise MCPError(INVALID_PARAMS, message) from None


def _listens_for_tasks(params: Mapping[str, Any] | None) -> bool:
    notifications = (params or {}).get("notifications")
    return isinstance(notifications, dict) and "taskIds" in notifications
