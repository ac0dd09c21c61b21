"""One stream over tasks of several backends."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import SERVER_INFO_META_KEY

from perdure.gateway.breaker import Position
from perdure.wire.identity import ANONYMOUS
from tests.gateway.conftest import Pair
from tests.gateway.raw_backend import Asked, chunk, event, liar, response, result, stream
from tests.gateway.support import fronting
from tests.gateway.test_lies import CAPABILITIES, HANDLE
from tests.support import eventually
from tests.wire.envelopes import INPUT, envelope
from tests.wire.listening import listen_request, listeners, listening, refused
from tests.wire.support import serving


async def test_one_stream_follows_tasks_of_two_backends_to_their_end(pair: Pair) -> None:
    one, two = await pair.client.start("one_gated"), await pair.client.start("two_gated")
    async with listening(pair.client, two, one, two, id="stream") as stream:
        assert await stream.begun() == [two, one]
        seen = {(await stream.snapshot())["taskId"] for _ in range(2)}
        assert seen == {one, two}
        pair.second.gate.set()
        assert (await stream.reaches("completed"))["taskId"] == two
        pair.first.gate.set()
        assert (await stream.reaches("completed"))["taskId"] == one
        await stream.ends()


async def test_ids_that_are_unknown_foreign_or_none_are_left_out(pair: Pair) -> None:
    one = await pair.client.start("one_gated")
    theirs = (await pair.front.routes.find_many(ANONYMOUS, [one]))[one].backend_task_id
    async with listening(pair.client, "nonsense", theirs, one) as stream:
        assert await stream.begun() == [one]


async def test_a_stream_over_nothing_ends_at_once(pair: Pair) -> None:
    async with listening(pair.client, "nonsense") as stream:
        assert await stream.begun() == []
        assert await stream.ends() == []


async def test_without_the_extension_it_is_refused(pair: Pair) -> None:
    assert (await refused(pair.client, listen_request(["nonsense"], capabilities=INPUT))).code == -32021
    assert (await refused(pair.client, listen_request("nonsense"))).code == -32602


@pytest.mark.parametrize(
    "asked",
    [{"taskIds": ["tsk_" + letter * 32 for letter in "abc"]}, {"resourceSubscriptions": ["x:1", "x:2", "x:3"]}],
    ids=str,
)
async def test_more_than_one_stream_may_ask_for_is_refused_with_the_reason(pair: Pair, asked: Any) -> None:
    backends = {"one": pair.one.client.url}
    async with fronting(backends, "[limits]\nsubscribed_tasks = 2") as front:
        reply = await refused(front.client, envelope("subscriptions/listen", {"notifications": asked}))
        assert reply.code == -32602
        assert "2" in reply.error["message"]
        assert "subscribed_tasks" in reply.error["message"]


async def test_a_client_that_hangs_up_leaves_no_stream_open(pair: Pair) -> None:
    one = await pair.client.start("one_gated")
    async with listening(pair.client, one) as stream:
        await stream.begun()
        await stream.snapshot()
        assert listeners(pair.one) == 1
    await eventually(lambda: listeners(pair.one) == 0, "the backend's stream stayed open")
    assert len(pair.front.gateway.listening) == 0


async def test_what_ends_a_backends_stream_is_made_up_for_by_polling_and_ends_nobody_elses(pair: Pair) -> None:
    one, two = await pair.client.start("one_gated"), await pair.client.start("two_gated")
    async with listening(pair.client, one, two) as stream:
        await stream.begun()
        await stream.snapshot()
        await stream.snapshot()
        pair.one.tasks.assembly.end_subscriptions()
        pair.first.gate.set()
        assert (await stream.reaches("completed"))["taskId"] == one
        pair.second.gate.set()
        assert (await stream.reaches("completed"))["taskId"] == two
        await stream.ends()


async def test_streams_end_with_their_result_when_the_gateway_is_told_to_end(pair: Pair) -> None:
    one = await pair.client.start("one_gated")
    async with listening(pair.client, one) as stream:
        await stream.begun()
        await stream.snapshot()
        pair.front.gateway.end_subscriptions()
        await stream.ends()


async def test_changes_of_a_backends_lists_are_told_and_seen_in_the_list() -> None:
    mcp = MCPServer("changing")

    @mcp.tool()
    async def grow(ctx: Context) -> str:
        mcp.add_tool(lambda: "new", name="grown")
        await ctx.notify_tools_changed()
        return "grown"

    async with (
        serving(mcp) as (_, url),
        fronting({"it": url}) as front,
        listening(front.client, "nonsense", toolsListChanged=True) as stream,
    ):
        await stream.begun()
        assert stream.judge.honored["toolsListChanged"] is True
        await front.client.call("it_grow", {})
        frame = await stream.frame()
        assert frame["method"] == "notifications/tools/list_changed"
        listed = await front.client.request("tools/list")
        assert [tool["name"] for tool in listed.result["tools"]] == ["it_grow", "it_grown"]


NAMED: Any = {SERVER_INFO_META_KEY: {"name": "quiet", "version": "1"}}
DONE: Any = {
    **HANDLE,
    "status": "completed",
    "result": {"resultType": "complete", "content": [], "_meta": NAMED},
}


class Quiet:
    """A backend with one task, whose streams say nothing after their beginning but comments, until the task is over."""

    def __init__(self) -> None:
        self.listened = 0
        self.over = asyncio.Event()

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        snapshot: Any = DONE if self.over.is_set() else HANDLE
        match asked.message["method"]:
            case "server/discover":
                writer.write(response(result(asked, supportedVersions=["2026-07-28"], capabilities=CAPABILITIES)))
            case "tools/call":
                writer.write(response(result(asked, **HANDLE)))
            case "tasks/get":
                writer.write(response(result(asked, **snapshot | {"resultType": "complete"})))
            case _:
                self.listened += 1
                await self._listen(asked, writer)
        await writer.drain()

    async def _listen(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        wanted = {"notifications": {"taskIds": ["theirs-0001"]}, "_meta": {SUBSCRIPTION_ID_META_KEY: "gateway-listen"}}
        begun = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": wanted}
        writer.write(stream(event(begun), end=False))
        while not self.over.is_set() or self.listened < 3:
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.02)
        told = {key: value for key, value in DONE.items() if key != "resultType"}
        writer.write(chunk(event({"jsonrpc": "2.0", "method": "notifications/tasks", "params": told})))


async def test_a_stream_that_said_nothing_for_too_long_is_listened_to_again_and_the_clients_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An hour, by the bounds; a backend that only shows signs of life may be stuck, and a new stream finds out."""
    backend = Quiet()
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        upstream = front.gateway.backends["it"].upstream
        assert upstream.bounds.events.quiet_seconds == 3_600
        upstream.bounds = replace(upstream.bounds, events=replace(upstream.bounds.events, quiet_seconds=0.1))
        call = envelope("tools/call", {"name": "it_long", "arguments": {}})
        task_id = (await front.client.exchange(call)).result["taskId"]
        async with listening(front.client, task_id) as frames:
            assert await frames.begun() == [task_id]
            assert (await frames.snapshot())["status"] == "working"
            await eventually(lambda: backend.listened >= 3, "it was not listened to again")
            assert upstream.breaker.position is Position.CLOSED
            backend.over.set()
            assert (await frames.reaches("completed"))["taskId"] == task_id
            await frames.ends()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


class Full(Quiet):
    """A backend that has no room for streams."""

    async def _listen(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response({}, status="503 Service Unavailable"))


async def test_however_many_streams_break_off_the_log_has_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    backend = Full()
    caplog.set_level(logging.INFO, "perdure.gateway.feed")
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        call = envelope("tools/call", {"name": "it_long", "arguments": {}})
        task_id = (await front.client.exchange(call)).result["taskId"]
        async with listening(front.client, task_id) as one, listening(front.client, task_id) as other:
            for stream_of_one in (one, other):
                await stream_of_one.begun()
            await eventually(lambda: backend.listened >= 2, "each was listened for")
            backend.over.set()
            for stream_of_one in (one, other):
                await stream_of_one.reaches("completed")
    (line,) = [each for each in caplog.messages if "broke off" in each]
    assert line.startswith("a stream of the backend it broke off: The backend it ")
