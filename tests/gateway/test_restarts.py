"""What outlives a gateway, a backend, and a client that does not read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from perdure.domain.model import JSONObject
from perdure.gateway.answers import Answer
from perdure.gateway.relay import Outlet, Stalled
from perdure.store.memory import MemoryRoutes
from perdure.store.sqlite import SQLiteRoutes
from perdure.wire.identity import ANONYMOUS
from tests.gateway.support import Front, fronting
from tests.relay import Relay
from tests.support import eventually
from tests.wire.listening import listen_request, listeners
from tests.wire.support import stage
from tests.wire.tools import FORM, Tools


async def test_a_task_is_found_again_after_the_gateway_and_the_backend_were_started_anew(tmp_path: Path) -> None:
    @asynccontextmanager
    async def again() -> AsyncGenerator[Front]:
        routes = SQLiteRoutes(f"sqlite:///{tmp_path / 'routes.db'}")
        async with stage(tmp_path, Tools().declare) as up, fronting({"it": up.client.url}, routes=routes) as front:
            yield front

    async with again() as front:
        task_id = await front.client.start("it_ask")
        await front.client.until(task_id, "input_required")
    async with again() as front:
        await front.client.update(task_id, {"form": FORM})
        task = await front.client.until(task_id)
        assert task["result"]["content"][0]["text"] == "accept True"


async def test_a_stream_goes_on_when_its_backend_was_away(tmp_path: Path) -> None:
    """The connection breaks; the gateway polls meanwhile, and listens again."""
    tools = Tools()
    async with stage(tmp_path, tools.declare) as up:
        address = httpx2.URL(up.client.url)
        relayed = Relay("127.0.0.1", address.port or 0)
        async with relayed, fronting({"it": f"http://127.0.0.1:{relayed.port}/mcp"}) as front:
            task_id = await front.client.start("it_gated")
            async with front.client.streaming(listen_request([task_id])) as response:
                frames = response.aiter_lines()
                await _until(frames, '"status":"working"')
                relayed.cut()
                await eventually(lambda: listeners(up) == 0, "the stream did not end")
                await eventually(lambda: listeners(up) == 1, "it was not listened to again")
                tools.gate.set()
                await _until(frames, '"status":"completed"')
                await _until(frames, '"result":{"resultType":"complete"')


class Stuck:
    """What an ASGI server is to an application whose client does not read: its `send` never comes back."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken: list[Any] = []

    async def send(self, message: Any) -> None:
        if len(self.taken) >= self.takes:
            await asyncio.Event().wait()
        self.taken.append(message)


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    stuck = Stuck(takes=2)
    outlet = Outlet(stuck.send, frame_within=0.05)
    await outlet.event({"first": 1})
    with pytest.raises(Stalled):
        await outlet.event({"second": 2})
    assert b'"first":1' in stuck.taken[1]["body"]


async def test_a_response_that_is_long_in_coming_is_a_stream_with_comments() -> None:
    taken: list[Any] = []
    commented = anyio.Event()

    async def send(message: Any) -> None:
        taken.append(message)
        if message.get("body", b"").startswith(b":"):
            commented.set()

    async def silent() -> Any:
        await asyncio.Event().wait()

    async with anyio.create_task_group() as group:
        outlet = Outlet(send, ping_every=0.01)
        outlet.keep_alive()
        group.start_soon(outlet.watch, silent, group.cancel_scope)
        await commented.wait()
        await outlet.answer(Answer({"late": 1}, status=400))
        group.cancel_scope.cancel()
    assert taken[0]["status"] == 200
    assert b'data: {"late":1}' in taken[-1]["body"]
    assert taken[-1]["more_body"] is False


async def test_a_client_that_can_not_be_watched_ends_its_request_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(_message: Any = None) -> Any:
        raise OSError("gone")

    with anyio.CancelScope() as scope:
        await Outlet(fails).watch(fails, scope)
    assert scope.cancel_called
    assert "could not be watched" in caplog.text


async def test_who_is_not_watched_any_longer_is_not_looked_for() -> None:
    async def silent() -> Any:
        await asyncio.Event().wait()

    outlet = Outlet(Stuck(takes=0).send)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(outlet.watch, silent, scope)
            await anyio.wait_all_tasks_blocked()
            outlet.unwatched()
        await outlet.watch(silent, scope)  # one that begins late
    assert not scope.cancel_called


async def test_an_answer_that_is_cancelled_before_its_turn_can_be_answered_for() -> None:
    """Else the client would get no response at all."""
    taking, taken = anyio.Event(), list[Any]()

    async def send(message: Any) -> None:
        taken.append(message)
        await taking.wait()

    outlet = Outlet(send)
    async with anyio.create_task_group() as group:
        first: JSONObject = {"first": 1}
        group.start_soon(outlet.event, first)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await outlet.answer(Answer({"late": 1}))
        assert not outlet.over
        taking.set()
    await outlet.answer(Answer({"instead": 1}))
    assert outlet.over
    assert b'"instead":1' in taken[-1]["body"]


async def _until(frames: AsyncIterator[str], wanted: str) -> None:
    async for line in frames:
        if wanted in line:
            return
    raise AssertionError(f"the stream ended without {wanted}")


async def test_a_route_to_a_backend_that_never_comes_back_is_given_up_if_an_operator_says_so() -> None:
    routes = MemoryRoutes()
    for name, ttl_ms in (("past", 1), ("unlimited", None)):
        await routes.lay(ANONYMOUS, "gone", name, ttl_ms, f"tsk_{name}")
    given_up = '[routes]\ngive_up = "1ms"'
    async with fronting({"gone": "http://127.0.0.1:9/mcp"}, given_up, routes=routes):

        async def is_over() -> bool:
            return (await routes.find(ANONYMOUS, "tsk_past")).ended

        await eventually(is_over, "the route was not given up")
        assert not (await routes.find(ANONYMOUS, "tsk_unlimited")).ended
