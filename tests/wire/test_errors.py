"""Contract 6: which error, with which code and HTTP status (the checker compares those), and what it never says."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from perdure import (
    AlreadySettled,
    ConfigurationError,
    JournalMismatch,
    LimitExceeded,
    Owner,
    PerdureError,
    StepFailed,
    StoreUnavailable,
    Tasks,
)
from perdure.domain.errors import BacklogFull, IdempotencyKeyReused
from perdure.wire.errors import to_mcp
from tests.wire.envelopes import JSON
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
UNKNOWN = "tsk_" + "a" * 32
MALFORMED: list[str] = [
    "",
    " ",
    "tsk_",
    "tsk_" + "a" * 31,
    "tsk_" + "a" * 33,
    "tsk_" + "1" * 32,
    "TSK_" + "a" * 32,
    "tsk_" + "A" * 32,
    f" {UNKNOWN}",
    f"{UNKNOWN} ",
    f"{UNKNOWN}\n",
    f"{UNKNOWN}\x00",
    "tsk_" + "а" * 32,  # noqa: RUF001 - Cyrillic on purpose
    "tsk_toolongtag_" + "a" * 32,
    "786512e2-9e0d-44bd-8f29-789f320fe840",
    "../../etc/passwd",
    "x" * 100_000,
    "😀",
]


async def test_a_malformed_id_is_said_to_be_one(scene: Stage) -> None:
    for method in METHODS:
        for task_id in MALFORMED:
            extra = {"mcp-name": ""} if len(task_id) > 1000 else None
            reply = await scene.client.request(method, {"taskId": task_id, "inputResponses": {}}, extra=extra)
            assert (reply.code, reply.error["message"]) == (-32602, "Malformed task id"), task_id


async def test_an_id_with_a_placement_tag_is_well_formed(scene: Stage) -> None:
    """A later version may mint those; this one knows of none."""
    reply = await scene.client.get("tsk_eu1_" + "a" * 32)
    assert (reply.code, reply.error["message"]) == (-32602, "Task not found")


async def test_an_unknown_id_is_not_found_by_any_method(scene: Stage) -> None:
    for method in METHODS:
        reply = await scene.client.request(method, {"taskId": UNKNOWN, "inputResponses": {"form": 1}})
        assert reply.error == {"code": -32602, "message": "Task not found"}


async def test_parameters_of_the_wrong_type_are_invalid(scene: Stage) -> None:
    values: list[JSON] = [None, 5, 1.5, True, [], {}, [UNKNOWN]]
    for method in METHODS:
        for value in values:
            params: JSON = {"taskId": value, "inputResponses": {}}
            assert (await scene.client.request(method, params)).code == -32602
        assert (await scene.client.request(method, {"inputResponses": {}})).code == -32602
        assert (await scene.client.request(method, {"task_id": UNKNOWN, "inputResponses": {}})).code == -32602


async def test_input_responses_must_be_a_map(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    values: list[JSON] = [None, [], "text", 5, True]
    for value in values:
        assert (await scene.client.update(task_id, value)).code == -32602
    assert (await scene.client.request("tasks/update", {"taskId": task_id})).code == -32602
    assert (await scene.client.request("tasks/update", {"taskId": task_id, "input_responses": {}})).code == -32602


async def test_a_tool_that_is_none_of_ours_takes_all_the_nesting_that_the_sdk_takes(scene: Stage) -> None:
    """Depth is a limit of what is stored; what JSON text can't carry is refused everywhere."""
    scene.mcp.tool()(brackets)
    deep, nan = nested(150), float("nan")
    assert (await scene.client.call("brackets", {"value": deep}, capabilities={})).text == "150"
    assert (await scene.client.call("brackets", {"value": [deep] * 3})).text == "451"
    wrong: list[JSON] = [nan, [nan], nested(150, nan), nested(150, "\ud800"), {"\ud800": nested(150)}, [deep, -nan]]
    for value in wrong:
        assert (await scene.client.call("brackets", {"value": value})).code == -32602
    assert (await scene.client.call("hello", {"name": "you", "more": deep})).code == -32602
    refused = await scene.client.request("tasks/get", {"taskId": UNKNOWN, "more": deep})
    assert refused.error["message"] == "The parameters nest deeper than 100 levels, which is the limit (depth)"


@pytest.mark.parametrize("levels", [90, 150, 500])
async def test_what_is_wrong_with_a_request_is_told_apart(scene: Stage, levels: int) -> None:
    """Also where the value is deeper than Python's own encoder goes. What is too deep is looked at no further."""
    too_deep = "The parameters nest deeper than 100 levels, which is the limit (depth)"
    wrong = {"NaN or an infinity": float("nan"), "a lone surrogate": "\ud800"}
    for said, inside in wrong.items():
        refused = await scene.client.call("hello", {"name": "you", "more": nested(levels, inside)})
        assert refused.code == -32602
        assert refused.error["message"].endswith(said if levels < 100 else too_deep)


