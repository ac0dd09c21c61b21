"""The ids of tasks and subscriptions in what passes. Pure.

An id of a backend's is of no use to a client, and another backend may have the same. So wherever the protocol has a
task id (a handle, a snapshot, a notification, `_meta`) there is one of the gateway's on the client's side and one of
the backend's on the other. The nested `result` of a task is the tool's own and is not looked into. An error may name
the id within its text: it is replaced there as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from perdure.domain.model import JSON, JSONObject

__all__ = ["RELATED", "error", "named", "notification", "snapshot"]

RELATED: Final = "io.modelcontextprotocol/related-task"
"""A name in `_meta` that the revision before has for a task id, and that some servers still write."""
_DEPTH: Final = 50
_TELLING: Final = 8
"""Characters from which on an id is none but an id wherever it stands."""


def named(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """`headers` with `Mcp-Name`, encoded where it must be."""
    return {**headers, MCP_NAME_HEADER: encode_header_value(name)}


def snapshot(value: JSONObject, theirs: str, ours: str) -> JSONObject:
    """A result with the gateway's id in place of the backend's."""
    changed = {**value, "taskId": ours} if value.get("taskId") == theirs else value
    meta = changed.get("_meta")
    if isinstance(meta, dict) and RELATED in meta:
        return {**changed, "_meta": _related(meta, theirs, ours)}
    return changed


def _related(meta: JSONObject, theirs: str, ours: str) -> JSON:
    related = meta[RELATED]
    if isinstance(related, dict) and related.get("taskId") == theirs:
        return {**meta, RELATED: {**related, "taskId": ours}}
    return {name: value for name, value in meta.items() if name != RELATED}


def error(value: JSONObject, theirs: str, ours: str) -> JSONObject:
    """A JSON-RPC error in whose texts the gateway's id stands for the backend's.

    What lies deeper than anybody means is left out, since nobody looks there.
    """
    return cast("JSONObject", _replaced(value, theirs, ours, _DEPTH))


def _replaced(value: JSON, theirs: str, ours: str, depth: int) -> JSON:
    if isinstance(value, str):
        # A short one may be a part of any word.
        return value.replace(theirs, ours) if len(theirs) >= _TELLING else ours if value == theirs else value
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        return None
    if isinstance(value, list):
        return [_replaced(each, theirs, ours, depth - 1) for each in value]
    return {name: _replaced(each, theirs, ours, depth - 1) for name, each in value.items()}


def notification(message: JSONObject, subscription: int | str, theirs: str | None, ours: str | None) -> JSONObject:
    """A notification of a backend's stream as one of the client's: another subscription and, if it has one, task."""
    params = cast("JSONObject", message.get("params") or {})
    if theirs is not None and ours is not None:
        params = snapshot(params, theirs, ours)
    meta = params.get("_meta")
    known = meta if isinstance(meta, dict) else {}
    return {**message, "params": {**params, "_meta": {**known, SUBSCRIPTION_ID_META_KEY: subscription}}}
