"""The same contract over the pipes of a real child process."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support import eventually
from tests.wire import checker
from tests.wire.envelopes import CLIENT_CAPABILITIES, EXTENSION, INPUT, JSON, NOTHING, TASKS, envelope, meta
from tests.wire.support import Piped, dump, piped
from tests.wire.tools import FORM

UNKNOWN = "tsk_" + "a" * 32
REQUIRED: JSON = {"extensions": {EXTENSION: {}}}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stdio") / "tasks.db"


@pytest.fixture(scope="module")
async def client(database: Path) -> AsyncGenerator[Piped]:
    """One child for the whole module, since it takes longer to start than all that is said to it."""
    async with piped("-m", "tests.wire.child", f"sqlite:///{database}") as up:
        yield up


async def test_the_whole_life_of_a_task(client: Piped, database: Path) -> None:
    checker.check_discovery((await client.request("server/discover")).result)
    names = [tool["name"] for tool in (await client.request("tools/list")).result["tools"]]
    assert names == ["greet", "nap", "noisy", "must", "grow"]
    task_id = await client.start("greet", {"name": "you"})
    task = await client.until(task_id, "input_required")
    assert (task["statusMessage"], list(task["inputRequests"])) == ("asking", ["form"])
    await client.update(task_id, {"form": FORM})
    done = await client.until(task_id)
    # One local owner: a pipe has one user.
    assert done["result"]["structuredContent"] == {"result": ["accept", "you", "local"]}
    await client.cancel(task_id)
    assert (await client.get(task_id)).result == done
    assert {row[2:4] for row in dict(dump(database))["task"]} == {("", "local")}


async def test_a_running_task_is_cancelled_and_a_notification_does_not_do_it(client: Piped) -> None:
    body = envelope("tools/call", {"name": "nap", "arguments": {}}, id="the call")
    task_id = client.judge(body, await client.exchange(body)).result["taskId"]
    for request_id in ("the call", task_id):
        note = envelope("notifications/cancelled", {"requestId": request_id})
        del note["id"]
        await client.write(json.dumps(note).encode())
    assert (await client.get(task_id)).result["status"] == "working"
    await client.cancel(task_id)
    assert (await client.until(task_id))["status"] == "cancelled"


async def test_the_notification_ends_a_call_that_is_no_task(client: Piped, database: Path) -> None:
    """Then it is transport work, and nobody else knows of the task beneath."""
    await client.request("server/discover")
    known = {row[0] for row in dict(dump(database))["task"]}
    body = envelope("tools/call", {"name": "nap", "arguments": {}}, id="the call", capabilities=NOTHING)
    await client.write(json.dumps(body).encode())

    def states() -> list[str]:
        return [row[7] for row in dict(dump(database))["task"] if row[0] not in known]

    await eventually(lambda: states() == ["working"], "the call made no task")
    note = envelope("notifications/cancelled", {"requestId": "the call"})
    del note["id"]
    await client.write(json.dumps(note).encode())
    await eventually(lambda: states() == ["cancelled"], "the work went on")


async def test_calls_without_the_extension_run_inside_the_request(client: Piped) -> None:
    first = await client.call("greet", {"name": "you"}, capabilities=INPUT)
    params = {"requestState": first.result["requestState"], "inputResponses": {"form": FORM}}
    last = await client.call("greet", {"name": "you"}, params=params, capabilities=INPUT)
    assert last.result["structuredContent"] == {"result": ["accept", "you", "local"]}
    assert (await client.call("must", capabilities=NOTHING)).required == REQUIRED
    assert (await client.call("noisy", capabilities=NOTHING)).text == "printed"


async def test_the_extension_must_be_declared_on_each_request(client: Piped) -> None:
    task_id = await client.start("nap")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        params: JSON = {"taskId": task_id, "inputResponses": {}}
        assert (await client.request(method, params, capabilities=NOTHING)).required == REQUIRED
    listen: JSON = {"notifications": {"taskIds": [task_id]}}
    assert (await client.request("subscriptions/listen", listen, capabilities=NOTHING)).required == REQUIRED
    assert (await client.get(task_id, capabilities=TASKS)).result["status"] == "working"


async def test_a_version_that_is_no_string_or_missing_is_invalid_params(client: Piped) -> None:
    await client.request("server/discover")
    versions: list[JSON] = [None, 20260728, ["2026-07-28"], {}]
    for version in versions:
        reply = await client.request("tasks/get", {"taskId": UNKNOWN, "_meta": meta(version=version)})
        assert reply.code == -32602
    for bare in ({}, {CLIENT_CAPABILITIES: TASKS}, None):
        assert (await client.request("tasks/get", {"taskId": UNKNOWN, "_meta": bare})).code == -32602
    reply = await client.request("tasks/get", {"taskId": UNKNOWN, "_meta": meta(version="2027-01-01")})
    assert (reply.code, reply.error["data"]["requested"]) == (-32022, "2027-01-01")


async def test_bad_input_gets_its_error_and_the_server_goes_on(client: Piped, database: Path) -> None:
    task_id = await client.start("greet", {"name": "you"})
    await client.until(task_id, "input_required")
    before = dump(database)
    ids: list[JSON] = ["", "x", UNKNOWN, None, 5, [], {}]
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for bad in ids:
            reply = await client.request(method, {"taskId": bad, "inputResponses": {}})
            assert reply.code == -32602
    for method in ("tasks/status", "tasks/list", "tasks/result", "no/such"):
        assert (await client.request(method, {"taskId": task_id})).code == -32601
    assert (await client.update(task_id, {"form": {"action": "accept", "content": {"ok": 5}}})).code == -32602
    assert dump(database) == before


LINES: list[bytes] = [
    b"",
    b"nonsense",
    b"{",
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"{}",
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "1.0", "id": 1, "method": "tasks/get"}',
    b'{"jsonrpc": "2.0", "id": {}, "method": "tasks/get"}',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}]',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"x": "\\ud800"}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"x": NaN}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": ' + b'{"x":' * 5000 + b"1" + b"}" * 5001,
]


async def test_a_line_that_is_no_message_does_not_stop_the_server(client: Piped, database: Path) -> None:
    task_id = await client.start("greet", {"name": "you"})
    await client.until(task_id, "input_required")
    before = dump(database)
    for count, line in enumerate(LINES):
        await client.write(line)
        body = envelope("tasks/get", {"taskId": task_id}, id=f"after {count}")
        await client.write(json.dumps(body).encode())
        # The SDK may answer the line with an error of its own, whose id is null or the line's.
        answer = await client.read()
        while answer.get("id") != f"after {count}":
            assert "error" in answer
            answer = await client.read()
        assert answer["result"]["status"] == "input_required"
    assert dump(database) == before


async def test_an_envelope_without_id_is_never_answered(client: Piped) -> None:
    task_id = await client.start("nap")
    for method in ("tasks/get", "tasks/cancel", "tools/call"):
        body = envelope(method, {"taskId": task_id, "name": "nap"})
        del body["id"]
        await client.write(json.dumps(body).encode())
    assert (await client.get(task_id)).result["status"] == "working"


async def test_the_next_process_goes_on_with_what_the_last_one_left(tmp_path: Path) -> None:
    command = ("-m", "tests.wire.child", f"sqlite:///{tmp_path / 'tasks.db'}")
    async with piped(*command) as first:
        task_id = await first.start("greet", {"name": "you"})
        await first.until(task_id, "input_required")
    async with piped(*command) as second:
        await second.update(task_id, {"form": FORM})
        assert (await second.until(task_id))["result"]["structuredContent"]["result"][0] == "accept"


async def test_a_handshake_connection_knows_no_tasks(tmp_path: Path) -> None:
    async with piped("-m", "tests.wire.child", f"sqlite:///{tmp_path / 'tasks.db'}") as client:
        hello: JSON = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "0"},
        }
        await client.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode())
        capabilities = (await client.read())["result"]["capabilities"]
        assert "extensions" not in capabilities
        assert "tasks" not in capabilities
        await client.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        for count, method in enumerate(("tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result")):
            shapes: list[JSON] = [{"taskId": UNKNOWN, "inputResponses": {}}, {}]
            for params in shapes:
                body: JSON = {"jsonrpc": "2.0", "id": count, "method": method, "params": params}
                await client.write(json.dumps(body).encode())
                assert (await client.read())["error"]["code"] == -32601
        call: JSON = {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "noisy", "arguments": {}}}
        await client.write(json.dumps(call).encode())
        assert (await client.read())["result"]["content"][0]["text"] == "printed"
