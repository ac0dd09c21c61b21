"""One HTTP POST, judged as a server of 2026-07-28 judges it, before anything is looked up.

The gateway stands in a server's place, so it refuses what the SDK's server refuses, with the same code, words and
status; the ladder of headers and versions is the SDK's own function. What only a backend can judge (whether the
parameters fit a tool's schema, and the `Mcp-Param-*` headers beside them) is left to it. Of these a header that comes
twice is refused here: on the way to a backend its copies would become one, and nobody could tell any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    methods,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from perdure.domain.model import JSONObject
from perdure.domain.names import EXTENSION
from perdure.wire.errors import missing_extension

from . import rawjson
from .answers import invalid_params

__all__ = ["Notification", "Refused", "Request", "check_name", "read", "require_tasks", "validate"]

_PASSED: Final = frozenset({MCP_PROTOCOL_VERSION_HEADER, MCP_METHOD_HEADER, "traceparent", "tracestate", "baggage"})
"""Headers that go on to a backend, beside `Mcp-Param-*`. What tells who asks is made anew for each backend, and
`Mcp-Name` is written by whoever knows the name there."""
_PARAM: Final = MCP_PARAM_HEADER_PREFIX.lower()
_NOT_ONE: Final = "Body must be a single JSON-RPC request or notification object"

_SPARE: Final = 100
"""Frames of the stack: a request is written to a backend some forty further down than it is read here."""

_SURROGATE: Final = "a lone surrogate"
_INFINITE: Final = "NaN or an infinity"


class Refused(Exception):
    """The request is none. `id`: whose error it is, None if that can't be told."""

    def __init__(self, id: int | str | None, error: MCPError) -> None:
        super().__init__(error.error.message)
        self.id = id
        self.error = error


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be served. `headers`: what of them goes on to a backend."""

    id: int | str
    method: str
    params: JSONObject
    headers: Mapping[str, str]
    name: str | None
    """`Mcp-Name` as it came, not decoded."""

    @property
    def meta(self) -> JSONObject:
        """The envelope."""
        return cast("JSONObject", self.params["_meta"])

    @property
    def declares_tasks(self) -> bool:
        """Whether this very request declared the Tasks extension."""
        capabilities: Any = self.meta[CLIENT_CAPABILITIES_META_KEY]
        extensions: Any = cast("dict[str, Any]", capabilities).get("extensions") if _is_map(capabilities) else None
        return _is_map(extensions) and EXTENSION in extensions

    def message(self, params: JSONObject) -> JSONObject:
        """The same request with other parameters."""
        return {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification: acknowledged, whatever it says."""

    method: str
    params: JSONObject


def read(headers: Iterable[tuple[str, str]], body: bytes) -> Request | Notification:
    """What a POST holds. `headers`: lower-case names, each as often as it came.

    Raises:
        Refused: nothing that may be served.
    """
    given = [*headers]
    folded = dict(given)
    decoded, carried = _parsed(body)
    if not _is_map(decoded) or decoded.get("jsonrpc") != "2.0" or not isinstance(decoded.get("method"), str):
        raise Refused(None, MCPError(INVALID_REQUEST, _NOT_ONE))
    params: Any = decoded.get("params")
    if params is not None and not _is_map(params):
        raise Refused(None, MCPError(INVALID_REQUEST, _NOT_ONE))
    if "id" not in decoded:
        return _notification(decoded["method"], cast("JSONObject", params or {}), folded)
    id: Any = decoded["id"]  # noqa: A001 - the word for it everywhere else
    if not isinstance(id, int | str) or isinstance(id, bool):
        raise Refused(None, MCPError(INVALID_REQUEST, _NOT_ONE))
    _check_headers(id, decoded, given, folded)
    if not carried or not _is_text(id):
        why = _SURROGATE if carried else _INFINITE
        raise Refused(id, MCPError(INVALID_PARAMS, f"The request holds a value that JSON text can't carry: {why}"))
    return Request(id, decoded["method"], cast("JSONObject", params), _passed(folded), folded.get(MCP_NAME_HEADER))


def _is_text(id: int | str) -> bool:
    try:
        str(id).encode()
    except (UnicodeError, ValueError):  # of more digits than Python writes
        return False
    return True


def _parsed(body: bytes) -> tuple[Any, bool]:
    """What is in a body, and whether it can be passed on: Python's parser, a server's, takes NaN and infinities."""
    try:
        return rawjson.decode(body, _SPARE), True
    except rawjson.TooDeep:
        raise Refused(None, MCPError(PARSE_ERROR, "Parse error")) from None
    except rawjson.NotJSON:
        pass
    try:
        return json.loads(body), False
    except (ValueError, RecursionError):
        raise Refused(None, MCPError(PARSE_ERROR, "Parse error")) from None


def _notification(method: str, params: JSONObject, headers: Mapping[str, str]) -> Notification:
    rejection = unsupported_protocol_version_rejection(headers.get(MCP_PROTOCOL_VERSION_HEADER, ""))
    if rejection is not None:
        raise _rejected(None, rejection)
    return Notification(method, params)


def _check_headers(id: int | str, decoded: JSONObject, given: list[tuple[str, str]], folded: dict[str, str]) -> None:
    none_twice = len(folded) == len(given)
    twice = None if none_twice else find_duplicated_routing_header(given) or _twice(given)
    if twice is not None:
        raise Refused(id, MCPError(HEADER_MISMATCH, f"{twice} header appears more than once"))
    verdict = classify_inbound_request(decoded, headers=folded)
    if isinstance(verdict, InboundLadderRejection):
        raise _rejected(id, verdict)


def _twice(given: list[tuple[str, str]]) -> str | None:
    seen: set[str] = set()
    for name, _ in given:
        if name.startswith(_PARAM):
            if name in seen:
                return name
            seen.add(name)
    return None


def _rejected(id: int | str | None, rejection: InboundLadderRejection) -> Refused:
    return Refused(id, MCPError(rejection.code, rejection.message, rejection.data))


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name in _PASSED or name.startswith(_PARAM)}


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def validate(request: Request) -> None:
    """Refuse parameters of one of the core's methods that do not fit its schema.

    Raises:
        MCPError: -32602.
    """
    try:
        methods.validate_client_request(request.method, LATEST_MODERN_VERSION, request.params)
    except ValidationError:
        raise invalid_params() from None


def require_tasks(request: Request) -> None:
    """Refuse a request about tasks of a client that did not declare the extension.

    Raises:
        MCPError: -32021.
    """
    if not request.declares_tasks:
        raise missing_extension()


def check_name(request: Request) -> None:
    """Refuse a request about a task whose `Mcp-Name` names another one. It may be left out.

    Raises:
        MCPError: -32020.
    """
    task_id = request.params.get("taskId")
    if request.name is None or not isinstance(task_id, str):
        return
    if not _says(request.name.strip(), task_id):
        raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")


def _says(header: str, text: str) -> bool:
    if header == text and not header.startswith("=?"):
        return True
    try:
        return decode_header_value(header) == text
    except ValueError:  # a byte within the encoding that no encoding has
        return False
