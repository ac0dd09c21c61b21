"""One backend over real HTTP: what comes of every way in which it can lie, hang or die."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest

from perdure.gateway.breaker import Position
from perdure.gateway.exchange import of_transport
from perdure.gateway.faults import (
    BackendBroken,
    BackendRefused,
    BackendTimeout,
    BackendUnavailable,
    Fault,
)
from perdure.gateway.sse import SSEBounds
from perdure.gateway.upstream import Safe, Upstream
from tests.support import PATIENCE

from .raw_backend import Asked, chunk, event, liar, response, result, stream
from .upstreams import BOUNDS, NOTE, answers, ask, backend, call, hangs, says, soon

# -- lies --------------------------------------------------------------------------------------------------------------


def with_id(id: Any) -> bytes:
    return response({"jsonrpc": "2.0", "id": id, "result": {}})


LIES: Mapping[str, bytes] = {
    "redirects": response(b"", "307 Temporary Redirect", location="http://127.0.0.1:9/elsewhere"),
    "redirects with a body": response({"jsonrpc": "2.0", "id": 7, "result": {}}, "302 Found", location="/x"),
    "of another type": response(b"<html>", kind="text/html"),
    "no type": response({"jsonrpc": "2.0", "id": 7, "result": {}}, kind=""),
    "compressed": response(b"\x1f\x8b" + b"0" * 50, content_encoding="gzip"),
    "says that it is compressed": response({"jsonrpc": "2.0", "id": 7, "result": {}}, content_encoding="gzip"),
    "no JSON": response(b"{'a': 1}"),
    "nothing": response(b""),
    "acknowledges a request": response(b"", "202 Accepted", ""),
    "a list": response([{"jsonrpc": "2.0", "id": 7, "result": {}}]),
    "NaN": response(b'{"jsonrpc": "2.0", "id": 7, "result": {"a": NaN}}'),
    "nested too deep": response(b'{"a":' * 190 + b"1" + b"}" * 190),
    "another id": with_id(8),
    "an id of another type": with_id("7"),
    "an id that Python takes for it": with_id(7.0),
    "no id": with_id(None),
    "no version": response({"id": 7, "result": {}}),
    "neither": response({"jsonrpc": "2.0", "id": 7}),
    "both": response({"jsonrpc": "2.0", "id": 7, "result": {}, "error": {"code": 1, "message": ""}}),
    "a result that is none": response({"jsonrpc": "2.0", "id": 7, "result": [1]}),
    "an error that is none": response({"jsonrpc": "2.0", "id": 7, "error": {"code": "1", "message": ""}}),
    "an error that is a text": response({"jsonrpc": "2.0", "id": 7, "error": "no"}),
    "an event that is no JSON": stream(b"data: {\n\n"),
    "an event that is a list": stream(b"data: []\n\n"),
    "an event with another id": stream(event({"jsonrpc": "2.0", "id": 8, "result": {}})),
    "an event that is no UTF-8": stream(b"data: \xff\n\n"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_not_the_protocols_is_a_fault_and_goes_no_further(lie: str) -> None:
    async with backend(says(LIES[lie])) as (lying, upstream):
        with pytest.raises(BackendBroken) as caught:
            await upstream.request(call(), {}, deadline=soon(), retry=Safe())
        assert len(lying.asked) == 1
    assert caught.value.begun
    assert "html" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        response(b"[" + b" " * 2_000 + b"]"),
        response(b"", content_length="9" * 18),
        stream(b" " * 600, b" " * 600, kind="application/json"),
        stream(b"data: " + b"a" * 2_000),
        stream(*[b"data: " + b"a" * 90 + b"\n"] * 20),
        stream(b": " + b"a" * 2_000),
    ],
    ids=["body", "announced", "body in chunks", "event", "event of many lines", "comment"],
)
async def test_what_is_too_large_is_not_read_to_its_end_and_says_nothing_of_the_backends_health(data: bytes) -> None:
    async with backend(says(data)) as (_, upstream):
        for _ in range(10):
            with pytest.raises(BackendBroken, match="too large"):
                await ask(upstream)
        assert upstream.breaker.position is Position.CLOSED


async def test_endless_comments_end_at_a_bound_and_the_backend_is_hung_up_on() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(end=False))
        while True:
            writer.write(chunk(b": still here\n\n"))
            await writer.drain()
            await asyncio.sleep(0)

    async with backend(answer) as (lying, upstream):
        with pytest.raises(BackendBroken, match="signs of life"):
            await ask(upstream)
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)


async def test_a_comment_now_and_then_and_nothing_else_ends_after_a_time() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(end=False))
        while True:
            writer.write(chunk(b":\n\n"))
            await asyncio.sleep(0.02)

    bounds = replace(BOUNDS, events=SSEBounds(quiet_seconds=0.1))
    async with backend(answer, bounds) as (_, upstream):
        with pytest.raises(BackendTimeout):
            await ask(upstream)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "404 Not Found"])
async def test_a_status_that_refuses_is_no_answer_and_no_illness(status: str) -> None:
    refusal = response({"error": "invalid_token"}, status, www_authenticate="Bearer realm=secret")
    async with backend(says(refusal)) as (lying, upstream):
        for _ in range(10):
            with pytest.raises(BackendRefused) as caught:
                await upstream.request(call("tasks/get"), {}, deadline=soon(), retry=Safe())
            assert "secret" not in json.dumps(caught.value.error())
        assert len(lying.asked) == 10
        assert upstream.breaker.position is Position.CLOSED


async def test_a_backend_without_room_is_left_alone_for_as_long_as_it_asks() -> None:
    async with backend(says(response(b"", "429 Too Many Requests", "", retry_after="7"))) as (_, upstream):
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert (caught.value.retry_after_ms, caught.value.begun, caught.value.counts) == (7_000, False, False)


async def test_a_backend_keeps_nobody_away_for_days() -> None:
    async with backend(says(response(b"", "429 Too Many Requests", "", retry_after="999999"))) as (_, upstream):
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert caught.value.retry_after_ms == 3_600_000


@pytest.mark.parametrize("wish", ["", "soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT", "\u00b2", "9" * 400])
async def test_a_wish_that_is_no_number_of_seconds_is_none(wish: str) -> None:
    async with backend(says(response(b"", "429 Too Many Requests", "", retry_after=wish))) as (_, upstream):
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert caught.value.retry_after_ms == 1_000


async def test_a_head_without_end_is_given_up() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: and more\r\n" * 100)
            await writer.drain()

    async with backend(answer) as (lying, upstream):
        with pytest.raises(BackendUnavailable):
            await ask(upstream)
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)


async def test_the_log_says_what_it_was_and_clients_do_not_hear_it(caplog: pytest.LogCaptureFixture) -> None:
    async with backend(says(b"", end=True)) as (_, upstream):
        for _ in range(3):
            with pytest.raises(BackendUnavailable) as caught:
                await ask(upstream)
            assert "RemoteProtocolError" not in json.dumps(caught.value.error())
    assert [record.message for record in caplog.records if "RemoteProtocolError" in record.message] == [
        "The backend b hung up before it had answered (RemoteProtocolError)"
    ]


async def test_a_proxy_that_says_so_may_say_it_of_a_backend_that_died_at_the_request() -> None:
    async with backend(says(response(b"<html>", "503 Service Unavailable", "text/html"))) as (_, upstream):
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert (caught.value.begun, caught.value.counts) == (True, True)


async def test_what_comes_after_the_response_is_nobodys() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(event(result(asked)), event(NOTE), event(result(asked, second=True)), end=False))
        await asyncio.Event().wait()

    async with backend(answer) as (_, upstream):
        reply = await ask(upstream)
    assert reply.message == {"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete"}}


async def test_a_header_that_can_not_be_sent_is_the_requests_fault() -> None:
    async with backend(answers) as (_, upstream):
        with pytest.raises(Fault) as caught:
            await ask(upstream, None, **{"mcp-param-x": "a\r\nhost: b"})
        assert not caught.value.counts
        assert not caught.value.begun
        await ask(upstream)


# -- hanging and dying -------------------------------------------------------------------------------------------------


async def test_nobody_listens_there() -> None:
    async with liar(answers) as lying:
        pass
    async with Upstream("b", lying.url, BOUNDS) as upstream:
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert (caught.value.begun, caught.value.counts) == (False, True)
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-ty",
        response(b'{"jsonrpc": "2.0"', content_length="500"),
        stream(event(NOTE), end=False),
        stream(event(NOTE)),
        stream(),
        b"220 smtp.example ESMTP\r\n",
    ],
    ids=["at once", "in the head", "in the body", "in a stream", "a stream that ends", "no event", "no HTTP"],
)
async def test_a_backend_that_dies_may_have_carried_it_out(data: bytes) -> None:
    async with backend(says(data, end=True)) as (_, upstream):
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert (caught.value.begun, caught.value.counts) == (True, True)


@pytest.mark.parametrize(
    "data",
    [b"", response(b'{"jsonrpc"', content_length="500"), stream(event(NOTE), end=False)],
    ids=["no head", "in the body", "in a stream"],
)
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
async def test_a_backend_that_hangs_is_given_up_at_the_deadline_and_hears_of_it(data: bytes, method: str) -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await asyncio.Event().wait()

    async with backend(answer) as (lying, upstream):
        for seconds in (0.1, 1, 10):
            with pytest.raises(BackendTimeout) as caught:
                await upstream.request(call(method), {}, deadline=anyio.current_time() + seconds)
            if lying.asked:  # else the machine was too busy to send it by then
                break
        await asyncio.wait_for(lying.hung_up.wait(), PATIENCE)
    # A call runs somebody's code, which may take its time; a look at a task may not.
    assert (caught.value.begun, caught.value.counts) == (True, method == "tasks/get")


async def test_a_body_that_drips_is_given_up_at_the_deadline_all_the_same() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(end=False, kind="application/json"))
        while True:
            writer.write(chunk(b" "))
            await asyncio.sleep(0.01)

    async with backend(answer) as (_, upstream):
        with pytest.raises(BackendTimeout):
            await upstream.request(call(), {}, deadline=anyio.current_time() + 0.1)


async def test_what_runs_nobodys_code_has_to_begin_to_answer_soon() -> None:
    async with backend(hangs, replace(BOUNDS, read=0.05)) as (_, upstream):
        with pytest.raises(BackendTimeout):
            await ask(upstream, call("tasks/get"))


async def test_a_stream_without_a_sign_of_life_is_given_up() -> None:
    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(event(NOTE), end=False))
        await asyncio.Event().wait()

    async with (
        backend(answer, replace(BOUNDS, idle=0.05)) as (_, upstream),
        upstream.stream(call("subscriptions/listen"), {}, deadline=math.inf) as exchange,
    ):
        events = exchange.events()
        assert await anext(events) == NOTE
        with pytest.raises(BackendTimeout):
            await anext(events)


async def test_the_total_is_a_bound_whatever_deadline_is_asked_for() -> None:
    async with backend(hangs, replace(BOUNDS, total=0.05)) as (_, upstream):
        with pytest.raises(BackendTimeout):
            await upstream.request(call(), {}, deadline=math.inf)


async def test_a_backend_that_does_not_speak_tls_where_it_should_is_not_reached() -> None:
    def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, Upstream("b", url, BOUNDS, verify=False) as upstream:
        with pytest.raises(BackendUnavailable) as caught:
            await ask(upstream)
    assert not caught.value.begun


async def test_a_backend_that_dies_right_after_the_response_has_answered() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(stream(event(result(asked)), end=False))
        await writer.drain()
        writer.close()

    async with backend(answer) as (_, upstream):
        assert (await ask(upstream)).status == 200
        assert upstream.breaker.position is Position.CLOSED


@pytest.mark.parametrize(
    ("error", "kind", "begun", "counts"),
    [
        (httpx2.ConnectTimeout, BackendTimeout, False, True),
        (httpx2.WriteTimeout, BackendTimeout, True, True),
        (httpx2.PoolTimeout, BackendTimeout, False, False),
        (httpx2.ConnectError, BackendUnavailable, False, True),
        (httpx2.ProxyError, BackendUnavailable, False, True),
        (httpx2.ReadError, BackendUnavailable, True, True),
        (httpx2.WriteError, BackendUnavailable, True, True),
        (httpx2.RemoteProtocolError, BackendUnavailable, True, True),
        (httpx2.LocalProtocolError, Fault, False, False),
    ],
)
def test_an_error_of_the_connection_tells_whether_anything_was_sent(
    error: type[httpx2.TransportError], kind: type[Fault], begun: bool, counts: bool
) -> None:
    fault = of_transport("b", error("of 127.0.0.1"))
    assert type(fault) is kind
    assert (fault.begun, fault.counts) == (begun, counts)
    assert "127.0.0.1" not in json.dumps(fault.error())
