"""The middleware: what is refused before any handler, validation of ours or look-up.

It sees every request raw, which is the one place where it can be told that parameters hold what JSON text can't carry
(Python's parser takes NaN and lone surrogates), that `Mcp-Name` and the body name different tasks, and that a client
asks for task notifications without having declared the extension.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import to_json

from perdure.domain.errors import NotStorable
from perdure.domain.model import JSON
from perdure.store.codec import MAX_DEPTH, encode
from perdure.tools.declaration import CALL

from .capabilities import is_modern, require_tasks
from .models import METHODS, RequestContext

__all__ = ["Guard"]

logger = logging.getLogger(__name__)


class Guard:
    """A `ServerMiddleware`. `tools` are the names of the task tools, as they are declared.

    `unnamed` counts the requests for a task that came over HTTP without `Mcp-Name`: accepted, since clients leave it
    out, though a load balancer can't route them.
    """

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
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
        request = [ctx.request_id, ctx.method, ctx.params]
        if not _is_plain(request):
            _refuse_unrepresentable(request, stored=self._concerns_tasks(ctx))
        if ctx.method in METHODS:
            require_tasks(ctx)
            self._check_name(ctx)
        elif ctx.method == "subscriptions/listen" and _listens_for_tasks(ctx.params):
            require_tasks(ctx)

    def _concerns_tasks(self, ctx: RequestContext) -> bool:
        """Whether the parameters may come to be stored. Everything else on the server is none of our business."""
        if ctx.method != CALL:
            return ctx.method in METHODS
        name = (ctx.params or {}).get("name")
        return isinstance(name, str) and name in self._tools

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


def _refuse_unrepresentable(request: list[Any], *, stored: bool) -> None:
    """Refuse what JSON text can't carry; and, in what is `stored`, what nests too deep."""
    try:
        if stored:
            encode(cast("JSON", request))
        else:
            _walk(request)
    except (NotStorable, UnicodeError, ArithmeticError):
        message = (
            "The request holds a value that JSON text can't carry (NaN, an infinity, a lone surrogate, or too deep)"
        )
        raise MCPError(INVALID_PARAMS, message) from None


def _walk(value: object) -> None:
    """Look at every number and text, however deep; not by recursion, which would be a limit of its own.

    Raises:
        ArithmeticError, UnicodeError: one of them is nothing that JSON text can carry.
    """
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            children = cast("dict[str, object]", node)
            pending += [*children, *children.values()]
        elif isinstance(node, list):
            pending += cast("list[object]", node)
        elif isinstance(node, str):
            node.encode("utf-8")
        elif isinstance(node, float) and not math.isfinite(node):
            raise ArithmeticError


def _is_plain(request: object) -> bool:
    """Whether nothing in it can be what `encode` refuses: true of nearly all requests, and told four times as fast."""
    try:
        text = to_json(request, inf_nan_mode="constants")
    except ValueError:
        return False
    return b"NaN" not in text and b"Infinity" not in text and text.count(b"[") + text.count(b"{") <= MAX_DEPTH


def _listens_for_tasks(params: Mapping[str, Any] | None) -> bool:
    notifications = (params or {}).get("notifications")
    return isinstance(notifications, dict) and "taskIds" in notifications
