"""What the gateway says by itself: JSON-RPC responses, the HTTP status that goes with them, and its own faults.

A backend's errors pass unchanged. Those of the gateway itself carry `data.gateway` (true) and the backend that they
are about, so that whoever reads one knows which of the two has spoken. What it answers in a server's place (a method
that nobody has, a task that nobody may see) it says as a server would, in the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from perdure.domain.errors import MalformedTaskId, PerdureError, StoreUnavailable, TaskNotFound
from perdure.domain.model import JSONObject

from .faults import Fault

__all__ = [
    "UNAVAILABLE",
    "Answer",
    "failure",
    "invalid_params",
    "method_not_found",
    "passed",
    "refused_handle",
    "result",
    "success",
]

UNAVAILABLE: Final = -32000
"""Out of capacity, or somebody can't be reached: the same request may succeed after `data.retryAfterMs`."""

_SAID: Final = frozenset({200, *(status for status in HTTPStatus if status >= 400)})
"""Statuses that an error may have come with and that a server can send; a backend may make others up."""
_ABOUT_US: Final = frozenset({401, 403, 407})

RequestId = int | str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole JSON-RPC response, and the HTTP status and headers to send it with where it is no event of a stream."""

    message: JSONObject
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def result(id: RequestId, value: JSONObject) -> JSONObject:
    """A JSON-RPC response that is a result."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def success(id: RequestId, value: JSONObject) -> Answer:
    """The same, as an answer."""
    return Answer(result(id, value))


def failure(id: RequestId, error: MCPError | PerdureError | Fault) -> Answer:
    """The answer that tells of `error`."""
    if isinstance(error, Fault):
        return _fault(id, error)
    if isinstance(error, StoreUnavailable):
        wait = error.retry_after_ms
        data = {"gateway": True, "retryAfterMs": wait}
        return Answer(_error(id, UNAVAILABLE, str(error), data), 503, _retry_after(wait))
    if isinstance(error, TaskNotFound | MalformedTaskId):
        error = MCPError(INVALID_PARAMS, str(error))
    elif isinstance(error, PerdureError):
        error = MCPError(INTERNAL_ERROR, "Internal error", {"gateway": True})
    said = error.error
    return Answer(_error(id, said.code, said.message, said.data), ERROR_CODE_HTTP_STATUS.get(said.code, 200))


def passed(message: JSONObject, status: int) -> Answer:
    """A backend's response.

    A result is one whatever status it came with: under 503 a client would take a task for one that was not begun. That
    the backend does not let the gateway in is no word to the client, whose token is good here.
    """
    error = message.get("error")
    if not isinstance(error, dict):
        return Answer(message)
    if status not in _SAID or status in _ABOUT_US:
        code = error.get("code")
        status = ERROR_CODE_HTTP_STATUS.get(code, 200) if isinstance(code, int) else 200
    return Answer(message, status)


def _fault(id: RequestId, fault: Fault) -> Answer:
    headers = {} if fault.retry_after_ms is None else _retry_after(fault.retry_after_ms)
    return Answer({"jsonrpc": "2.0", "id": id, "error": fault.error()}, fault.status, headers)


def _retry_after(milliseconds: int) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(milliseconds / 1000)))}


def _error(id: RequestId, code: int, message: str, data: Any = None) -> JSONObject:
    error: JSONObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def method_not_found(method: str) -> MCPError:
    """-32601, as the SDK says it."""
    return MCPError(METHOD_NOT_FOUND, "Method not found", method)


def invalid_params() -> MCPError:
    """-32602 for parameters that do not fit their schema, as the SDK says it."""
    return MCPError(INVALID_PARAMS, "Invalid request parameters", "")


def refused_handle(backend: str) -> MCPError:
    """-32603 for a task handle that may not be passed on. What was wrong with it is in the log."""
    return MCPError(
        INTERNAL_ERROR,
        "The backend answered with a task that can't be passed on",
        {"gateway": True, "backend": backend},
    )
