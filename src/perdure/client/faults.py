"""What an error of a request means for whoever waits: try again, and when; or give up, and with which error. Pure.

The SDK makes one `MCPError` of everything. -32000 is what it says of a lost connection and what servers say when they
have no room just now; both pass. What a server says in its own words ends the wait. What may be a bad moment (a proxy's
page during a deployment, an internal error) is borne for a while before it does.

Whether a call was answered is another matter: any error is an answer that the server sent itself. The SDK makes up
errors where it has none, without data and in a few set phrases, by which they are known; so does our transport
(`http`), which marks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
)
from pydantic import ValidationError

from .errors import AnswerTooLarge, ClientError, Disconnected, Malformed, RequestRefused, TaskExpired, TaskLost

__all__ = [
    "BORNE",
    "MADE_UP",
    "NOT_BEGUN",
    "TOO_LARGE",
    "UNREACHABLE",
    "Fault",
    "Grace",
    "has_no_room",
    "is_over",
    "is_too_large",
    "judge",
    "may_have_arrived",
    "retry_after",
]

UNREACHABLE: Final = "dev.perdure/unreachable"
"""In an error's data: our own transport (`http`) made it up, for a request to which there was no answer."""

NOT_BEGUN: Final = "dev.perdure/not-begun"
"""Likewise, of an answer by which the server, or a proxy, says that it has not begun with the request: 429."""

TOO_LARGE: Final = "dev.perdure/too-large"
"""Likewise, of an answer that is larger than the transport takes."""

BORNE: Final = 60.0
"""Seconds for which what may be a bad moment is borne, from its first sign on."""

_PASSING: Final = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR})
"""-32700 is what the SDK makes of a response that broke off."""

_BARE_STATUS: Final = "Server returned an error response"
"""What the SDK says of an HTTP status without a JSON-RPC error, such as a proxy's 503."""

_NO_ROUTE: Final = "Not Found"
"""What it says of a 404 without one, such as that of a proxy that has no server just now."""

_STRANGE_TYPE: Final = "Unexpected content type"
_NOTHING_FOLLOWS: Final = "server answered a request with 202"
_EVENT_TOO_LARGE: Final = "SSE stream failed: Server-sent event exceeded"

MADE_UP: Final = {
    CONNECTION_CLOSED: ("Connection closed", "SSE stream"),
    REQUEST_TIMEOUT: ("Request '",),
    PARSE_ERROR: ("Failed to parse",),
    INTERNAL_ERROR: (_BARE_STATUS,),
    INVALID_REQUEST: (_STRANGE_TYPE, _NOTHING_FOLLOWS),
}
"""How the SDK's own errors begin that stand for no answer, by their codes. They have no data."""

_EXPIRED: Final = "Task has expired"
"""Contract 6. It is told from an unknown id by this text alone: both are -32602."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What an error means. `ends`: the wait, with that error; None: try again, `after` so many seconds at least.

    `is_odd`: it may pass, so it ends the wait only if it is still so after `BORNE` seconds.
    """

    ends: ClientError | None = None
    after: float = 0.0
    is_odd: bool = False


class Grace:
    """What may be a bad moment, borne for as long as it may be one. For one wait, from one answer to the next."""

    def __init__(self) -> None:
        self._since: float | None = None

    def ended(self, fault: Fault, now: float) -> ClientError | None:
        """What ends the wait at `now`, which is seconds by any clock; None: it is to be tried again."""
        if not fault.is_odd:
            return fault.ends
        self._since = now if self._since is None else self._since
        return None if now - self._since < BORNE else fault.ends


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
    if is_too_large(error):
        return Fault(AnswerTooLarge(task_id, error.message))
    if error.code in _PASSING or (error.code == INTERNAL_ERROR and error.message == _BARE_STATUS):
        return Fault(after=retry_after(error))
    if error.code == INVALID_PARAMS:
        return Fault(TaskExpired(task_id) if error.message == _EXPIRED else TaskLost(task_id))
    return Fault(RequestRefused(task_id, error.error), is_odd=_may_pass(error))


def may_have_arrived(error: Exception) -> bool:
    """Whether a request that came to `error` may have been carried out, and nobody heard of it.

    What a server says in its own words, whatever the code, it says instead of a result.
    """
    if not isinstance(error, MCPError):
        return not isinstance(error, ClientError)
    return _says(error, UNREACHABLE) or _is_made_up(error)


def is_too_large(error: Exception) -> bool:
    """Whether there was an answer that is larger than the transport takes. Another one would be no smaller."""
    if not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
        return False
    return _says(error, TOO_LARGE) or (error.data is None and error.message.startswith(_EVENT_TOO_LARGE))


def _is_made_up(error: MCPError) -> bool:
    return error.data is None and error.message.startswith(MADE_UP.get(error.code, ()))


def _may_pass(error: MCPError) -> bool:
    if error.code == INTERNAL_ERROR:
        return True
    return (error.code == METHOD_NOT_FOUND and error.message == _NO_ROUTE) or _is_made_up(error)


def has_no_room(error: Exception) -> bool:
    """Whether a server has no room just now: it says when to come again, or that it has not begun."""
    if not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
        return False
    return _says(error, NOT_BEGUN) or (retry_after(error) > 0 and not _says(error, UNREACHABLE))


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


def retry_after(error: MCPError) -> float:
    """Seconds after which the server wants to be asked again; 0 where it does not say."""
    data: object = error.data
    if not isinstance(data, dict):
        return 0.0
    wanted = cast("dict[str, object]", data).get("retryAfterMs")
    if not isinstance(wanted, int | float) or isinstance(wanted, bool):
        return 0.0
    return wanted / 1000 if 0 < wanted < 1e12 else 0.0
