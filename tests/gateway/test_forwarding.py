"""How a call passes to its backend and its answer back, over real HTTP."""

import asyncio
from typing import Any

import pytest

from tests.gateway.raw_backend import Asked, event, liar, response, result, stream
from tests.gateway.support import fronting
from tests.support import eventually
from tests.wire.envelopes import envelope

CALL: Any = envelope("tools/call", {"name": "it_thing", "arguments": {}})


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "left open"])
async def test_a_call_that_is_answered_as_a_stream_costs_a_connection_only_if_that_does_not_end(ends: bool) -> None:
    used: set[Any] = set()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            writer.write(response(result(asked, supportedVersions=["2026-07-28"], capabilities={"tools": {}})))
            return
        used.add(writer.get_extra_info("peername"))
        writer.write(stream(event(result(asked, content=[])), end=ends))
        await (asyncio.sleep(0) if ends else asyncio.Event().wait())

    async with liar(answer) as up, fronting({"it": up.url}) as front:
        upstream = front.gateway.backends["it"].upstream
        await eventually(lambda: upstream.discovered is not None, "it was not looked at")
        for _ in range(3):
            assert (await front.client.exchange(CALL)).result["content"] == []
            await eventually(lambda: upstream.calls.line.inside == 0, "its place was not given back")
    assert len(used) == (1 if ends else 3)
