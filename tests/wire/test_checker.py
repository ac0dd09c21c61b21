"""The judge judged: a check that can't fail proves nothing."""

import copy
from typing import Any

import pytest

from tests.wire import checker
from tests.wire.checker import History, Violation
from tests.wire.envelopes import JSON, SERVER_INFO

IDENTITY: JSON = {SERVER_INFO: {"name": "wire", "version": "1.0"}}
HEAD: JSON = {
    "taskId": "tsk",
    "createdAt": "2026-11-29T10:30:00.000Z",
    "lastUpdatedAt": "2026-11-29T10:30:00.001Z",
    "ttlMs": None,
    "pollIntervalMs": 1000,
}
QUESTION: JSON = {"method": "roots/list", "params": {}}
NESTED: JSON = {"resultType": "complete", "content": [], "_meta": IDENTITY}
OWN: JSON = {
    "working": {},
    "input_required": {"inputRequests": {"roots": QUESTION}},
    "completed": {"result": NESTED},
    "failed": {"error": {"code": -32603, "message": "no"}, "statusMessage": "no"},
    "cancelled": {},
}


def task(status: str, **changes: Any) -> JSON:
    whole = {"resultType": "complete", "_meta": IDENTITY, "status": status, **HEAD, **OWN[status], **changes}
    return {name: copy.deepcopy(value) for name, value in whole.items() if value is not ...}


def judge(method: str, result: JSON, *, status: int = 200, id: JSON = 1) -> None:
    checker.check({"method": method, "id": 1}, status, {"jsonrpc": "2.0", "id": id, "result": result})


def judge_error(status: int, **error: Any) -> None:
    checker.check({"method": "tasks/get", "id": 1}, status, {"jsonrpc": "2.0", "id": 1, "error": error})


@pytest.mark.parametrize("status", OWN)
def test_a_lawful_task_passes(status: str) -> None:
    judge("tasks/get", task(status))


def test_a_lawful_handle_passes() -> None:
    judge("tools/call", task("working", resultType="task"))


@pytest.mark.parametrize("status", OWN)
def test_no_status_may_lack_its_own_fields_or_have_those_of_another(status: str) -> None:
    for other, fields in OWN.items():
        for name, value in fields.items():
            if name == "statusMessage" or other == status:
                continue
            with pytest.raises(Violation):
                judge("tasks/get", task(status, **{name: value}))
    for name in OWN[status]:
        with pytest.raises(Violation):
            judge("tasks/get", task(status, **{name: ...}))


@pytest.mark.parametrize("missing", ["taskId", "ttlMs", "status", "createdAt", "lastUpdatedAt", "resultType", "_meta"])
def test_nothing_may_be_missing_from_the_head(missing: str) -> None:
    whole = task("working")
    del whole[missing]
    with pytest.raises((Violation, KeyError)):
        judge("tasks/get", whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"ttlMs": 0},
        {"ttlMs": -1},
        {"ttlMs": 1.5},
        {"ttlMs": True},
        {"ttlMs": "60000"},
        {"pollIntervalMs": None},
        {"pollIntervalMs": 0},
        {"statusMessage": None},
        {"resultType": "task"},
        {"status": "done"},
        {"task": {}},
        {"requestState": "x"},
        {"_meta": {}},
        {"_meta": {**IDENTITY, "io.modelcontextprotocol/related-task": {"taskId": "x"}}},
        {"createdAt": "2026-11-29T10:30:00Z"},
        {"createdAt": "2026-11-29T10:30:00.000+00:00"},
        {"createdAt": "2026-11-29 10:30:00.000Z"},
        {"createdAt": "2026-11-29T10:30:00.000000Z"},
        {"createdAt": 1_700_000_000_000},
        {"createdAt": "2026-13-29T10:30:00.000Z"},
        {"lastUpdatedAt": "2026-11-29T10:29:59.999Z"},
    ],
    ids=repr,
)
def test_the_head_of_a_task_is_strict(changes: dict[str, Any]) -> None:
    with pytest.raises((Violation, ValueError)):
        judge("tasks/get", task("working") | changes)


