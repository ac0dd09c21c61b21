"""Contract 6 and 8: `Mcp-Name` on the task methods is checked by us, the other routing headers by the SDK."""

import base64
import json

from tests.wire.envelopes import EVERYTHING, JSON, envelope, headers
from tests.wire.support import Stage
from tests.wire.tools import FORM

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
UNKNOWN = "tsk_" + "a" * 32


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def test_a_name_that_is_the_task_id_is_accepted_plain_or_encoded(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    for name in (task_id, f" \t {task_id} \t", sentinel(task_id), f" {sentinel(task_id)} "):
        body = envelope("tasks/get", {"taskId": task_id})
        fields = headers(body) | {"mcp-name": name}
        reply = await scene.client.speak(json.dumps(body).encode(), [*fields.items()])
        assert scene.client.judge(body, reply).result["taskId"] == task_id
    assert scene.tasks.middleware.guard.unnamed == 0


async def test_a_name_that_is_another_text_is_refused_before_anything_is_looked_up(scene: Stage) -> None:
    task_id = await scene.client.start("ask")
    await scene.client.until(task_id, "input_required")
    before = scene.dump()
    names = [
        UNKNOWN,
        task_id.upper(),
        task_id[:-1],
        f"{task_id}, {task_id}",
        f'"{task_id}"',
        "ask",
        sentinel(UNKNOWN),
        sentinel(f"{task_id} "),
        sentinel(sentinel(task_id)),
        sentinel(task_id).replace("base64", "BASE64"),
        sentinel(task_id).removesuffix("?="),
        sentinel(f"{task_id}x").replace("=?=", "?="),
        "=?base64?!!!?=",
        "=?base64?/w==?=",
        "=?base64??=",
        "=?base64?",
    ]
    for method in METHODS:
        for name in names:
            params: JSON = {"taskId": task_id, "inputResponses": {"form": FORM}}
            reply = await scene.client.request(method, params, extra={"mcp-name": name})
            assert (reply.status, reply.code) == (400, -32020), name
        reply = await scene.client.request(method, {"taskId": UNKNOWN}, extra={"mcp-name": task_id})
        assert reply.code == -32020
    assert scene.dump() == before


async def test_a_name_with_a_byte_that_no_encoding_has_is_another_name(scene: Stage) -> None:
    task_id = await scene.client.start("ask")
    body = envelope("tasks/get", {"taskId": task_id})
    fields = headers(body) | {"mcp-name": sentinel(task_id).replace("?=", "\x80?=")}
    reply = await scene.client.speak(json.dumps(body).encode(), list(fields.items()))
    assert (reply.status, reply.code) == (400, -32020)


async def test_an_id_that_looks_encoded_is_held_against_what_the_name_says_decoded(scene: Stage) -> None:
    encoded = sentinel(await scene.client.start("gated"))
    for name, code in ((encoded, -32020), (sentinel(encoded), -32602)):
        assert (await scene.client.request("tasks/get", {"taskId": encoded}, extra={"mcp-name": name})).code == code


async def test_an_absent_name_is_accepted_and_counted(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    for count, method in enumerate(METHODS, 1):
        params: JSON = {"taskId": task_id, "inputResponses": {}}
        assert "result" in (await scene.client.request(method, params, extra={"mcp-name": ""})).body
        assert scene.tasks.middleware.guard.unnamed == count


async def test_an_empty_name_is_not_an_absent_one(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    body = envelope("tasks/get", {"taskId": task_id})
    fields = [*(headers(body) | {"mcp-name": ""}).items()]
    assert scene.client.judge(body, await scene.client.post(json.dumps(body).encode(), fields)).code == -32020


async def test_a_header_that_comes_twice_is_refused_even_if_both_are_right(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    for method in METHODS:
        for name in ("mcp-name", "mcp-method", "mcp-protocol-version"):
            body = envelope(method, {"taskId": task_id, "inputResponses": {}})
            right = headers(body)
            reply = await scene.client.post(json.dumps(body).encode(), [*right.items(), (name.title(), right[name])])
            assert scene.client.judge(body, reply).code == -32020
            assert name in reply.error["message"]
    assert (await scene.client.get(task_id)).result["status"] == "working"


async def test_the_method_header_must_be_there_and_say_the_method(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    for value in ("", "tasks/cancel", "TASKS/GET", "tools/call"):
        assert (await scene.client.get(task_id, extra={"mcp-method": value})).code == -32020
    assert (await scene.client.get(task_id)).result["status"] == "working"


async def test_the_version_header_must_say_the_version_of_the_envelope(scene: Stage) -> None:
    reply = await scene.client.get(UNKNOWN, extra={"mcp-protocol-version": "2026-07-29"})
    assert reply.code == -32020


async def test_the_name_of_a_tool_call_is_the_name_of_the_tool(scene: Stage) -> None:
    before = scene.dump()
    for name in ("", "must", UNKNOWN):
        assert (await scene.client.call("gated", extra={"mcp-name": name})).code == -32020
    assert scene.dump() == before
    assert await scene.client.start("gated", extra={"mcp-name": sentinel("gated")})


async def test_what_is_no_text_has_no_name_to_compare(scene: Stage) -> None:
    """It is invalid by itself, and says so rather than speaking of headers."""
    values: list[JSON] = [None, 5, [], {}]
    for value in values:
        reply = await scene.client.get(value, extra={"mcp-name": "5"})
        assert reply.code == -32602


async def test_a_foreign_id_does_not_show_in_the_comparison(scene: Stage) -> None:
    """A mismatch is said alike for ids that exist and ids that don't."""
    task_id = await scene.client.start("gated")
    errors = [
        (await scene.client.get(id, capabilities=EVERYTHING, extra={"mcp-name": "other"})).error
        for id in (task_id, UNKNOWN)  # noqa: A001 - the word for it
    ]
    assert errors[0] == errors[1]
