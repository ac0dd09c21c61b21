"""What a backend says of itself and lists, and should not: the others are there all the same, and nobody waits long."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import DiscoverResult

from perdure.gateway import shelf
from tests.gateway.odd import Odd, beside, is_well
from tests.gateway.raw_backend import Asked, liar, result
from tests.gateway.support import Front, configured, fronting
from tests.support import eventually
from tests.wire.envelopes import envelope
from tests.wire.listening import listening
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

GOOD: Any = {"name": "thing", "inputSchema": {"type": "object"}, "unknown": 1}


@pytest.fixture
async def good(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, Tools().declare) as up:
        yield up


async def listed(front: Front) -> None:
    reply = await front.client.exchange(envelope("tools/list"))
    assert "good_hello" in [tool["name"] for tool in reply.result["tools"]]


@asynccontextmanager
async def before(good: Stage, odd: Odd, table: str) -> AsyncGenerator[Front]:
    """As `beside`, with more in the odd one's table."""
    async with liar(odd.answer) as lying:
        config = configured({"good": good.client.url, "odd": lying.url}, at_the_end=table)
        async with fronting({}, config=config) as front:
            yield front


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x"},
        {"name": "x", "inputSchema": {}},
        {"title": "nameless"},
        {"name": "x\ud800", "inputSchema": {"type": "object"}},
        {"name": "x", "inputSchema": {"type": "object"}, "_meta": 5},
        {"name": "x", "inputSchema": {"type": "object", "properties": json.loads('{"a":' * 300 + "{}" + "}" * 300)}},
        [],
        None,
    ],
    ids=lambda wrong: ascii(wrong)[:60],
)
async def test_a_tool_that_is_none_is_left_out_and_all_others_are_there(good: Stage, wrong: Any) -> None:
    async with beside(good, Odd(tools=[wrong, GOOD])) as front:
        reply = await front.client.request("tools/list")
        names = [tool["name"] for tool in reply.result["tools"]]
        assert names[0] == "odd_thing"
        assert "good_hello" in names
        assert reply.result["tools"][0]["unknown"] == 1


@pytest.mark.parametrize(
    "capabilities",
    [5, [1], "tools", True, {"tools": True}, {"tools": None}, {"extensions": [1]}, {"tools": {"listChanged": 1}}],
    ids=str,
)
async def test_capabilities_that_are_none_take_nothing_from_other_backends(good: Stage, capabilities: Any) -> None:
    async with beside(good, Odd(capabilities=capabilities)) as front:
        said = DiscoverResult.model_validate((await front.client.request("server/discover")).result).capabilities
        assert said.tools is not None
        assert said.extensions is not None
        async with listening(front.client, toolsListChanged=True) as heard:
            assert await heard.begun() == []
        await is_well(front)


async def test_a_crowd_that_lists_at_once_costs_two_requests_and_not_one_each(good: Stage) -> None:
    going = asyncio.Event()
    odd = Odd(page=lambda asked: result(asked, tools=[GOOD]), before_a_page=going.wait)
    async with beside(good, odd) as front:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(listed, front)
            await eventually(lambda: len(front.gateway.in_flight) == 20, "they do not wait")
            going.set()
        assert odd.asked.count("tools/list") <= 2


async def test_a_crowd_before_a_backend_that_hangs_waits_for_one_time_out(good: Stage) -> None:
    odd = Odd(before_a_page=asyncio.Event().wait)
    async with before(good, odd, '[backends.odd.timeouts]\nrequest = "500ms"') as front:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(listed, front)
        assert odd.asked.count("tools/list") == 1


async def test_that_a_backend_does_not_list_is_one_line_and_not_one_for_each_client(
    good: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with beside(good, Odd(page=lambda asked: result(asked, tools="none"))) as front:
        for _ in range(3):
            await listed(front)
    assert sum("did not list its tools" in record.getMessage() for record in caplog.records) == 1


async def test_all_pages_of_a_list_take_no_more_than_one_response_may(good: Stage) -> None:
    def page(asked: Asked) -> Any:
        return result(asked, tools=[GOOD | {"description": "x" * 4_000}], nextCursor=str(len(odd.asked)))

    odd = Odd(page=page)
    async with before(good, odd, "response_body = 20_000") as front:
        await is_well(front)
        assert 4 <= odd.asked.count("tools/list") < 10


async def test_a_list_whose_pages_drip_is_given_up(good: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "_WITHIN", 0.0)
    odd = Odd(page=lambda asked: result(asked, tools=[GOOD], nextCursor=str(len(odd.asked))))
    async with beside(good, odd) as front:
        await is_well(front)
        assert odd.asked.count("tools/list") == 1
