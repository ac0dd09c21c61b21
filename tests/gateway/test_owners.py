"""Who asks: authenticated by the gateway, whose tasks are whose, and what of it a backend hears."""

import asyncio
from typing import Any

from perdure.gateway.identity import HEADER
from tests.gateway.conftest import Pair
from tests.gateway.raw_backend import liar
from tests.gateway.support import configured, fronting
from tests.gateway.test_lies import HANDLE, Bad, said
from tests.gateway.tokens import AUTH
from tests.wire.envelopes import INPUT, envelope
from tests.wire.listening import listen_request, listening, refused


def guarded(pair: Pair) -> Any:
    return fronting({"one": pair.one.client.url, "two": pair.two.client.url}, AUTH, routes=pair.front.routes)


async def test_without_a_token_nothing_is_answered_and_told_where_to_get_one(pair: Pair) -> None:
    async with guarded(pair) as front:
        reply = await front.client.exchange(envelope("tools/list"))
        assert reply.status == 401
        assert (
            "https://front.example/.well-known/oauth-protected-resource/mcp" in dict(reply.fields)["www-authenticate"]
        )
        assert (await front.client.bearing("nobody").exchange(envelope("tools/list"))).status == 401


async def test_a_task_is_found_by_its_owner_only_and_others_hear_what_is_said_of_none(pair: Pair) -> None:
    async with guarded(pair) as front:
        ada, eve = front.client.bearing("ada"), front.client.bearing("eve")
        task_id = await ada.start("one_gated")
        assert (await ada.get(task_id)).result["status"] == "working"
        requests: Any = (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}}))
        for method, more in requests:
            foreign = await eve.exchange(envelope(method, {"taskId": task_id, **more}))
            unknown = await eve.exchange(envelope(method, {"taskId": "tsk_" + "a" * 32, **more}))
            assert (foreign.status, foreign.raw, foreign.fields) == (unknown.status, unknown.raw, unknown.fields)
        async with listening(eve, task_id) as stream:
            assert await stream.begun() == []
        assert (await ada.get(task_id)).result["status"] == "working"


async def test_one_owner_can_not_cancel_the_request_of_another(pair: Pair) -> None:
    async with guarded(pair) as front:
        ada, eve = front.client.bearing("ada"), front.client.bearing("eve")
        call = envelope("tools/call", {"name": "one_gated", "arguments": {}}, id="mine", capabilities=INPUT)
        calling = asyncio.create_task(ada.exchange(call))
        await pair.first.entered.wait()
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}}
        assert (await eve.exchange(cancelled)).status == 202
        pair.first.gate.set()
        assert (await calling).text == "through"


async def test_a_clients_token_goes_to_no_backend_that_was_not_named_for_it(pair: Pair) -> None:
    bad = Bad(said(HANDLE))
    async with liar(bad.answer) as lying, fronting({"bad": lying.url}, AUTH) as front:
        await front.client.bearing("ada").exchange(envelope("tools/call", {"name": "bad_thing", "arguments": {}}))
        assert bad.asked
        assert all("authorization" not in asked.headers for asked in lying.asked)


async def test_a_token_is_forwarded_to_the_backend_that_its_audience_names(pair: Pair) -> None:
    bad = Bad(said(HANDLE))
    async with liar(bad.answer) as lying:
        for audience, forwarded in (("https://two.example", True), ("https://other.example", False)):
            identity = f'identity = {{ kind = "forward", audience = "{audience}" }}'
            config = configured({"bad": lying.url}, AUTH, at_the_end=identity)
            async with fronting({}, config=config) as front:
                call = envelope("tools/call", {"name": "bad_thing", "arguments": {}})
                before = len(bad.asked)
                reply = await front.client.bearing("ada").exchange(call)
                assert len(bad.asked) == before + forwarded
                if forwarded:
                    assert lying.asked[-1].headers["authorization"] == "Bearer ada"
                else:
                    assert (reply.status, reply.error["data"]["gateway"]) == (403, True)


async def test_one_owner_has_so_many_streams_and_others_have_theirs(pair: Pair) -> None:
    more = f"{AUTH}[limits]\nsubscriptions_per_owner = 1"
    backends = {"one": pair.one.client.url, "two": pair.two.client.url}
    async with fronting(backends, more, routes=pair.front.routes) as front:
        ada, eve = front.client.bearing("ada"), front.client.bearing("eve")
        task_id = await ada.start("one_gated")
        async with listening(ada, task_id) as stream:
            await stream.begun()
            assert (await refused(ada, listen_request([task_id]))).error["data"]["retryAfterMs"] > 0
            async with listening(eve, await eve.start("one_gated")) as other:
                await other.begun()


async def test_what_a_client_says_of_itself_in_headers_reaches_no_backend(pair: Pair) -> None:
    bad = Bad(said(HANDLE))
    claimed = {HEADER: "mine", "x-forwarded-user": "eve", "forwarded": "for=eve", "cookie": "session=eve"}
    async with liar(bad.answer) as lying, fronting({"bad": lying.url}, AUTH) as front:
        call = envelope("tools/call", {"name": "bad_thing", "arguments": {}})
        await front.client.bearing("ada").exchange(call, claimed)
        assert bad.asked
        assert all(not claimed.keys() & asked.headers.keys() for asked in lying.asked)
