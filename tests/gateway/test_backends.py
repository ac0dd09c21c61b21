"""How the names of a backend's are exposed, and what a request to one takes along and says when its time is over."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from mcp.server.auth.provider import AccessToken

from perdure.domain.model import Owner
from perdure.gateway.backends import Asker, Backend, Naming
from perdure.gateway.faults import BackendTimeout, Overloaded
from perdure.gateway.health import Health
from perdure.gateway.identity import HEADER, Anonymous, ExchangeTerms, Key, Passing, SignedHeader, TokenExchange
from perdure.gateway.retrying import Safe
from perdure.gateway.signing import verified
from perdure.gateway.upstream import Upstream
from tests.support import eventually

from .raw_backend import Asked, liar, response
from .raw_backend import result as result_of
from .upstreams import BOUNDS, answers, ask, backend, call, hangs, soon

ADA = Asker(Owner("", "ada"), AccessToken(token="ada's", client_id="app", scopes=[]))
KEY = Key.shared("k", b"x" * 32)
UPDATE = call("tasks/update")


def one(upstream: Upstream, passing: Passing | None = None) -> Backend:
    return Backend("b", upstream, passing or Anonymous(), Health(upstream))


class Clock:
    """`late`: by it, a header that was signed before is good no longer."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def late(self) -> None:
        self.now += 100

    def signing(self) -> SignedHeader:
        return SignedHeader("b", issuer="gw", keys=[KEY], now=self)

    def good(self, asked: Asked) -> bool:
        text = asked.headers[HEADER]
        return verified(text, audience="b", issuer="gw", keys={"k": KEY}, now=self.now)["sub"] == "ada"


async def test_who_asks_is_said_anew_with_each_try() -> None:
    clock, good = Clock(), list[bool]()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        good.append(clock.good(asked))
        clock.late()
        if len(good) % 2:
            writer.close()
        else:
            await answers(asked, writer)

    message, retry = call("tasks/get"), Safe(first=0.0)
    async with backend(answer) as (_, upstream):
        it = one(upstream, clock.signing())
        await it.request(message, {}, ADA, retry=retry)
        async with upstream.stream(message, {}, it.who(ADA), deadline=soon(), retry=retry) as exchange:
            await exchange.body()
    assert good == [True] * 4


async def test_who_asks_is_said_anew_after_a_time_in_the_queue() -> None:
    clock, go_on = Clock(), asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if HEADER in asked.headers:
            assert clock.good(asked)
        else:
            await go_on.wait()
        writer.write(response(result_of(asked)))

    async with backend(answer, replace(BOUNDS, calls=1)) as (lying, upstream), asyncio.TaskGroup() as group:
        group.create_task(ask(upstream))
        await eventually(lambda: bool(lying.asked), "the first one is there")
        waits = group.create_task(one(upstream, clock.signing()).request(call(), {}, ADA))
        await eventually(lambda: upstream.calls.line.waiting == 1, "the second one waits")
        clock.late()
        go_on.set()
        assert (await waits).status == 200


async def test_what_ran_out_of_time_in_the_queue_was_not_begun() -> None:
    async with backend(hangs, replace(BOUNDS, calls=1)) as (lying, upstream):
        busy = asyncio.create_task(ask(upstream))
        await eventually(lambda: bool(lying.asked), "the first one is there")
        with pytest.raises(Overloaded) as caught:
            await one(upstream).request(UPDATE, {}, ADA, within=0.05)
        assert not caught.value.begun
        busy.cancel()
        with suppress(asyncio.CancelledError):
            await busy


async def test_what_ran_out_of_time_at_the_authorization_server_was_not_begun() -> None:
    async with liar(hangs) as server, backend(answers) as (lying, upstream):
        exchange = TokenExchange("b", ExchangeTerms(server.url, "gateway", "secret", audience="b"))
        with pytest.raises(BackendTimeout) as caught:
            await one(upstream, exchange).request(UPDATE, {}, ADA, within=0.05)
        await exchange.aclose()
        assert not lying.asked
    assert (caught.value.begun, caught.value.counts) == (False, False)


async def test_what_ran_out_of_time_at_its_backend_may_have_been_carried_out() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (answers if len(lying.asked) == 1 else hangs)(asked, writer)

    async with backend(answer) as (lying, upstream):
        await ask(upstream)  # so that no time goes by with connecting
        with pytest.raises(BackendTimeout) as caught:
            await one(upstream).request(UPDATE, {}, ADA, within=0.05)
        assert len(lying.asked) == 2
    assert (caught.value.begun, caught.value.counts) == (True, False)


def test_a_name_goes_there_and_back() -> None:
    for naming in (Naming(), Naming("it_"), Naming(mapped={"ours": "read"})):
        exposed = naming.exposed("read")
        assert exposed is not None
        assert naming.theirs(exposed) == "read"
    assert Naming("it_").theirs("read") is None
    assert Naming(mapped={"ours": "read"}).exposed("write") is None
    assert Naming(mapped={"ours": "read"}).theirs("read") is None
