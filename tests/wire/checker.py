"""The judge of every response in the wire tests: the JSON schemas, and the rules that they leave open.

The schemas say what must be there. They do not say what must be absent (a `result` on a working task passes), how a
time is written, or what the nested result carries; contract 2, 3 and 6 do, and those rules are here. A `History` adds
what only a sequence of responses can break.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.wire.envelopes import EXTENSION, RELATED_TASK, SERVER_INFO, VERSION

JSON = Any

SCHEMAS = Path(__file__).parent.parent / "data" / "schema"
_HEAD = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"}
_OPTIONAL = {"statusMessage", "pollIntervalMs"}
_OF_STATUS = {
    "working": set[str](),
    "input_required": {"inputRequests"},
    "completed": {"result"},
    "failed": {"error"},
    "cancelled": set[str](),
}
_TERMINAL = {"completed", "failed", "cancelled"}
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_HTTP = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
_ERRORS = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
_RESULTS = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
}


def http_status(code: int | None) -> int:
    """The HTTP status that belongs to an error code, or to a result (None)."""
    return 200 if code is None else _HTTP.get(code, 200)


class Violation(AssertionError):
    """A response that the contract does not allow."""


def need(holds: object, what: str) -> None:
    if not holds:
        raise Violation(what)


# -- schemas -----------------------------------------------------------------------------------------------------------


@cache
def _definitions(file: str) -> dict[str, JSON]:
    return json.loads((SCHEMAS / file).read_text("utf-8"))["$defs"]


@cache
def _validator(file: str, name: str) -> Draft202012Validator:
    schema = {"$ref": f"#/$defs/{name}", "$defs": _definitions(file)}
    return Draft202012Validator(schema)


def _conforms(value: JSON, file: str, name: str) -> None:
    for error in _validator(file, name).iter_errors(value):  # pyright: ignore[reportUnknownMemberType] - its stubs
        raise Violation(f"not a {name}: {error.json_path}: {error.message}")


def core(value: JSON, name: str) -> None:
    """`value` fits the definition `name` of the core schema."""
    _conforms(value, "mcp-2026-07-28.schema.json", name)


def tasks(value: JSON, name: str) -> None:
    """`value` fits the definition `name` of the extension's schema."""
    _conforms(value, "ext-tasks.schema.json", name)


# -- one response ------------------------------------------------------------------------------------------------------


def check(request: Mapping[str, JSON], status: int, body: JSON) -> None:
    """`body` is a lawful JSON-RPC response to `request`, and `status` the HTTP status that belongs to it."""
    need(isinstance(body, dict), "a response is an object")
    # JSON-RPC answers with a null id where the request's could not be read; the schema leaves the id out there.
    core({name: value for name, value in body.items() if (name, value) != ("id", None)}, "JSONRPCResponse")
    need(set(body) <= {"jsonrpc", "id", "result", "error"}, f"stray members: {sorted(body)}")
    need(RELATED_TASK not in set(_keys(body)), f"{RELATED_TASK} is of another revision")
    if "error" in body:
        _check_error(body, status)
        return
    need(status == http_status(None), f"a result with HTTP {status}")
    need(_same_id(body["id"], request["id"]), f"the id {request['id']!r} came back as {body['id']!r}")
    _check_result(request["method"], body["result"])


def _same_id(one: JSON, other: JSON) -> bool:
    return type(one) is type(other) and one == other


def _check_error(body: JSON, status: int) -> None:
    error = body["error"]
    need(set(error) <= {"code", "message", "data"}, f"stray members of an error: {sorted(error)}")
    code = error["code"]
    if code in _ERRORS:
        # Three of these definitions are of the whole response, the others of its error.
        definition = _ERRORS[code]
        whole = "jsonrpc" in _definitions("mcp-2026-07-28.schema.json")[definition].get("properties", {})
        core({"jsonrpc": "2.0", "error": error} if whole else error, definition)
    need(status == http_status(code), f"error {code} with HTTP {status}")
    need("Traceback" not in json.dumps(error), "internals in an error")


def _check_result(method: str, result: JSON) -> None:
    _check_identity(result)
    match method, result.get("resultType"):
        case "tools/call", "task":
            check_created(result)
        case _, "input_required":
            core(result, "InputRequiredResult")
            need(result.get("inputRequests"), "input is required, and nothing is asked")
        case "tasks/get", _:
            check_detailed(result)
        case (("tasks/update" | "tasks/cancel"), _):
            check_acknowledged(method, result)
        case _:
            need(result.get("resultType") == "complete", f"resultType {result.get('resultType')!r}")
            core(result, _RESULTS.get(method, "Result"))
            if method == "tools/call":
                _check_no_task_fields(result)


def _check_identity(result: JSON) -> None:
    info = result.get("_meta", {}).get(SERVER_INFO)
    need(isinstance(info, dict), "no server identity in _meta")
    core(info, "Implementation")


def _check_no_task_fields(result: JSON) -> None:
    strays = (_HEAD | _OPTIONAL | {"task", "inputRequests", "requestState", "result", "error"}) & set(result)
    need(not strays, f"an ordinary result with {sorted(strays)}")


