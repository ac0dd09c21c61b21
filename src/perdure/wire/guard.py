"""What is refused before any handler, validation of ours or look-up: the checks that every request goes through.

They see it raw, which is the one place where it can be told that parameters hold what JSON text can't carry
(Python's parser takes NaN and lone surrogates), or so much that it would take long to look at all of it; that
`Mcp-Name` and the body name different tasks; and that a client asks for task notifications without having declared the
extension, or in the wrong place.

Of `taskIds` beside `notifications` no specification says anything, and parameters that nobody knows are let through.
But a client that declares the extension knows this one, and would wait on a stream that never says anything: it is
refused. To one without the extension the name means nothing, nor does it beside a `taskIds` that is in its place.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import to_json

from perdure.domain.limits import Limits
from perdure.tools.declaration import CALL

from .capabilities import declares_tasks, require_tasks
from .errors import translated
from .extent import check_answers, excess, may_exceed
from .models import LISTEN, METHODS, RequestContext, misplaces_tasks, names_tasks

__all__ = ["Guard"]

logger = logging.getLogger(__name__)

_OURS: Final = "tasks/"
"""What methods about tasks begin with, in both eras that have some."""
_UNCARRIED: Final = "The request holds a value that JSON text can't carry: {}"
_SURROGATE: Final = "a lone surrogate"
_INFINITE: Final = "NaN or an infinity"
_LOOKED_AT: Final = 250_000
"""Values that are looked at one by one in what is deeper than anybody means."""


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
        self.check_content(ctx)
        method = ctx.method
        if method in METHODS:
            require_tasks(ctx)
            self._check_name(ctx)
        elif method == LISTEN and names_tasks(ctx.params):
            require_tasks(ctx)
        elif method == LISTEN and misplaces_tasks(ctx.params) and declares_tasks(ctx):
            # Else nothing would be listened to, in silence. To a client without the extension it is any unknown name.
            raise MCPError(INVALID_PARAMS, "taskIds belongs into notifications, and not beside it")

    def check_content(self, ctx: RequestContext) -> None:
        """What a request of any era holds: JSON text can carry it, and if it is about tasks, it is not too much.

        Raises:
            MCPError: -32602.
        """
        request = [ctx.request_id, ctx.method, ctx.params]
        text = _written(request)
        if self._concerns_tasks(ctx):
            _bound(ctx, text, self._limits())
            why = _SURROGATE if text is None else _infinite(request, text)
        else:
            why = _walk(request) if text is None else _infinite(request, text)
        if why is not None:
            raise MCPError(INVALID_PARAMS, _UNCARRIED.format(why))

    def _concerns_tasks(self, ctx: RequestContext) -> bool:
        """Whether the parameters may come to be stored. Everything else on the server is none of our business."""
        if ctx.method != CALL:
            return ctx.method.startswith(_OURS)
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


def _written(request: list[Any]) -> bytes | None:
    """The request as JSON text. None: there is a lone surrogate in it, or it is deeper than the one who writes it goes.

    That is some 250 levels, and no value of ours has so many. It costs a tenth of what the parsing did.
    """
    try:
        return to_json(request, inf_nan_mode="constants")
    except ValueError:
        return None


def _infinite(request: list[Any], text: bytes) -> str | None:
    """What is wrong if it has NaN or an infinity, which are words that may stand in strings as well."""
    is_finite = (b"NaN" not in text and b"Infinity" not in text) or to_json(request, inf_nan_mode="null") == text
    return None if is_finite else _INFINITE


def _bound(ctx: RequestContext, text: bytes | None, limits: Limits) -> None:
    """Refuse parameters with more levels or values than may be, before anybody judges each of them."""
    if text is not None and not may_exceed(
        text, levels=limits.depth + 1, values=min(limits.values, limits.answer_values)
    ):
        return
    match excess(ctx.params, levels=limits.depth, values=limits.values):
        case "levels":
            message = f"The parameters nest deeper than {limits.depth} levels, which is the limit (depth)"
            raise MCPError(INVALID_PARAMS, message)
        case "values":
            message = f"The parameters hold more than {limits.values} values, which is the limit (values)"
            raise MCPError(INVALID_PARAMS, message)
        case None:
            pass
    if ctx.method == CALL:  # the SDK looks for a shape that the answers fit before any handler sees them
        with translated:
            check_answers((ctx.params or {}).get("inputResponses"), limits.answer_values)


def _walk(value: object) -> str | None:
    """Look at every number and text, however deep; not by recursion, which would be a limit of its own.

    Only what is deeper than anybody means comes here, and of that no more than so many values are looked at.
    """
    pending, count = [value], 0
    while pending and count <= _LOOKED_AT:
        node, count = pending.pop(), count + 1
        if isinstance(node, dict):
            children = cast("dict[str, object]", node)
            pending += [*children, *children.values()]
        elif isinstance(node, list):
            pending += cast("list[object]", node)
        elif isinstance(node, str):
            if not _is_text(node):
                return _SURROGATE
        elif isinstance(node, float) and not math.isfinite(node):
            return _INFINITE
    return f"more than {_LOOKED_AT} values at so many levels" if pending else None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeError:
        return False
    return True
