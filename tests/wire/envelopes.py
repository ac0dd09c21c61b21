"""Requests as contract 8 says that clients make them, as plain data, so that a test can break any part of one."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.shared.inbound import encode_header_value

JSON = Any
Headers = dict[str, str]

VERSION: Final = "2026-07-28"
EXTENSION: Final = "io.modelcontextprotocol/tasks"

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

# What a client declares. `EVERYTHING` can answer whatever a task may ask.
NOTHING: Final[dict[str, JSON]] = {}
TASKS: Final[dict[str, JSON]] = {"extensions": {EXTENSION: {}}}
INPUT: Final[dict[str, JSON]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
EVERYTHING: Final[dict[str, JSON]] = TASKS | INPUT

# The parameter that `Mcp-Name` repeats, by method.
NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


def meta(capabilities: JSON = EVERYTHING, version: JSON = VERSION) -> dict[str, JSON]:
    """The `_meta` of a request."""
    return {
        PROTOCOL_VERSION: version,
        CLIENT_INFO: {"name": "raw", "version": "0"},
        CLIENT_CAPABILITIES: capabilities,
    }


def envelope(
    method: str, params: Mapping[str, JSON] | None = None, *, id: JSON = 1, capabilities: JSON = EVERYTHING
) -> dict[str, JSON]:
    """A whole JSON-RPC request; a `_meta` in `params` wins."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta(capabilities), **(params or {})}}


def member(value: JSON, name: str) -> JSON:
    """A member of what may be no object at all."""
    return cast("dict[str, JSON]", value).get(name) if isinstance(value, dict) else None


def headers(body: JSON) -> Headers:
    """The headers that go with a body, as far as it has what they repeat."""
    found = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
    }
    method = member(body, "method")
    if not isinstance(method, str):
        return found
    if method.isascii() and method.isprintable() and method == method.strip():
        found["mcp-method"] = method
    name = member(member(body, "params"), NAMED.get(method, ""))
    if isinstance(name, str) and not any("\ud800" <= char <= "\udfff" for char in name):
        found["mcp-name"] = encode_header_value(name)
    return found