def check_created(result: JSON) -> None:
    """A `CreateTaskResult`: flat, and nothing of what a later status brings."""
    tasks(result, "CreateTaskResult")
    need(result["resultType"] == "task", "the result type of a handle is task")
    _only(result, _HEAD | _OPTIONAL)
    _check_head(result)


def check_detailed(result: JSON) -> None:
    """A `GetTaskResult`: the fields of its status and no others."""
    tasks(result, "GetTaskResult")
    need(result["resultType"] == "complete", "tasks/get is complete, whatever the job is")
    check_task(result)


def check_task(task: JSON) -> None:
    """The fields of a `DetailedTask`, whatever carries it."""
    status = task["status"]
    own = _OF_STATUS[status]
    _only(task, _HEAD | _OPTIONAL | own)
    need(own <= set(task), f"{status} without {own}")
    _check_head(task)
    if status == "input_required":
        need(task["inputRequests"], "input is required, and nothing is asked")
    elif status == "completed":
        _check_nested(task)
    elif status == "failed":
        _check_failure(task)


def _check_nested(task: JSON) -> None:
    nested = task["result"]
    core(nested, "CallToolResult")
    need(nested["resultType"] == "complete", "the nested result has a result type of its own")
    _check_identity(nested)
    _check_no_task_fields(nested)
    outer = task.get("_meta", {}).get(SERVER_INFO)
    need(outer in (None, nested["_meta"][SERVER_INFO]), "two server identities in one response")


def _check_failure(task: JSON) -> None:
    error = task["error"]
    core(error, "Error")
    need(set(error) <= {"code", "message", "data"}, f"stray members of an error: {sorted(error)}")
    need(task.get("statusMessage"), "a failed task says why")


def check_acknowledged(method: str, result: JSON) -> None:
    """An empty result: no field of a task."""
    tasks(result, {"tasks/update": "UpdateTaskResult", "tasks/cancel": "CancelTaskResult"}[method])
    _only(result, set())


def _only(result: JSON, allowed: set[str]) -> None:
    strays = set(result) - allowed - {"resultType", "_meta"}
    need(not strays, f"{result.get('status', 'an acknowledgement')} with {sorted(strays)}")


def _check_head(task: JSON) -> None:
    for name in ("createdAt", "lastUpdatedAt"):
        need(_INSTANT.fullmatch(task[name]), f"{name} is not RFC 3339 in UTC with milliseconds: {task[name]}")
    need(instant(task["lastUpdatedAt"]) >= instant(task["createdAt"]), "updated before it was created")
    for name in ("ttlMs", "pollIntervalMs"):
        value = task.get(name)
        need(value is None or (type(value) is int and value > 0), f"{name} is {value!r}")
    need(task.get("pollIntervalMs", 1) is not None, "an absent interval is left out, never null")
    need(task.get("statusMessage", "") is not None, "an absent message is left out, never null")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _keys(value: JSON) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType] - any JSON
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType] - any JSON
            yield from _keys(inner)


# -- many responses ----------------------------------------------------------------------------------------------------


class History:
    """What one client has seen of its tasks, in the order of seeing."""

    def __init__(self) -> None:
        self._last: dict[str, JSON] = {}
        self._asked: dict[tuple[str, str], JSON] = {}

    def see(self, task: JSON) -> None:
        """A task as a response to this client showed it, after all that it showed before."""
        last = self._last.get(task["taskId"], task)
        need(task["createdAt"] == last["createdAt"], "a task is created once")
        need(instant(task["lastUpdatedAt"]) >= instant(last["lastUpdatedAt"]), "time runs backwards")
        if last["status"] in _TERMINAL:
            need(_agree(last, task), f"a terminal task changed: {last} -> {task}")
        elif task["lastUpdatedAt"] == last["lastUpdatedAt"] and task["status"] == last["status"]:
            need(task["ttlMs"] == last["ttlMs"], "a change without an update")
        for key, request in task.get("inputRequests", {}).items():
            known = self._asked.setdefault((task["taskId"], key), request)
            need(known == request, f"the key {key!r} stands for two questions")
        if task["resultType"] != "task" or last["status"] not in _TERMINAL:
            self._last[task["taskId"]] = task


def _agree(last: JSON, task: JSON) -> bool:
    """Whether they show the same task. A handle shows less: it has no result, also where the task is over."""
    known, shown = _bare(last), _bare(task)
    if "task" in (last["resultType"], task["resultType"]):
        known, shown = ({name: one[name] for name in known.keys() & shown.keys()} for one in (known, shown))
    return known == shown


def _bare(task: JSON) -> JSON:
    return {name: value for name, value in task.items() if name not in ("resultType", "_meta")}


def check_discovery(result: JSON) -> None:
    """What `server/discover` must say of the extension."""
    need(VERSION in result["supportedVersions"], "the version is not listed")
    need(result["capabilities"]["extensions"][EXTENSION] == {}, "the extension's settings are exactly empty")
    need("tasks" not in result["capabilities"], "capabilities.tasks is of another revision")
    need(type(result["ttlMs"]) is int, "no ttlMs")
    need(result["cacheScope"] in ("public", "private"), "no cacheScope")
