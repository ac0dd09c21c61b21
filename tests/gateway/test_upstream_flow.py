"""One backend over real HTTP: when it is left alone, who waits for a place, and what is sent twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from perdure.domain.names import IDEMPOTENCY, IDEMPOTENCY_KEY
from perdure.gateway.breaker import BreakerBounds, Position
from perdure.gateway.faults import (
    BackendRefused,
    BackendUnavailable,
    Fault,
    Overloaded,
)
from perdure.gateway.upstream import Safe, Upstream
from tests.support import PATIENCE, eventually

from .raw_backend import Asked, event, liar, response, result, stream
from .upstreams import BOUNDS, NOTE, answers, ask, backend, call, hangs, says, soon


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


async def test_a_trial_that_is_given_up_leaves_room_for_the_next_and_one_that_is_refused_is_answered() -> None:
    now = 0.0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["id"] == 7:
            await asyncio.Event().wait()
        writer.write(response(b"", "401 Unauthorized", ""))

    async with liar(answer) as lying, Upstream("b", lying.url, BOUNDS, clock=lambda: now) as upstream:
        upstream.breaker.open()
        now = upstream.breaker.wait
        trial = asyncio.create_task(ask(upstream))
        await eventually(lambda: bool(lying.asked), "it was asked")
        with pytest.raises(BackendUnavailable):
            await ask(upstream, call(id=8))
        trial.cancel()
        await asyncio.wait([trial])
        with pytest.raises(BackendRefused):
            await ask(upstream, call(id=8))
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


async def test_who_waited_while_the_breaker_opened_is_not_sent_after_all() -> None:
    fail = asyncio.Event()

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        await fail.wait()
        writer.write(response(b"", "502 Bad Gateway", ""))

    bounds = replace(BOUNDS, calls=1, breaker=BreakerBounds(failures=1))
    async with backend(answer, bounds) as (lying, upstream):
        first, second = [asyncio.create_task(ask(upstream)) for _ in range(2)]
        await eventually(lambda: bool(lying.asked) and upstream.calls.line.waiting == 1, "one is there, one waits")
        fail.set()
        gathered = await asyncio.gather(first, second, return_exceptions=True)
        assert len(lying.asked) == 1
    assert [cast("Fault", each).begun for each in gathered] == [True, False]


async def test_requests_that_are_cancelled_at_any_moment_leave_no_connection_behind() -> None:
    """However far one had come: before its connection, in its head, in its body."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        whole = response(result(asked, text="a" * 500))
        for at in range(0, len(whole), 40):
            writer.write(whole[at : at + 40])
            await asyncio.sleep(0)

    async with backend(answer, replace(BOUNDS, calls=2)) as (_, upstream):
        for turns in range(60):
            request = asyncio.create_task(ask(upstream))
            for _ in range(turns):
                await asyncio.sleep(0)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        assert upstream.calls.line.inside == 0
        await asyncio.wait_for(asyncio.gather(*(ask(upstream) for _ in range(10))), PATIENCE)
        assert upstream.breaker.position is Position.CLOSED


async def test_a_stream_is_asked_for_again_until_it_has_begun_and_not_after() -> None:
    failing = [stream(event(NOTE), end=False), b""]

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(failing.pop())
        writer.close()

    async with backend(answer) as (lying, upstream):
        async with upstream.stream(call("tasks/get"), {}, deadline=soon(), retry=Safe()) as exchange:
            assert upstream.calls.line.inside == 1
            events = exchange.events()
            assert await anext(events) == NOTE
            with pytest.raises(BackendUnavailable):
                await anext(events)
        assert len(lying.asked) == 2
        assert upstream.calls.line.inside == 0


async def test_a_place_is_not_held_between_two_tries() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["id"] == 7:
            writer.write(response(b"", "502 Bad Gateway", ""))
        else:
            await answers(asked, writer)

    async with backend(answer, replace(BOUNDS, calls=1, queue=0)) as (lying, upstream):
        stubborn = asyncio.create_task(
            upstream.request(call("tasks/get"), {}, deadline=soon(), retry=Safe(first=PATIENCE, longest=PATIENCE))
        )
        await eventually(lambda: bool(lying.asked) and not upstream.calls.line.inside, "it waits for another try")
        assert (await ask(upstream, call(id=8))).status == 200
        stubborn.cancel()
        await asyncio.wait([stubborn])
