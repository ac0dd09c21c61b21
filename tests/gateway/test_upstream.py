"""One backend over real HTTP: good answers, what goes there and what does not, and cancelling."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.gateway.breaker import Position
from perdure.gateway.sse import SSEBounds
from perdure.gateway.upstream import Reply, Upstream
from tests.support import PATIENCE, eventually

from .raw_backend import Answer, Asked, chunk, event, response, result, stream
from .upstreams import BOUNDS, NOTE, answers, ask, backend, call, hangs, says, soon

# -- good answers ------------------------------------------------------------------------------------------------------


async def test_a_response_passes_with_all_that_nobody_knows_in_it() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response({**result(asked, odd=[1.5, None, "\ud800"]), "extra": {"é": 1}}))

    async with backend(answer) as (_, upstream):
        reply = await ask(upstream)
    assert reply == Reply(
        200,
        {
            "jsonrpc": "2.0",
            "id": 7,
            "result": {"resultType": "complete", "odd": [1.5, None, "\ud800"]},
            "extra": {"é": 1},
        },
    )


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found", "500 Internal Server Error"])
async def test_an_error_in_the_protocols_words_is_an_answer_whatever_its_status(status: str) -> None:
    error: JSONObject = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "no", "data": {"own": 1}}}
    async with backend(says(response(error, status))) as (_, upstream):
        for _ in range(20):
            assert await ask(upstream) == Reply(int(status[:3]), error)
        assert upstream.breaker.position is Position.CLOSED


async def test_a_notification_is_acknowledged_without_a_body() -> None:
    async with backend(says(response(b"", "202 Accepted", ""))) as (_, upstream):
        assert await ask(upstream, {"jsonrpc": "2.0", "method": "notifications/cancelled"}) == Reply(202, None)


async def test_of_a_stream_the_response_is_the_reply() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(b": hello\n\n", event(NOTE), event(result(asked))))

    async with backend(answer) as (lying, upstream):
        for _ in range(3):
            assert (await ask(upstream)).message == {"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete"}}
        assert lying.connections == 1


async def test_events_are_passed_on_as_they_come() -> None:
    more = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(event(NOTE), end=False))
        await more.wait()
        writer.write(chunk(event(result(asked))) + b"0\r\n\r\n")

    async with backend(answer) as (_, upstream), upstream.stream(call(), {}, deadline=soon()) as exchange:
        assert exchange.is_stream
        events = exchange.events()
        assert await anext(events) == NOTE
        more.set()
        assert "result" in await anext(events)
        assert await anext(events, None) is None


async def test_what_is_between_a_client_and_the_gateway_goes_no_further_and_the_rest_does() -> None:
    async with backend(answers) as (lying, upstream):
        await ask(
            upstream,
            None,
            **{
                "mcp-method": "tools/call",
                "Mcp-Param-x": "=?base64?w6k=?=",
                "traceparent": "00-1-2-03",
                "authorization": "Bearer made-for-it",
                "Connection": "close, authorization",
                "cookie": "a=b",
                "Host": "elsewhere.example",
                "accept-encoding": "gzip",
                "content-length": "3",
                "transfer-encoding": "chunked",
                "mcp-session-id": "1",
                "te": "trailers",
            },
        )
    assert dict(lying.asked[0].headers) == {
        "host": lying.url.split("/")[2],
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "perdure-gateway",
        "content-length": str(len(lying.asked[0].body)),
        "mcp-method": "tools/call",
        "mcp-param-x": "=?base64?w6k=?=",
        "traceparent": "00-1-2-03",
        "authorization": "Bearer made-for-it",
    }
    assert lying.asked[0].message == call()


async def test_a_cookie_of_one_users_answer_does_not_come_with_the_next_users_request() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response(result(asked), set_cookie="session=ada; Path=/"))

    async with backend(answer) as (lying, upstream):
        await ask(upstream)
        await ask(upstream)
    assert "cookie" not in lying.asked[1].headers


async def test_no_proxy_and_no_credentials_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with backend(answers) as (lying, upstream):
        await ask(upstream)
    assert "authorization" not in lying.asked[0].headers


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/mcp",
        "127.0.0.1:80/mcp",
        "file:///etc/passwd",
        "http:///mcp",
        "http://a:b@127.0.0.1/",
        "http://[::1",
        "http://h/#x",
    ],
)
def test_a_url_that_can_not_be_called_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="backend b"):
        Upstream("b", url)


# -- cancelling, and slow readers --------------------------------------------------------------------------------------


async def test_leaving_an_exchange_hangs_up_and_frees_its_place() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(event(NOTE), end=False))
        await asyncio.Event().wait()

    async with backend(answer) as (lying, upstream):
        async with upstream.stream(call(), {}, deadline=soon()) as exchange:
            async for _ in exchange.events():
                break
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)
        assert upstream.calls.line.inside == 0
        assert upstream.breaker.position is Position.CLOSED


@pytest.mark.parametrize("data", [stream(event(NOTE), end=False), response(b"{", content_length="500")])
async def test_an_exchange_that_nobody_reads_is_hung_up_on_as_well(data: bytes) -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await asyncio.Event().wait()

    async with backend(answer) as (lying, upstream):
        async with upstream.stream(call(), {}, deadline=soon()):
            pass
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)


@pytest.mark.parametrize("answer", [hangs, says(stream(event(NOTE), end=False))], ids=["no head", "in a stream"])
async def test_a_request_that_is_cancelled_hangs_up_and_touches_no_other(answer: Answer) -> None:
    async def one_or_the_other(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (answer if asked.message["id"] == 7 else answers)(asked, writer)
        if asked.message["id"] == 7:
            await asyncio.Event().wait()

    async with backend(one_or_the_other) as (lying, upstream):
        request = asyncio.create_task(ask(upstream))
        await eventually(lambda: bool(lying.asked), "it was asked")
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)
        assert (await ask(upstream, call(id=8))).status == 200
        assert upstream.calls.line.inside == 0


async def test_a_slow_reader_slows_its_backend_down() -> None:
    """Nothing is read ahead: what the backend can send is what the buffers of two sockets hold."""
    sent = 0

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(high=1)
        writer.write(stream(end=False))
        piece = chunk(event({**NOTE, "params": {"text": "a" * 50_000}}))
        while sent < 1_000 * len(piece):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    bounds = replace(BOUNDS, events=SSEBounds(event=100_000))
    async with (
        backend(answer, bounds) as (_, upstream),
        upstream.stream(call("subscriptions/listen"), {}, deadline=soon()) as exchange,
    ):
        await anext(exchange.events())
        before = -1
        while before != sent:  # until the buffers are full
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 25_000_000