@pytest.mark.parametrize(
    "nested",
    [
        {},
        NESTED | {"resultType": "task"},
        NESTED | {"content": None},
        NESTED | {"_meta": {}},
        NESTED | {"taskId": "tsk"},
        NESTED | {"_meta": IDENTITY | {"io.modelcontextprotocol/related-task": {}}},
        NESTED | {"_meta": {SERVER_INFO: {"name": "another", "version": "1.0"}}},
    ],
    ids=repr,
)
def test_the_nested_result_is_strict(nested: JSON) -> None:
    with pytest.raises(Violation):
        judge("tasks/get", task("completed", result=nested))


@pytest.mark.parametrize("requests", [{}, None, {"key": {"method": "no/such"}}, {"key": None}], ids=repr)
def test_questions_are_strict(requests: JSON) -> None:
    for method in ("tasks/get", "tools/call"):
        with pytest.raises(Violation):
            judge(method, task("input_required", inputRequests=requests))


@pytest.mark.parametrize("status", [status for status in OWN if OWN[status]])
def test_a_handle_has_nothing_that_a_later_status_brings(status: str) -> None:
    for name, value in OWN[status].items():
        if name != "statusMessage":
            with pytest.raises(Violation):
                judge("tools/call", task("working", resultType="task", **{name: value}))


@pytest.mark.parametrize("method", ["tasks/update", "tasks/cancel"])
def test_an_acknowledgement_is_empty(method: str) -> None:
    judge(method, {"resultType": "complete", "_meta": IDENTITY})
    for result in (
        task("working"),
        {"resultType": "complete", "_meta": IDENTITY, "taskId": "tsk"},
        {"_meta": IDENTITY},
    ):
        with pytest.raises(Violation):
            judge(method, result)


def test_an_ordinary_result_has_nothing_of_a_task() -> None:
    judge("tools/call", NESTED)
    strays: JSON = {"taskId": "tsk", "ttlMs": 1, "status": "working", "task": {}, "requestState": "x"}
    for name, value in strays.items():
        with pytest.raises(Violation):
            judge("tools/call", NESTED | {name: value})


def test_ids_keep_their_type() -> None:
    for other in ("1", 1.0, True, None, 2):
        with pytest.raises(Violation):
            judge("tasks/get", task("working"), id=other)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, {"code": -32602, "message": "no"}),
        (404, {"code": -32602, "message": "no"}),
        (400, {"code": -32603, "message": "no"}),
        (400, {"code": -32021, "message": "no"}),
        (400, {"code": -32021, "message": "no", "data": {}}),
        (400, {"code": -32022, "message": "no", "data": {"supported": []}}),
        (400, {"code": -32602, "message": None}),
        (400, {"code": "-32602", "message": "no"}),
        (400, {"code": -32602, "message": "no", "reason": "none"}),
        (200, {"code": -32603, "message": "Traceback (most recent call last)"}),
    ],
    ids=repr,
)
def test_errors_are_strict(status: int, error: dict[str, Any]) -> None:
    with pytest.raises(Violation):
        judge_error(status, **error)


def test_a_result_is_http_200() -> None:
    with pytest.raises(Violation):
        judge("tasks/get", task("working"), status=400)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (task("working"), task("working", createdAt="2026-11-29T10:29:00.000Z")),
        (task("working"), task("working", lastUpdatedAt="2026-11-29T10:30:00.000Z")),
        (task("working"), task("working", ttlMs=5)),
        (task("completed"), task("working", lastUpdatedAt="2026-11-29T10:31:00.000Z")),
        (task("completed"), task("completed", lastUpdatedAt="2026-11-29T10:31:00.000Z")),
        (task("cancelled"), task("completed")),
        (
            task("input_required"),
            task(
                "input_required", inputRequests={"roots": {"method": "roots/list", "params": {"_meta": {"other": 1}}}}
            ),
        ),
    ],
)
def test_a_history_tells_what_no_single_response_does(then: JSON, now: JSON) -> None:
    history = History()
    history.see(then)
    history.see(copy.deepcopy(then))
    with pytest.raises(Violation):
        history.see(now)
