"""A backend that has as much to do as it may: whoever is too many hears when to come back, and others hear nothing."""

import asyncio

from tests.gateway.raw_backend import liar
from tests.gateway.support import configured, fronting
from tests.gateway.test_lies import Bad, ask
from tests.support import eventually


async def test_who_finds_no_room_in_time_may_come_again_and_the_backend_hears_nothing_of_it() -> None:
    backend = Bad(None)
    async with liar(backend.answer) as up:
        bounds = 'concurrency = 1\ntimeouts = { queue = "50ms" }'
        async with fronting({}, config=configured({"bad": up.url}, at_the_end=bounds)) as front:
            busy = asyncio.create_task(ask(front))
            await eventually(lambda: len(backend.asked) == 1, "the first call never came")
            reply = await ask(front)
            assert (reply.status, reply.code) == (503, -32000)
            assert reply.error["data"] == {"gateway": True, "backend": "bad", "retryAfterMs": 1_000}
            assert dict(reply.fields)["retry-after"] == "1"
            assert len(backend.asked) == 1
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
