"""Two gateways on one table of routes and a server behind them, each of them killed: no task is lost to its owner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.gateways import Front, asked, fronted, until
from tests.support import eventually
from tests.wire.envelopes import envelope
from tests.wire.listening import listening

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ANSWERS: Any = {
    "left": {"action": "accept", "content": {"text": "one"}},
    "right": {"action": "accept", "content": {"text": "two"}},
}
REQUESTS: Any = (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}}))
LAST: Any = {"last": {"action": "accept", "content": {"text": "three"}}}


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the routes are. On PostgreSQL the tasks lie beside them, as in a deployment with one database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'routes.db'}"
    return request.getfixturevalue("database")


async def test_a_task_is_found_after_its_gateway_and_its_server_were_killed_and_from_the_other_gateway(
    tmp_path: Path, table: str
) -> None:
    async with fronted(tmp_path, table) as front:
        task_id = await front.client("a").start("it_three_questions", {"label": "far"})
        await until(front.client("a"), task_id, "input_required")

        await front.kill("a")
        assert [*(await until(front.client("b"), task_id, "input_required"))["inputRequests"]] == ["left", "right"]
        await asked(front.client("b"), "tasks/update", task_id, inputResponses=ANSWERS)

        await front.begin_again("a")
        await front.kill("it")
        away = await asked(front.client("a"), "tasks/get", task_id)
        assert (away.status, away.error["data"]["backend"]) == (503, "it")

        await front.begin_again("it")
        assert [*(await until(front.client("a"), task_id, "input_required"))["inputRequests"]] == ["last"]
        await asked(front.client("a"), "tasks/update", task_id, inputResponses=LAST)
        done = await until(front.client("b"), task_id, "completed")
        assert done["result"]["structuredContent"]["answers"] == {"left": "one", "right": "two", "last": "three"}
        assert (await until(front.client("a"), task_id, "completed"))["result"] == done["result"]


async def test_a_task_is_its_owners_at_every_gateway_and_after_every_restart(tmp_path: Path, table: str) -> None:
    async with fronted(tmp_path, table) as front:
        task_id = await front.client("a").start("it_one_question", {"label": "mine"})
        await front.kill("a")
        await front.begin_again("a")
        for gateway in ("a", "b"):
            for method, more in REQUESTS:
                foreign = await asked(front.client(gateway, "eve"), method, task_id, **more)
                unknown = await asked(front.client(gateway, "eve"), method, "tsk_" + "a" * 32, **more)
                assert (foreign.status, foreign.raw) == (unknown.status, unknown.raw)
            async with listening(front.client(gateway, "eve"), task_id) as stream:
                assert await stream.begun() == []
        await until(front.client("b"), task_id, "input_required")
        assert (await asked(front.client("b"), "tasks/cancel", task_id)).status == 200
        await until(front.client("a"), task_id, "cancelled")


async def test_every_handle_that_a_client_has_heard_of_is_found_though_the_gateway_dies_under_load(
    tmp_path: Path, table: str
) -> None:
    async with fronted(tmp_path, table) as front:
        handles: list[str] = []
        callers = [asyncio.create_task(_calling(front, handles, number)) for number in range(4)]
        await eventually(lambda: len(handles) >= 20, "nothing was accepted")
        await front.kill("a")
        await asyncio.gather(*callers)
        assert len(set(handles)) == len(handles)
        for task_id in handles:
            await until(front.client("b"), task_id, "completed")


async def test_a_stream_of_one_gateway_tells_the_end_though_the_other_and_the_server_were_killed(
    tmp_path: Path, table: str
) -> None:
    async with fronted(tmp_path, table) as front:
        gate = tmp_path / "gate"
        task_id = await front.client("a").start("it_waiting", {"label": "far", "gate": str(gate)})
        async with listening(front.client("b"), task_id) as stream:
            await stream.begun()
            assert (await stream.reaches("working"))["taskId"] == task_id
            await front.kill("a")
            await front.kill("it")
            gate.touch()
            await front.begin_again("it")
            assert (await stream.reaches("completed"))["taskId"] == task_id
            await stream.ends()


async def _calling(front: Front, handles: list[str], number: int) -> None:
    """Call again and again, until the gateway is gone."""
    call = {"name": "it_short", "arguments": {"label": str(number)}}
    while True:
        try:
            reply = await front.client("a").exchange(envelope("tools/call", call))
        except httpx2.TransportError:
            return
        handles.append(reply.result["taskId"])
