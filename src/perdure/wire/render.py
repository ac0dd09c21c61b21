"""Tasks as clients read them: domain values to wire dictionaries. Pure.

Only the fields of the status, never those of another; `ttlMs` always, `null` meaning unlimited; times in UTC, RFC 3339
with milliseconds and `Z`; `resultType` tells of the response and `status` of the job (contract 2 and 3).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from mcp_types import SERVER_INFO_META_KEY

from perdure.domain.model import Failure, JSONObject, Status, Task
from perdure.tools.kinds import kind_of

__all__ = ["acknowledged", "created", "detailed", "input_requests", "snapshot", "tool_result"]

Wire = dict[str, Any]

_COMPLETE: Final = "complete"


def acknowledged() -> Wire:
    """The empty result of `tasks/update` and `tasks/cancel`."""
    return {"resultType": _COMPLETE}


def created(task: Task) -> Wire:
    """A `CreateTaskResult`: flat, and without anything that a later status brings."""
    return {"resultType": "task", **_head(task, task.poll_ms)}


def detailed(task: Task, kinds: frozenset[str], server_info: JSONObject, poll_ms: int | None) -> Wire:
    """A `DetailedTask` as `tasks/get` returns it, for a client that can give input of `kinds` and polls at `poll_ms`.

    A task whose open questions this client can't answer is `working` to it: the status `input_required` promises
    questions.
    """
    # The SDK would put the identity into `_meta` as well, but a deep copy of it, on every poll.
    return {
        "resultType": _COMPLETE,
        **snapshot(task, kinds, server_info, poll_ms),
        "_meta": {SERVER_INFO_META_KEY: server_info},
    }


def snapshot(task: Task, kinds: frozenset[str], server_info: JSONObject, poll_ms: int | None) -> Wire:
    """The same without what makes it a response: what `notifications/tasks` says of the task."""
    wire = _head(task, poll_ms)
    match task.status:
        case Status.INPUT_REQUIRED:
            requests = input_requests(task, kinds)
            wire |= {"inputRequests": requests} if requests else {"status": Status.WORKING.value}
        case Status.COMPLETED:
            wire["result"] = tool_result(task, server_info)
        case Status.FAILED:
            wire["error"] = _error(task.error)
        case _:
            pass
    return wire


def input_requests(task: Task, kinds: frozenset[str]) -> dict[str, JSONObject]:
    """The outstanding questions that a client of `kinds` can answer, in the order of asking."""
    return {question.key: question.request for question in task.inputs if kind_of(question.request) in kinds}


def tool_result(task: Task, server_info: JSONObject) -> Wire:
    """The nested result of a completed task: what the call would have returned, with an envelope of its own."""
    result: Wire = dict(task.result or {})
    meta: Wire = dict(result.get("_meta") or {})
    # A tool's own word wins, and null is none: as the SDK stamps ordinary results.
    if meta.get(SERVER_INFO_META_KEY) is None:
        meta[SERVER_INFO_META_KEY] = server_info
    return result | {"resultType": _COMPLETE, "_meta": meta}


def _head(task: Task, poll_ms: int | None) -> Wire:
    head: Wire = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": _instant(task.created_at),
        "lastUpdatedAt": _instant(task.updated_at),
        "ttlMs": task.ttl_ms,
    }
    if task.message is not None:
        head["statusMessage"] = task.message
    if poll_ms is not None:
        head["pollIntervalMs"] = poll_ms
    return head


def _error(error: Failure | None) -> Wire:
    if error is None:
        return {}
    wire: Wire = {"code": error.code, "message": error.message}
    return wire if error.data is None else wire | {"data": error.data}


# A task is asked for again and again while its instants stay as they are, and writing them is a third of rendering it.
@lru_cache(maxsize=4096)
def _instant(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
