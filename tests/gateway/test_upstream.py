"""One backend over real HTTP: what comes of good answers, and of every way in which one can lie, hang or die."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from perdure.domain.errors import ConfigurationError
from perdure.domain.model import JSONObject
from perdure.domain.names import IDEMPOTENCY, IDEMPOTENCY_KEY
from perdure.gateway.breaker import BreakerBounds, Position
from perdure.gateway.faults import (
    BackendBroken,
    BackendRefused,
    BackendTimeout,
    BackendUnavailable,
    Fault,
    Overloaded,
)
from perdure.gateway.sse import SSEBounds
from perdure.gateway.upstream import Bounds, Reply, Safe, Upstream
from tests.support import PATIENCE, eventually

from .raw_backend import Answer, Asked, Liar, chunk, event, liar, response, result, stream

BOUNDS = Bounds(connect=PATIENCE, read=PATIENCE, body=1_000, events=SSEBounds(event=1_000, quiet_bytes=500))
NOTE: JSONObject = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1, "own": None}}


def call(method: str = "tools/call", id: Any = 7, **params: Any) -> JSONObject:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def soon() -> float:
    return anyio.current_time() + PATIENCE


def says(data: bytes, *, end: bool = False) -> Answer:
    """Whatever is asked. `end`: and hangs up."""

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if end:
            writer.close()

    return answer


async def answers(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(response(result(asked)))


async def hangs(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def backend(answer: Answer, bounds: Bounds = BOUNDS) -> AsyncGenerator[tuple[Liar, Upstream]]:
    async with liar(answer) as lying, Upstream("b", lying.url, bounds, chance=lambda: 1.0) as upstream:
        yield lying, upstream


async def ask(upstream: Upstream, message: JSONObject | None = None, **headers: str) -> Reply:
    return await upstream.request(message or call(), headers, deadline=soon())


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
                "Connection": "close, x-hop",
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


# -- lies --------------------------------------------------------------------------------------------------------------


def with_id(id: Any) -> bytes:
    return response({"jsonrpc": "2.0", "id": id, "result": {}})


LIES: Mapping[str, bytes] = {
    "redirects": response(b"", "307 Temporary Redirect", location="http://127.0.0.1:9/elsewhere"),
    "redirects with a body": response({"jsonrpc": "2.0", "id": 7, "result": {}}, "302 Found", location="/x"),
    "of another type": response(b"<html>", kind="text/html"),
    "no type": response({"jsonrpc": "2.0", "id": 7, "result": {}}, kind=""),
    "compressed": response(b"\x1f\x8b" + b"0" * 50, content_encoding="gzip"),
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
        with pytest.raises(BackendTimeout) as caught:
            await upstream.request(call(method), {}, deadline=anyio.current_time() + 0.1)
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


# -- flow control ------------------------------------------------------------------------------------------------------


async def test_the_breaker_leaves_alone_what_failed_and_asks_again_after_the_pause() -> None:
    now = 0.0
    working = False

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response(result(asked)) if working else response(b"", "502 Bad Gateway", ""))

    bounds = replace(BOUNDS, breaker=BreakerBounds(failures=3, pause=2.0))
    async with liar(answer) as lying, Upstream("b", lying.url, bounds, clock=lambda: now) as upstream:
        for _ in range(3):
            with pytest.raises(BackendUnavailable):
                await ask(upstream)
        with pytest.raises(BackendUnavailable) as caught:
            await upstream.request(call("tasks/get"), {}, deadline=soon(), retry=Safe())
        assert len(lying.asked) == 3
        assert (caught.value.retry_after_ms, caught.value.begun) == (2_000, False)
        now, working = 2.0, True
        await ask(upstream)
        assert upstream.breaker.position is Position.CLOSED


async def test_streams_that_break_off_open_the_breaker_too() -> None:
    bounds = replace(BOUNDS, breaker=BreakerBounds(failures=3))
    async with backend(says(stream(event(NOTE), end=False), end=True), bounds) as (_, upstream):
        for _ in range(3):
            with pytest.raises(BackendUnavailable):
                await ask(upstream)
        assert upstream.breaker.position is Position.OPEN


async def test_a_full_backend_is_an_overload_and_a_stream_takes_no_calls_place() -> None:
    bounds = replace(BOUNDS, calls=1, queue=0, streams=1)
    async with backend(hangs, bounds) as (lying, upstream), asyncio.TaskGroup() as group:
        busy = [group.create_task(ask(upstream, call(method))) for method in ("tools/call", "subscriptions/listen")]
        await eventually(lambda: len(lying.asked) == 2, "both are there")
        for method in ("tools/call", "subscriptions/listen"):
            with pytest.raises(Overloaded):
                await ask(upstream, call(method))
        assert len(lying.asked) == 2
        for each in busy:
            each.cancel()


async def test_what_is_safe_is_sent_again_after_a_failure() -> None:
    failing = [response(b"", "502 Bad Gateway", ""), b""]

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if failing:
            writer.write(failing.pop())
            writer.close()
        else:
            writer.write(response(result(asked)))

    message = call("tasks/get")
    async with backend(answer) as (lying, upstream):
        reply = await upstream.request(message, {}, deadline=soon(), retry=upstream.safe(message))
        assert reply.status == 200
        assert len(lying.asked) == 3


async def test_a_call_is_sent_once_unless_the_backend_honours_its_key() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            writer.write(response(result(asked, capabilities={"extensions": {IDEMPOTENCY: {}}})))
        else:
            writer.close()

    message = call(name="t", _meta={IDEMPOTENCY_KEY: "k"})
    async with backend(answer) as (lying, upstream):
        with pytest.raises(BackendUnavailable):
            await upstream.request(message, {}, deadline=soon(), retry=upstream.safe(message))
        assert len(lying.asked) == 1
        await ask(upstream, call("server/discover"))
        with pytest.raises(BackendUnavailable) as caught:
            await upstream.request(message, {}, deadline=soon(), retry=upstream.safe(message))
        assert len(lying.asked) == 2 + upstream.bounds.retry.tries
    assert caught.value.begun


async def test_what_may_have_been_carried_out_at_the_first_try_is_not_undone_by_the_last() -> None:
    async with liar(says(b"", end=True)) as lying:
        upstream = await Upstream("b", lying.url, BOUNDS).__aenter__()
        request = asyncio.create_task(
            upstream.request(call("tasks/get"), {}, deadline=soon(), retry=Safe(tries=2, first=0.3))
        )
        await eventually(lambda: bool(lying.asked), "it was asked")
    with pytest.raises(BackendUnavailable, match="reached") as caught:
        await request
    await upstream.__aexit__(None, None, None)
    assert cast("dict[str, Any]", caught.value.error()["data"])["dev.perdure/unreachable"] is True
    assert caught.value.begun
