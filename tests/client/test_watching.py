"""How a task is watched: one stream where the server has them, polls with manners where not, and both in turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from perdure import Tasks as ServerTasks
from perdure.client import Disconnected, RequestRefused, TaskExpired, TaskHandle, Tasks, TaskTimedOut, faults, pace
from tests.client.spy import Spy, always, at_first
from tests.client.support import connected, text
from tests.relay import Relay
from tests.store.support import VirtualClock
from tests.support import PATIENCE, eventually
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

LISTEN = "subscriptions/listen"
GET = "tasks/get"


@asynccontextmanager
async def watched(
    tmp_path: Path, tools: Tools, spy: Spy, tasks: Tasks, **options: Any
) -> AsyncGenerator[tuple[Stage, Client]]:
    """A server whose `gated` is polled every 200 ms, and which is spied on; a client of it."""

    def declare(server: ServerTasks) -> None:
        server.tool(poll_interval="200ms", ttl="1h")(tools.gated)
        server.tool(poll_interval="200ms")(tools.hello)

    async with (
        stage(tmp_path, declare, server={"middleware": [spy]}, **options) as up,
        connected(up.client.url, tasks) as client,
    ):
        yield up, client


async def started(client: Client, tasks: Tasks, count: int) -> list[TaskHandle]:
    return [await tasks.start(client, "gated") for _ in range(count)]


@asynccontextmanager
async def waited_for(handles: list[TaskHandle]) -> AsyncGenerator[list[str]]:
    """All of them are waited for inside of the block; what they came to is there after it."""
    came: list[str] = []

    async def one(handle: TaskHandle) -> None:
        came.append(text(await handle.result(PATIENCE)))

    async with anyio.create_task_group() as group:
        for handle in handles:
            group.start_soon(one, handle)
        yield came


async def test_a_hundred_tasks_are_listened_to_by_one_stream_and_not_polled(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(), Tasks()
    async with watched(tmp_path, tools, spy, tasks, concurrency=200) as (_, client):
        handles = await started(client, tasks, 100)
        async with waited_for(handles) as came:
            await eventually(lambda: spy.open[LISTEN] == 1, "they are listened to")

            async def unpolled() -> bool:
                before = spy.came[GET]
                await asyncio.sleep(0.5)
                return spy.came[GET] == before

            await eventually(unpolled, "they are polled no more, though they should be each 200 ms")
            tools.gate.set()
    assert came == ["through"] * 100
    assert spy.came[LISTEN] <= 3
    assert spy.most[LISTEN] <= 2


async def test_tasks_that_come_later_are_folded_into_a_few_streams(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(), Tasks()
    async with watched(tmp_path, tools, spy, tasks, concurrency=200) as (_, client), anyio.create_task_group() as group:
        for _ in range(60):
            (handle,) = await started(client, tasks, 1)
            group.start_soon(handle.result, PATIENCE)
            await asyncio.sleep(0.02)
        await eventually(lambda: spy.open[LISTEN] == 1, "they are listened to")
        tools.gate.set()
    assert spy.came[LISTEN] <= 6
    assert spy.most[LISTEN] <= 2


@pytest.mark.parametrize(
    "refusal", [always(-32601, "Method not found"), always(-32021, "no"), always(-32600, "not here")]
)
async def test_a_server_that_does_not_listen_is_polled_and_not_asked_again(
    tmp_path: Path, tools: Tools, refusal: Any
) -> None:
    spy, tasks = Spy(refuse={LISTEN: refusal}), Tasks()
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handles = await started(client, tasks, 2)
        async with waited_for(handles) as came:
            await eventually(lambda: spy.came[GET] >= 6, "they are polled")
            tools.gate.set()
        # Nobody waits by now, and somebody comes again.
        assert text(await (await tasks.start(client, "gated")).result(PATIENCE)) == "through"
    assert came == ["through"] * 2
    assert spy.came[LISTEN] == 1


async def test_the_bound_of_one_call_is_not_that_of_everybody_s_polls(tmp_path: Path, tools: Tools) -> None:
    tasks, slow = Tasks(listen=False, timeout=PATIENCE), Spy()

    async def pause(ctx: Any, call_next: Any) -> Any:
        if ctx.method == GET:
            await asyncio.sleep(0.6)
        return await slow(ctx, call_next)

    def declare(server: ServerTasks) -> None:
        server.tool(poll_interval="200ms")(tools.gated)

    async with (
        stage(tmp_path, declare, server={"middleware": [pause]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        tools.gate.set()
        assert text(await client.call_tool("gated", read_timeout_seconds=0.4)) == "through"


async def test_a_stream_is_wide_again_once_the_server_has_room(tmp_path: Path, tools: Tools) -> None:
    def limited(params: dict[str, Any]) -> MCPError | None:
        wide = len(params["notifications"]["taskIds"]) > 3
        return MCPError(-32000, "full", {"retryAfterMs": 10}) if wide and not roomy else None

    roomy = False
    spy, tasks = Spy(refuse={LISTEN: limited}), Tasks()

    def widest() -> int:
        return max(len(one.params["notifications"]["taskIds"]) for one in spy.asked if one.method == LISTEN)

    async with watched(tmp_path, tools, spy, tasks, concurrency=50) as (_, client):
        handles = await started(client, tasks, 10)
        async with waited_for(handles):
            await eventually(lambda: spy.open[LISTEN] == 1, "some are listened to")
            spy.asked.clear()
            roomy = True
            await eventually(lambda: spy.came[LISTEN] >= 6, "10, 5, 2, and then 4, 8, 10")
            tools.gate.set()
    assert widest() == 10


async def test_polls_keep_the_interval_of_each_task_and_are_few_at_once(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(), Tasks(listen=False)
    async with watched(tmp_path, tools, spy, tasks, concurrency=50) as (_, client):
        handles = await started(client, tasks, 20)
        async with waited_for(handles):
            await eventually(lambda: spy.came[GET] >= 100, "they are polled")
            tools.gate.set()
    assert spy.came[LISTEN] == 0
    assert spy.most[GET] <= 4
    assert min(spy.gaps(GET)) >= 0.2


async def in_slices(handle: TaskHandle, each: float) -> CallToolResult:
    """Wait for no longer than that at once, again and again."""
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(TaskTimedOut):
                return await handle.result(each)


async def test_a_wait_in_slices_that_are_shorter_than_the_interval_comes_to_its_end(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(), Tasks(listen=False)
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        began = anyio.current_time()
        handle = await tasks.start(client, "gated")
        await handle.status()
        async with anyio.create_task_group() as group:

            async def open_the_gate() -> None:
                await eventually(lambda: spy.came[GET] >= 4, "it is polled")
                tools.gate.set()

            group.start_soon(open_the_gate)
            assert text(await in_slices(handle, 0.18)) == "through"
        assert spy.came[GET] <= 1 + (anyio.current_time() - began) / 0.2


async def test_a_session_that_is_over_is_so_for_who_waits_in_slices_too(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(refuse={GET: always(-32000, "Connection closed")}), Tasks(listen=False)
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handle = await tasks.start(client, "gated")
        with pytest.raises(Disconnected):
            await in_slices(handle, 0.3)
        assert handle.trouble is not None


async def test_no_room_is_waited_out_for_as_long_as_the_server_says(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(refuse={GET: at_first(2, -32000, "full", {"retryAfterMs": 700})}), Tasks(listen=False)
    tools.gate.set()
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handle = await tasks.start(client, "gated")
        assert text(await handle.result(PATIENCE)) == "through"
    assert min(spy.gaps(GET)[:2]) >= 0.7


async def test_what_trying_again_can_not_help_ends_the_wait(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(refuse={GET: always(-32600, "not for you")}), Tasks(listen=False)
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handle = await tasks.start(client, "gated")
        with pytest.raises(RequestRefused, match="not for you"):
            await handle.result(PATIENCE)


@pytest.mark.parametrize("how", ["result", "status"])
async def test_an_internal_error_is_borne_for_a_while_and_then_ends_the_wait(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    spy, tasks = Spy(refuse={GET: at_first(2, -32603, "Internal error")}), Tasks(listen=False)
    tools.gate.set()
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handle = await tasks.start(client, "gated")
        assert text(await handle.result(PATIENCE)) == "through"
        spy.refuse[GET] = always(-32603, "Internal error")
        monkeypatch.setattr(faults, "BORNE", 0.2)
        again = await tasks.start(client, "gated")
        with pytest.raises(RequestRefused, match="Internal error"):
            await (again.result(PATIENCE) if how == "result" else again.status())


async def test_a_stream_that_breaks_off_is_followed_by_a_poll_and_by_another_stream(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(), Tasks()
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handles = await started(client, tasks, 2)
        async with waited_for(handles) as came:
            await eventually(lambda: spy.open[LISTEN] == 1, "they are listened to")
            await asyncio.sleep(0.5)
            polled = spy.came[GET]
            spy.cut()
            await eventually(lambda: spy.came[GET] >= polled + 2, "they are polled")
            await eventually(lambda: spy.came[LISTEN] == 2, "they are listened to again")
            tools.gate.set()
    assert came == ["through"] * 2


async def test_a_server_that_takes_few_tasks_in_a_stream_gets_few_and_the_others_are_polled(
    tmp_path: Path, tools: Tools
) -> None:
    def limited(params: dict[str, Any]) -> MCPError | None:
        return MCPError(-32602, "too many") if len(params["notifications"]["taskIds"]) > 3 else None

    spy, tasks = Spy(refuse={LISTEN: limited}), Tasks()
    async with watched(tmp_path, tools, spy, tasks, concurrency=50) as (_, client):
        handles = await started(client, tasks, 10)
        async with waited_for(handles) as came:
            await eventually(lambda: spy.open[LISTEN] == 1, "some are listened to")
            await asyncio.sleep(0.5)
            before = len(spy.asked)
            await eventually(lambda: len(spy.asked) >= before + 16, "the others are polled")
            polled = {one.params["taskId"] for one in spy.asked[before:] if one.method == GET}
            tools.gate.set()
    assert came == ["through"] * 10
    assert len(polled) == 10 - 2, "10, 5, 2"


async def test_fields_and_statuses_that_nobody_has_heard_of_are_kept(tmp_path: Path, tools: Tools) -> None:
    def later(answer: dict[str, Any]) -> dict[str, Any]:
        status = "pondering" if answer["status"] == "working" else answer["status"]
        return {**answer, "status": status, "mood": {"good": True}}

    spy, tasks = Spy(change={GET: later}), Tasks(listen=False)
    async with watched(tmp_path, tools, spy, tasks) as (_, client):
        handle = await tasks.start(client, "gated")
        statuses: list[str] = []
        async for snapshot in handle.updates():
            statuses.append(snapshot.status)
            if snapshot.status == "pondering":
                assert snapshot.raw["mood"] == {"good": True}
                tools.gate.set()
    assert statuses == ["working", "pondering", "completed"]


async def test_a_task_whose_result_is_gone_has_expired(tmp_path: Path, tools: Tools) -> None:
    clock, tasks = VirtualClock(), Tasks()
    async with watched(tmp_path, tools, Spy(), tasks, clock=clock, worker=False, linger="1s") as (up, client):
        handle = await tasks.start(client, "gated")
        clock.advance(4_000_000)
        await up.store.expire(10)  # its own janitor may have been here before
        clock.advance(1_000)
        await up.store.purge(10, linger_ms=1_000, tombstone_ms=60_000)
        for wait in (handle.result, handle.status):
            with pytest.raises(TaskExpired):
                await wait()


async def test_a_wait_has_its_bound_also_where_every_request_stalls(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(), Tasks(request_timeout=0.2)
    forever = asyncio.Event()

    async def stall(ctx: Any, call_next: Any) -> Any:
        if ctx.method in (GET, LISTEN):
            await forever.wait()
        return await spy(ctx, call_next)

    def declare(server: ServerTasks) -> None:
        server.tool()(tools.gated)

    async with (
        stage(tmp_path, declare, server={"middleware": [stall]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        handle = await tasks.start(client, "gated")
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TaskTimedOut):
            await handle.result(1.0)
        assert loop.time() - began < 5
        forever.set()


async def test_a_stream_that_dies_without_a_word_is_found_out_by_a_rare_poll(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "BACKSTOP", 0.5)
    spy, tasks = Spy(), Tasks()

    def declare(server: ServerTasks) -> None:
        server.tool(poll_interval="200ms")(tools.gated)

    async with stage(tmp_path, declare, server={"middleware": [spy]}) as up:
        port = int(up.client.url.split(":")[2].split("/")[0])
        async with Relay("127.0.0.1", port) as relay, connected(f"http://127.0.0.1:{relay.port}/mcp", tasks) as client:
            handle = await tasks.start(client, "gated")
            wait = asyncio.create_task(handle.result(PATIENCE))
            await eventually(lambda: spy.open[LISTEN] == 1, "it is listened to")
            await handle.status()
            relay.die()
            tools.gate.set()
            assert text(await wait) == "through"
    assert spy.came[LISTEN] == 1


async def test_after_an_outage_the_first_answer_ends_the_pauses_of_all(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(refuse={GET: always(-32000, "away")}), Tasks(listen=False, chance=lambda: 0.5)
    async with watched(tmp_path, tools, spy, tasks, concurrency=50) as (_, client):
        first, second = await started(client, tasks, 2)
        async with waited_for([first]) as came:
            await eventually(lambda: spy.came[GET] >= 4, "it is asked for in vain")
            wait = asyncio.create_task(second.result(PATIENCE))
            # The pause of the first one is four seconds by now, that of the second one half a second.
            await asyncio.sleep(0)
            spy.refuse.clear()
            tools.gate.set()
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert text(await wait) == "through"
        assert came == ["through"]
        assert loop.time() - began < 3.9