async def test_what_is_wrong_with_a_request_for_others_is_told_apart_too(scene: Stage) -> None:
    scene.mcp.tool()(brackets)
    deep, many = nested(300), [0] * 300_000
    wrong: dict[str, list[JSON]] = {
        "NaN or an infinity": [["NaN", float("nan")], [deep, -float("nan")]],
        "a lone surrogate": [[deep, {"\ud800": 1}], [deep, "\udc00"]],
        "more than 250000 values at so many levels": [[deep, many]],
    }
    for said, values in wrong.items():
        for value in values:
            refused = await scene.client.call("brackets", {"value": value})
            assert refused.code == -32602
            assert refused.error["message"].endswith(said)


async def test_a_request_for_others_may_hold_whatever_can_be_carried(scene: Stage) -> None:
    """However much it is, and whatever the words in it; but nobody looks through so much that is also so deep."""
    scene.mcp.tool()(brackets)
    deep, many = nested(300), [0] * 300_000
    fine: list[JSON] = [deep, many, ["NaN", "Infinity"], ["NaN", nested(150)], [deep, "é", 1.5, {"é": deep}]]
    for value in fine:
        assert (await scene.client.call("brackets", {"value": value})).text == f"{json.dumps(value).count('[')}"


def nested(depth: int, inside: JSON = None) -> JSON:
    value: JSON = [] if inside is None else [inside]
    for _ in range(depth - 1):
        value = [value]
    return value


def brackets(value: Any) -> str:
    return f"{json.dumps(value).count('[')}"


@pytest.mark.parametrize("kind", [RuntimeError, ConfigurationError])
async def test_what_nobody_foresaw_is_an_internal_error_without_internals(
    tmp_path: Path, tools: Tools, kind: type[Exception]
) -> None:
    def identify(_: object) -> Owner:
        raise kind("secret: /etc/perdure")

    async with stage(tmp_path, tools.declare, identify=identify) as up:
        for method in METHODS:
            reply = await up.client.request(method, {"taskId": UNKNOWN, "inputResponses": {}})
            assert reply.code == -32603
            assert "secret" not in reply.raw.decode()
        called = await up.client.call("hello", {"name": "you"})
        assert called.code == -32603
        assert "secret" not in called.raw.decode()


async def test_a_store_that_is_away_says_when_to_try_again(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    await scene.store.close()
    for reply in (
        await scene.client.get(task_id),
        await scene.client.update(task_id, {}),
        await scene.client.cancel(task_id),
        await scene.client.call("gated"),
        await scene.client.call("hello", {"name": "you"}, capabilities={}),
    ):
        assert reply.code == -32000
        assert reply.error["data"]["retryAfterMs"] > 0
        assert str(scene.database) not in reply.raw.decode()
    await scene.store.open()
    assert (await scene.client.get(task_id)).result["taskId"] == task_id


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (BacklogFull("full", retry_after_ms=70), -32000, {"retryAfterMs": 70}),
        (StoreUnavailable(retry_after_ms=70), -32000, {"retryAfterMs": 70}),
        (IdempotencyKeyReused(), -32602, None),
        (LimitExceeded("too long"), -32602, None),
    ],
)
def test_what_the_caller_can_mend_or_wait_for_is_said(error: PerdureError, code: int, data: JSON) -> None:
    told = to_mcp(error).error
    assert (told.code, told.message, told.data) == (code, str(error), data)


@pytest.mark.parametrize(
    "error", [JournalMismatch("3", "secret", "secret"), StepFailed("secret", "secret", "secret"), AlreadySettled()]
)
def test_what_only_a_tool_can_run_into_is_none_of_the_callers_business(error: PerdureError) -> None:
    told = to_mcp(error).error
    assert (told.code, told.message, told.data) == (-32603, "Internal error", None)


async def test_errors_inform_and_carry_no_paths_or_sql(scene: Stage) -> None:
    for reply in (
        await scene.client.get(UNKNOWN),
        await scene.client.get("x"),
        await scene.client.call("must", capabilities={}),
    ):
        message = reply.error["message"]
        assert message
        assert not any(word in message for word in ("sqlite", "SELECT", str(scene.database.parent)))


async def test_an_error_of_a_tool_goes_out_as_it_is_when_there_is_no_task(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def fails() -> None:
            raise MCPError(-31999, "exactly this", [1, {"two": None}])

    async with stage(tmp_path, declare) as up:
        expected: JSON = {"code": -31999, "message": "exactly this", "data": [1, {"two": None}]}
        assert (await up.client.call("fails", capabilities={})).error == expected
        assert (await up.client.finish("fails"))["error"] == expected
