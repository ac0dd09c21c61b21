"""Contract 1: what the server says of itself, and what a client has to declare on each request."""

import json
from pathlib import Path

import pytest

from tests.wire import checker
from tests.wire.envelopes import (
    CLIENT_CAPABILITIES,
    EVERYTHING,
    EXTENSION,
    INPUT,
    JSON,
    NOTHING,
    PROTOCOL_VERSION,
    TASKS,
    VERSION,
    envelope,
    headers,
    meta,
)
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

REQUIRED: JSON = {"extensions": {EXTENSION: {}}}
UNKNOWN = "tsk_" + "a" * 32
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


async def test_discovery_offers_the_extension_with_exactly_empty_settings(scene: Stage) -> None:
    result = (await scene.client.request("server/discover", capabilities=NOTHING)).result
    checker.check_discovery(result)
    assert result["cacheScope"] == "public"
    assert result["ttlMs"] > 0


async def test_the_list_of_tools_is_the_same_bytes_on_every_call_and_every_replica(tmp_path: Path) -> None:
    raw: set[bytes] = set()
    for replica in ("one", "two"):
        (tmp_path / replica).mkdir()
        async with stage(tmp_path / replica, Tools().declare) as up:
            for capabilities in (NOTHING, TASKS):
                body = envelope("tools/list", id=7, capabilities=capabilities)
                raw.add(up.client.judge(body, await up.client.exchange(body)).raw)
    assert len(raw) == 1


async def test_tools_are_listed_in_the_order_of_declaration_with_object_schemas(scene: Stage) -> None:
    result = (await scene.client.request("tools/list")).result
    names = [tool["name"] for tool in result["tools"]]
    assert names[:4] == ["hello", "report", "say", "gated"]
    assert {tool["inputSchema"]["type"] for tool in result["tools"]} == {"object"}
    assert (result["resultType"], result["cacheScope"]) == ("complete", "public")
    assert result["ttlMs"] > 0


async def test_the_context_of_a_tool_is_no_argument_that_clients_see(scene: Stage) -> None:
    tools = {tool["name"]: tool for tool in (await scene.client.request("tools/list")).result["tools"]}
    assert set(tools["say"]["inputSchema"]["properties"]) == {"words"}
    assert "task" not in json.dumps(tools["must"]["inputSchema"])


@pytest.mark.parametrize("method", METHODS)
async def test_task_methods_need_the_extension_declared_before_anything_is_looked_up(scene: Stage, method: str) -> None:
    real = await scene.client.start("gated")
    undeclared: list[JSON] = [NOTHING, INPUT, {"extensions": {}}, {"extensions": {"other/thing": {}}}]
    for capabilities in undeclared:
        errors: list[JSON] = []
        for task_id in (real, UNKNOWN, "malformed"):
            params: JSON = {"taskId": task_id, "inputResponses": {}}
            reply = await scene.client.request(method, params, capabilities=capabilities)
            assert (reply.status, reply.required) == (400, REQUIRED)
            errors.append(reply.error)
        assert errors == [errors[0]] * 3


async def test_the_declaration_is_judged_before_the_parameters_are(scene: Stage) -> None:
    shapes: list[JSON] = [{}, {"taskId": 5}, {"taskId": UNKNOWN, "inputResponses": 5}]
    for method in METHODS:
        for params in shapes:
            assert (await scene.client.request(method, params, capabilities=NOTHING)).required == REQUIRED


async def test_nothing_carries_over_from_an_earlier_request(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    assert (await scene.client.get(task_id)).result["status"] == "working"
    assert (await scene.client.get(task_id, capabilities=NOTHING)).required == REQUIRED
    assert (await scene.client.call("hello", {"name": "you"}, capabilities=NOTHING)).text == "Hello, you!"
    assert (await scene.client.get(task_id)).result["status"] == "working"


async def test_settings_inside_the_declaration_do_not_matter(scene: Stage) -> None:
    capabilities = {"extensions": {EXTENSION: {"future": True}}}
    await scene.client.start("hello", {"name": "you"}, capabilities=capabilities)


async def test_listening_for_tasks_needs_the_extension_declared(scene: Stage) -> None:
    filters: list[JSON] = [[], [UNKNOWN], None, "text"]
    for task_ids in filters:
        params = {"notifications": {"taskIds": task_ids}}
        reply = await scene.client.request("subscriptions/listen", params, capabilities=NOTHING)
        assert (reply.status, reply.required) == (400, REQUIRED)


async def test_listening_for_other_things_needs_no_extension(scene: Stage) -> None:
    body = envelope("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, capabilities=NOTHING)
    async with scene.http.stream("POST", scene.client.url, json=body, headers=headers(body)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")


async def test_an_unsupported_version_is_named_together_with_the_supported_ones(scene: Stage) -> None:
    for method in ("server/discover", "tools/call", *METHODS):
        params = {"taskId": UNKNOWN, "name": "hello", "_meta": meta(version="2027-01-01")}
        reply = await scene.client.request(method, params, extra={"mcp-protocol-version": "2027-01-01"})
        assert reply.code == -32022
        assert reply.error["data"] == {"supported": [VERSION], "requested": "2027-01-01"}


async def test_a_missing_part_of_the_envelope_is_invalid_params(scene: Stage) -> None:
    for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
        rest = {name: value for name, value in meta().items() if name != key}
        reply = await scene.client.request("tasks/get", {"taskId": UNKNOWN, "_meta": rest})
        assert reply.code == -32602
        assert key in reply.error["message"]


async def test_a_meta_that_is_no_object_is_invalid_params(scene: Stage) -> None:
    values: list[JSON] = [None, "text", [], 5]
    for value in values:
        assert (await scene.client.request("tasks/get", {"taskId": UNKNOWN, "_meta": value})).code == -32602


async def test_a_version_that_is_no_string_never_matches_its_header(scene: Stage) -> None:
    """The transport compares before it looks at types; where there are no headers it is -32602 (test_stdio)."""
    versions: list[JSON] = [None, 20260728, ["2026-07-28"], {}]
    for version in versions:
        params = {"taskId": UNKNOWN, "_meta": meta(version=version)}
        assert (await scene.client.request("tasks/get", params)).code == -32020


async def test_an_envelope_without_id_is_never_answered(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    for method in ("tasks/get", "tasks/cancel", "tools/call", "notifications/cancelled", "no/such"):
        body = envelope(method, {"taskId": task_id, "name": "hello", "arguments": {"name": "you"}, "requestId": 1})
        del body["id"]
        reply = await scene.client.exchange(body)
        assert (reply.status, reply.raw) == (202, b"")
    assert (await scene.client.get(task_id)).result["status"] == "working"


async def test_methods_of_other_revisions_do_not_exist(scene: Stage) -> None:
    for method in ("tasks/status", "tasks/result", "tasks/list", "tasks/create", "tasks/GET"):
        for capabilities in (NOTHING, EVERYTHING):
            reply = await scene.client.request(method, {"taskId": UNKNOWN}, capabilities=capabilities)
            assert (reply.code, reply.status) == (-32601, 404)


async def test_a_legacy_task_parameter_neither_makes_a_task_nor_changes_one(scene: Stage) -> None:
    legacy = {"task": {"ttl": 1, "pollInterval": 1}}
    inline = await scene.client.call("hello", {"name": "you"}, capabilities=NOTHING, params=legacy)
    assert inline.text == "Hello, you!"
    made = await scene.client.call("must", params=legacy)
    assert (made.result["ttlMs"], made.result["pollIntervalMs"]) == (900_000, 2000)
