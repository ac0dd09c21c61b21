"""What an error of a request means for whoever waits: try again, and when; or give up, and with which error. Pure.

The SDK makes one `MCPError` of everything. -32000 is what it says of a lost connection and what servers say when they
have no room just now; both pass. What a server says in its own words ends the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from .errors import ClientError, Disconnected, Malformed, RequestRefused, TaskExpired, TaskLost

__all__ = ["NOT_BEGUN", "UNREACHABLE", "Fault", "has_no_room", "is_over", "judge", "may_have_arrived"]

UNREACHABLE: Final = "dev.perdure/unreachable"
"""In an error's data: our own transport (`http`) made it up, for a request to which there was no answer."""

NOT_BEGUN: Final = "dev.perdure/not-begun"
"""Likewise, of an answer by which the server, or a proxy, says that it has not begun with the request: 429."""

_PASSING: Final = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR})
"""-32700 is what the SDK makes of a response that broke off."""

_BARE_STATUS: Final = "Server returned an error response"
"""What the SDK says of an HTTP status without a JSON-RPC error, such as a proxy's 503."""

_EXPIRED: Final = "Task has expired"
"""Contract 6. It is told from an unknown id by this text alone: both are -32602."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What an error means. `ends`: the wait, with that error; None: try again, `after` so many seconds at least."""

    ends: ClientError | None = None
    after: float = 0.0


def judge(error: Exception, task_id: str) -> Fault:
    """What an error of a request about `task_id` means for who waits for the task."""
    if isinstance(error, ClientError):
        return Fault(error)
    if isinstance(error, ValidationError):
        return Fault(Malformed(task_id, "The server's answer is not what the protocol has"))
    if isinstance(error, TimeoutError):
        return Fault()
    if not isinstance(error, MCPError):
        return Fault(Disconnected(task_id))
    if error.code in _PASSING or (error.code == INTERNAL_ERROR and error.message == _BARE_STATUS):
        return Fault(after=_hint(error.data))
    if error.code == INVALID_PARAMS:
        return Fault(TaskExpired(task_id) if error.message == _EXPIRED else TaskLost(task_id))
    return Fault(RequestRefused(task_id, error.error))


def may_have_arrived(error: Exception) -> bool:
    """Whether a request that came to `error` may have been carried out, and nobody heard of it.

    What a server says in its own words, no room included, it says instead of carrying the request out.
    """
    if not isinstance(error, MCPError):
        return not isinstance(error, ClientError)
    if error.code == CONNECTION_CLOSED:
        return not has_no_room(error)
    return error.code in _PASSING or (error.code == INTERNAL_ERROR and error.message == _BARE_STATUS)


def has_no_room(error: Exception) -> bool:
    """Whether a server has no room just now: it says when to come again, or that it has not begun."""
    if not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
        return False
    return _says(error, NOT_BEGUN) or (_hint(error.data) > 0 and not _says(error, UNREACHABLE))


def _says(error: MCPError, mark: str) -> bool:
    data: object = error.data
    return isinstance(data, dict) and mark in cast("dict[str, object]", data)


def is_over(error: Exception) -> bool:
    """Whether it looks as if the session were over, so that no other request on it can come through.

    A server may say the same in the same words; but the SDK says it of every request from then on.
    """
    return (
        isinstance(error, MCPError)
        and error.code == CONNECTION_CLOSED
        and error.message == "Connection closed"
        and error.data is None
    )


def _hint(data: object) -> float:
    if not isinstance(data, dict):
        return 0.0
    wanted = cast("dict[str, object]", data).get("retryAfterMs")
    if not isinstance(wanted, int | float) or isinstance(wanted, bool):
        return 0.0
    return wanted / 1000 if 0 < wanted < 1e12 else 0.0
