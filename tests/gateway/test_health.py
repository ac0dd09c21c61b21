"""Probes, and what the breaker hears of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from perdure.domain.names import IDEMPOTENCY
from perdure.gateway.breaker import BreakerBounds, Position
from perdure.gateway.faults import BackendRefused, BackendUnavailable
from perdure.gateway.health import Health, HealthBounds
from perdure.gateway.upstream import Bounds, Upstream
from tests.support import PATIENCE, eventually

from .raw_backend import Asked, Liar, liar, response, result
from .upstreams import place

BOUNDS = Bounds(connect=PATIENCE, breaker=BreakerBounds(failures=100, pause=2.0))


@dataclass
class Ward:
    """A backend that does as it is told, and who looks after it. `now`: the breaker's clock."""

    how: str = "well"
    now: float = 0.0

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        match self.how:
            case "well":
                writer.write(response(result(asked, capabilities={"extensions": {IDEMPOTENCY: {}}})))
            case "an error":
                error = {"code": -32601, "message": "Method not found"}
                writer.write(response({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, "404 Not Found"))
            case "refuses":
                writer.write(response(b"", "401 Unauthorized", ""))
            case "hangs":
                await asyncio.Event().wait()
            case _:
                writer.close()


@asynccontextmanager
async def ward(bounds: Bounds = BOUNDS, **options: Any) -> AsyncGenerator[tuple[Ward, Liar, Upstream, Health]]:
    made = Ward()
    async with liar(made.answer) as server, Upstream("b", server.url, bounds, clock=lambda: made.now) as upstream:
        yield made, server, upstream, Health(upstream, HealthBounds(within=PATIENCE), **options)


async def test_a_probe_asks_what_the_backend_can_do_and_that_is_kept() -> None:
    async with ward() as (_, server, upstream, health):
        assert await health.probe()
        assert upstream.safe({"method": "tools/call", "params": {"_meta": {"dev.perdure/idempotencyKey": "k"}}})
    (asked,) = server.asked
    assert asked.message["method"] == asked.headers["mcp-method"] == "server/discover"
    meta = asked.message["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == asked.headers["mcp-protocol-version"]


@pytest.mark.parametrize("how", ["dies", "hangs"])
async def test_after_some_failures_in_a_row_the_breaker_opens(how: str) -> None:
    async with ward() as (backend, _, upstream, health):
        brief, patient = HealthBounds(within=0.05 if how == "hangs" else PATIENCE), HealthBounds(within=PATIENCE)
        health = Health(upstream, brief)
        backend.how = how
        assert not await health.probe()
        # What is well answers, and not by then.
        backend.how, vars(health)["_bounds"] = "well", patient
        assert await health.probe()
        backend.how, vars(health)["_bounds"] = how, brief
        assert not await health.probe()
        assert upstream.breaker.position is Position.CLOSED
        assert not await health.probe()
        assert upstream.breaker.position is Position.OPEN
        assert health.last is not None


async def test_a_probe_that_comes_back_closes_it_but_not_before_its_pause_is_over() -> None:
    async with ward() as (backend, _, upstream, health):
        upstream.breaker.open()
        assert await health.probe()
        assert upstream.breaker.position is Position.OPEN
        backend.now = 2.0
        assert await health.probe()
        assert upstream.breaker.position is Position.CLOSED


async def test_a_probe_that_fails_after_the_pause_is_a_trial_that_failed() -> None:
    async with ward() as (backend, _, upstream, health):
        backend.how = "dies"
        for _ in range(5):
            await health.probe()
        assert upstream.breaker.wait == 2.0
        backend.now = 2.0
        await health.probe()
        assert upstream.breaker.wait == 4.0


@pytest.mark.parametrize("how", ["an error", "refuses"])
async def test_a_backend_that_answers_is_well_enough_to_be_asked(how: str) -> None:
    async with ward() as (backend, _, upstream, health):
        backend.how = how
        for _ in range(5):
            await health.probe()
        assert upstream.breaker.position is Position.CLOSED
        assert isinstance(health.last, BackendRefused) == (how == "refuses")


async def test_a_backend_that_is_full_is_not_ill() -> None:
    async with (
        ward(replace(BOUNDS, calls=1, queue=0)) as (_, _server, upstream, health),
        place(upstream.calls, "a", anyio.current_time() + PATIENCE),
    ):
        assert await health.probe()


async def test_it_goes_on_until_it_is_cancelled_and_a_backend_that_comes_back_is_found() -> None:
    pauses, go_on = list[float](), asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await go_on.acquire()

    async with ward(sleep=sleep, chance=lambda: 1.0) as (backend, _, upstream, health):
        backend.how = "dies"
        async with anyio.create_task_group() as group:
            group.start_soon(health.run)
            go_on.release()
            await eventually(lambda: upstream.breaker.position is Position.OPEN, "the breaker opens")
            with pytest.raises(BackendUnavailable):
                await upstream.request(
                    {"jsonrpc": "2.0", "id": 1, "method": "x"}, {}, deadline=anyio.current_time() + 1
                )
            backend.how, backend.now = "well", 2.0
            go_on.release()
            await eventually(lambda: upstream.breaker.position is Position.CLOSED, "the breaker closes")
            group.cancel_scope.cancel()
    assert set(pauses) == {12.0}
