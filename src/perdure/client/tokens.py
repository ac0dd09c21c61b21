"""What it means for a request that its token could not be had: `HTTP(auth=…)` is the user's, and asks an issuer. Pure.

An issuer may be away for a moment, as any server may, or say that it gives this client no token any more. The SDK's
providers make one exception of both, whose text begins with the status.

What an exception says goes no further: it quotes the issuer, whose answer may hold anything.
"""

from __future__ import annotations

import re
from typing import Any, Final

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST

from .faults import NOT_BEGUN, UNREACHABLE

__all__ = ["BEGINNINGS", "MAY_PASS", "missing"]

BEGINNINGS: Final = (
    "Token exchange failed (",
    "Registration failed: ",
    "Protected resource metadata request failed: HTTP ",
)
"""What the SDK says before an issuer's status."""

MAY_PASS: Final = ("No authorization server metadata", "Invalid token response")
"""What it says of a page in place of an answer, among others. Whatever else it says, it has judged by itself."""

_STATUS: Final = re.compile(f"(?:{'|'.join(map(re.escape, BEGINNINGS))})([0-9]{{3}})")
_FOR_GOOD: Final = frozenset({400, 401, 403})
"""RFC 6749, 5.2, has the first two for all that is wrong with a grant, or with who presents it."""
_TOO_MANY: Final = 429

_CODE: Final = re.compile(
    '"error" *: *"(invalid_(?:request|client|grant|scope)|unauthorized_client|unsupported_grant_type)"'
)
"""The same section's codes: words that hold nobody's secret."""


def missing(error: Exception, *, begun: bool) -> dict[str, Any]:
    """The error of JSON-RPC that stands for the answer to a request whose token came to `error`.

    `begun`: the server may have begun with the request all the same, as with an `auth` that raises after the answer.
    """
    mark = {UNREACHABLE if begun else NOT_BEGUN: True}
    status, said = _status(error), type(error).__name__
    if status is not None:
        code = _CODE.search(str(error)) if isinstance(error, OAuthFlowError) else None
        said = f"its issuer says HTTP status {status}{f', {code[1]}' if code else ''}"
    return {
        "code": _code(error, status),
        "message": f"The server wants a token, and there is none: {said}",
        "data": mark,
    }


def _status(error: Exception) -> int | None:
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code
    found = _STATUS.match(str(error)) if isinstance(error, OAuthFlowError) else None
    return None if found is None else int(found[1])


def _code(error: Exception, status: int | None) -> int:
    """By which a wait goes on, is borne for a while, or ends (`faults`)."""
    if isinstance(error, httpx2.TransportError):
        return CONNECTION_CLOSED
    if status is None:
        ends = isinstance(error, OAuthFlowError) and not str(error).startswith(MAY_PASS)
        return INVALID_REQUEST if ends else INTERNAL_ERROR
    if status == _TOO_MANY or status >= 500:
        return CONNECTION_CLOSED
    return INVALID_REQUEST if status in _FOR_GOOD else INTERNAL_ERROR
