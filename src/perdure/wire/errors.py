"""Which JSON-RPC error an error of the domain becomes (contract 6), and what a client hears that lacks the extension.

Nothing further in knows a code, but for two that a task may end in: the -32603 that is stored if it fails without a
word of its tool, and the -32021 of a question that its client can't answer (`tools/kinds`). A refusal that the wire
itself comes to, such as a header that contradicts the body, chooses its code where it is decided.
"""

from __future__ import annotations

from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from perdure.domain.errors import (
    IdempotencyKeyReused,
    LimitExceeded,
    MalformedTaskId,
    NotStorable,
    PerdureError,
    Refused,
    StoreUnavailable,
    TaskExpired,
    TaskNotFound,
)
from perdure.tools.kinds import missing_capability

from .models import EXTENSION
from .refusals import Refusals

__all__ = ["UNAVAILABLE", "missing_extension", "out_of_time", "to_mcp", "translated"]

UNAVAILABLE: Final = -32000
"""Out of capacity, or the store can't be reached: the same request may succeed after `data.retryAfterMs`."""

_CALLERS_FAULT = (MalformedTaskId, TaskNotFound, TaskExpired, NotStorable, IdempotencyKeyReused, LimitExceeded)
"""Of these the message goes out. What a tool's own code runs into (a step that failed, a journal that does not fit)
never comes this way: it ends the task, and the task carries it."""


_refusals = Refusals()


def to_mcp(error: PerdureError) -> MCPError:
    """The protocol error that a client hears for `error`. What is not meant for clients is a bare internal error."""
    if isinstance(error, _CALLERS_FAULT):
        return MCPError(INVALID_PARAMS, str(error))
    if isinstance(error, StoreUnavailable | Refused):
        if isinstance(error, Refused):  # of the other the store itself says when it begins and ends
            _refusals.note(str(error), error.owner)
        return MCPError(UNAVAILABLE, str(error), {"retryAfterMs": error.retry_after_ms})
    return MCPError(INTERNAL_ERROR, "Internal error")


class _Translated:
    # A class, since each request enters it: a generator as a context costs three times as much.

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, PerdureError):
            raise to_mcp(error) from error


translated = _Translated()
"""A context that turns errors of ours that leave it into protocol errors."""


def missing_extension(message: str = f"Missing required client capability: {EXTENSION}") -> MCPError:
    """-32021 for a request that needs the Tasks extension and did not declare it."""
    return missing_capability({"extensions": {EXTENSION: {}}}, message)


def out_of_time(seconds: float, *, kept: bool) -> MCPError:
    """-32021 for a call that would have had to become a task by now, of a client that did not declare the extension.

    `kept`: the work goes on, for a client that comes back with its idempotency key.
    """
    return missing_extension(
        f"The tool did not finish within {seconds:g} s, and the client did not declare the tasks extension "
        f"({EXTENSION}), with which it could wait"
        + ("; it goes on: make the same call again, with the same idempotency key" if kept else "")
    )
