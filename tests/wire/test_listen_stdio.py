"""Contract 7 over the pipes of a real child process, where all streams share one channel."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from tests.support import PATIENCE
from tests.wire.envelopes import EXTENSION, JSON, NOTHING, envelope
from tests.wire.listening import SUBSCRIPTION, Duplex, duplex, listen_request
from tests.wire.tools import FORM

UNKNOWN = "tsk_" + "a" * 32


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("listen") / "tasks.db"


@pytest.fixture(scope="module")
async def client(database: Path) -> AsyncGenerator[Duplex]:
    async with duplex("-m", "tests.wire.child", f"sqlite:///{database}") as up:
        yield up


async def test_a_task_is_followed_to_its_end(client: Duplex) -> None:
    task_id = await client.start("greet", {"name": "you"})
    async with client.listening(UNKNOWN, task_id, "x", task_id, id="one") as stream:
        assert await stream.begun() == [task_id]
        await stream.reaches("input_required")
        await client.update(task_id, {"form": FORM})
        assert (await stream.reaches())["result"]["structuredContent"]["result"][0] == "accept"
        assert await stream.ends() == []


async def test_streams_share_the_pipe_and_each_frame_says_which_it_belongs_to(client: Duplex) -> None:
    tasks = [await client.start("nap") for _ in range(3)]
    async with (
        client.listening(*tasks, id=101) as all_of_them,
        client.listening(tasks[0], id="101") as one,
        client.listening(tasks[0], id="another") as the_same,
    ):
        assert [len(await stream.begun()) for stream in (all_of_them, one, the_same)] == [3, 1, 1]
        for task_id in tasks:
            await client.cancel(task_id)
        for stream, count in ((all_of_them, 3), (one, 1), (the_same, 1)):
            seen = await stream.ends()
            assert sum(task["status"] == "cancelled" for task in seen) == count


async def test_other_requests_are_served_meanwhile(client: Duplex) -> None:
    task_id = await client.start("nap")
    async with client.listening(task_id, id="meanwhile") as stream:
        await stream.begun()
        await client.request("tools/list")
        assert (await client.get(task_id)).result["status"] == "working"
        assert (await client.call("noisy", capabilities=NOTHING)).text == "printed"
    await client.cancel(task_id)


async def test_a_stream_that_was_given_up_says_nothing_more_and_its_task_goes_on(client: Duplex) -> None:
    task_id = await client.start("nap")
    async with client.listening(task_id, id="given up") as stream:
        await stream.begun()
        await stream.snapshot()
    assert (await client.get(task_id)).result["status"] == "working"
    heard = len(client.heard)
    await client.cancel(task_id)
    await client.until(task_id)
    assert "given up" not in json.dumps(client.heard[heard:])


async def test_the_id_of_a_stream_that_is_over_may_be_used_again(client: Duplex) -> None:
    for _ in range(3):
        task_id = await client.start("nap")
        async with client.listening(task_id, id="again") as stream:
            assert await stream.begun() == [task_id]
            await client.cancel(task_id)
            await stream.ends()


async def test_one_id_for_two_streams_at_once_gets_the_frames_of_both(client: Duplex) -> None:
    """JSON-RPC forbids it, and nobody can tell the two apart; each is complete all the same."""
    tasks = [await client.start("nap") for _ in range(2)]
    heard = len(client.heard)
    for task_id in tasks:
        await client.write(json.dumps(listen_request([task_id], id="twice")).encode())
    await _until(client, lambda: len(_of(client, heard, "notifications/tasks")) >= 2)
    for task_id in tasks:
        await client.cancel(task_id)
    await _until(client, lambda: sum(message.get("id") == "twice" for message in client.heard[heard:]) == 2)
    shown = {(task["taskId"], task["status"]) for task in _of(client, heard, "notifications/tasks")}
    assert shown == {(task_id, status) for task_id in tasks for status in ("working", "cancelled")}


def _of(client: Duplex, since: int, method: str) -> list[JSON]:
    return [message["params"] for message in client.heard[since:] if message.get("method") == method]


async def _until(client: Duplex, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await client.request("server/discover")


async def test_without_the_extension_there_is_no_stream(client: Duplex) -> None:
    for asked in ([UNKNOWN], "x"):
        body = listen_request(asked, id="undeclared", capabilities=NOTHING)
        reply = client.judge(body, await client.exchange(body))
        assert reply.required == {"extensions": {EXTENSION: {}}}


@pytest.mark.parametrize("bad", [None, "x", [1], {}])
async def test_task_ids_that_are_no_list_of_strings_are_invalid_params(client: Duplex, bad: JSON) -> None:
    body = listen_request(bad, id="bad")
    assert client.judge(body, await client.exchange(body)).code == -32602


async def test_with_nothing_to_listen_to_it_is_acknowledged_and_over(client: Duplex) -> None:
    async with client.listening(UNKNOWN, id="nothing") as stream:
        assert await stream.begun() == []
        assert await stream.ends() == []


async def test_core_kinds_come_on_the_same_stream(client: Duplex) -> None:
    task_id = await client.start("nap")
    async with client.listening(task_id, id="both", toolsListChanged=True) as stream:
        await stream.begun()
        assert stream.judge.honored == {"taskIds": [task_id], "toolsListChanged": True}
        await client.cancel(task_id)
        await stream.reaches("cancelled")
        await client.call("grow", capabilities=NOTHING)
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_without_an_id_nobody_listens(client: Duplex) -> None:
    task_id = await client.start("nap")
    body = listen_request([task_id])
    del body["id"]
    heard = len(client.heard)
    await client.write(json.dumps(body).encode())
    await client.cancel(task_id)
    await client.until(task_id)
    assert SUBSCRIPTION not in json.dumps(client.heard[heard:])


@pytest.mark.parametrize("told", [True, False])
async def test_streams_that_are_open_when_the_server_ends_get_their_result(tmp_path: Path, told: bool) -> None:
    """Whether it is told to stop or its input ends; `duplex` asserts that it ends well."""
    async with duplex("-m", "tests.wire.child", f"sqlite:///{tmp_path / 'tasks.db'}") as up:
        task_id = await up.start("nap")
        for count in range(200):
            await up.write(json.dumps(listen_request([task_id], id=f"open {count}")).encode())
        await _until(up, lambda: len(_of(up, 0, "notifications/tasks")) == 200)
        if told:
            up.child.terminate()
        else:
            up.hang_up()
        async with asyncio.timeout(PATIENCE):
            await up.read_to_the_end()
        ends = {message["id"]: message for message in up.heard if str(message.get("id")).startswith("open")}
        assert {id_: end["result"]["resultType"] for id_, end in ends.items()} == dict.fromkeys(
            [f"open {count}" for count in range(200)], "complete"
        )


async def test_a_handshake_connection_has_no_such_streams(tmp_path: Path) -> None:
    async with duplex("-m", "tests.wire.child", f"sqlite:///{tmp_path / 'tasks.db'}") as up:
        hello: JSON = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "0"},
        }
        await up.exchange({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        note = envelope("notifications/initialized")
        await up.write(json.dumps({"jsonrpc": "2.0", "method": note["method"]}).encode())
        body: JSON = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "subscriptions/listen",
            "params": {"notifications": {"taskIds": []}},
        }
        assert (await up.exchange(body)).code == -32601
