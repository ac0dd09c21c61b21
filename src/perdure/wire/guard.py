"""What is refused before any handler, validation of ours or look-up: the checks that every request goes through.

They see it raw, which is the one place where it can be told that parameters hold what JSON text can't carry
(Python's parser takes NaN and lone surrogates), that `Mcp-Name` and the body name different tasks, and that a client
asks for task notifications without having declared the extension, or in the wrong place.

Of `taskIds` beside `notifications` no specification says anything, and parameters that nobody knows are let through.
But a client that declares the extension knows this one, and would wait on a stream that never says anything: it is
refused. To one without the extension the name means nothing, nor does it beside a `taskIds` that is in its place.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import to_json

from perdure.domain.limits import Limits
from perdure.tools.declaration import CALL

from .capabilities import declares_tasks, require_tasks
from .models import LISTEN, METHODS, RequestContext, misplaces_tasks, names_tasks

__all__ = ["Guard"]

logger = logging.getLogger(__name__)

_UNCARRIED: Final = "The request holds a value that JSON text can't carry: {}"


class Guard:
    """The checks. `tools`: the names of the task tools, as they are declared. `limits`: what bounds a request.

    `unnamed` counts the requests for a task that came over HTTP without `Mcp-Name`: accepted, since clients leave it
    out, though a load balancer can't route them.
    """

    def __init__(self, tools: Collection[str], limits: Callable[[], Limits]) -> None:
        self._tools = tools
        self._limits = limits
        self.unnamed = 0

    def check_handshake(self, ctx: RequestContext) -> None:
        """A request of the handshake era, which has none of the extension's methods.

        Raises:
            MCPError: -32601. The SDK says so too, but only once the parameters are right, which would show that there
                is such a method.
        """
        if ctx.method in METHODS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)

    def check(self, ctx: RequestContext) -> None:
        """A request of the stateless era.

        Raises:
            MCPError: -32602, -32021 or -32020; see above.
        """
        request_id, method, params = ctx.request_id, ctx.method, ctx.params
        depth = self._limits().depth
        if not _is_plain(request_id, method, params, depth):
            _refuse_unrepresentable([request_id, method, params], depth if self._concerns_tasks(ctx) else None)
        if method in METHODS:
            require_tasks(ctx)
            self._check_name(ctx)
        elif method == LISTEN and names_tasks(params):
            require_tasks(ctx)
        elif method == LISTEN and misplaces_tasks(params) and declares_tasks(ctx):
            # Else nothing would be listened to, in silence. To a client without the extension it is any unknown name.
            raise MCPError(INVALID_PARAMS, "taskIds belongs into notifications, and not beside it")

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
        elif not _says(header.strip(), task_id):
            raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")


def _says(header: str, text: str) -> bool:
    """Whether a header's value, plain or encoded, is `text`. Nearly all are plain, and are spared the decoding."""
    if header == text and not header.startswith("=?"):
        return True
    try:
        return decode_header_value(header) == text
    except ValueError:  # a byte within the encoding that no encoding has
        return False


def _refuse_unrepresentable(request: list[Any], depth: int | None) -> None:
    """Refuse what JSON text can't carry; and what nests deeper than `depth` levels, unless that is None."""
    try:
        levels = max(map(_levels, request))
    except UnicodeError:
        raise MCPError(INVALID_PARAMS, _UNCARRIED.format("a lone surrogate")) from None
    except ArithmeticError:
        raise MCPError(INVALID_PARAMS, _UNCARRIED.format("NaN or an infinity")) from None
    if depth is not None and levels > depth:
        raise MCPError(INVALID_PARAMS, f"The parameters nest deeper than {depth} levels, which is the limit (depth)")


def _levels(value: object) -> int:
    """How deep a value nests. Looks at every number and text, but not by recursion, which would be a limit of its own.

    Raises:
        ArithmeticError, UnicodeError: one of them is nothing that JSON text can carry.
    """
    level, depth = [value], 0
    while level:
        depth += any(isinstance(node, dict | list) for node in level)
        level = [child for node in level for child in _within(node)]
    return depth


def _within(node: object) -> Iterable[object]:
    if isinstance(node, dict):
        children = cast("dict[str, object]", node)
        return [*children, *children.values()]
    if isinstance(node, list):
        return cast("list[object]", node)
    if isinstance(node, str):
        node.encode("utf-8")
    elif isinstance(node, float) and not math.isfinite(node):
        raise ArithmeticError
    return ()


def _is_plain(request_id: int | str | None, method: str, params: Mapping[str, Any] | None, depth: int) -> bool:
    """Whether nothing in it can be what is refused: true of nearly all requests, and told four times as fast."""
    if not method.isascii() or (isinstance(request_id, str) and not request_id.isascii()):
        return False
    try:
        text = to_json(params, inf_nan_mode="constants")
    except ValueError:
        return False
    return b"NaN" not in text and b"Infinity" not in text and text.count(b"[") + text.count(b"{") <= depth
