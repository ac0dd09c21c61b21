"""Methods of extensions that the gateway does not know go to the one backend that offers the extension."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from perdure.gateway.extending import owner_of
from tests.gateway.raw_backend import Asked, liar, response, result
from tests.gateway.support import fronting
from tests.gateway.test_lies import HANDLE
from tests.wire.envelopes import envelope

TASKS = "io.modelcontextprotocol/tasks"
MAPS, CHARTS = "com.example/maps", "com.example/charts"
OFFERS = {"one": frozenset({MAPS, TASKS}), "two": frozenset({CHARTS}), "three": frozenset({CHARTS})}


class Offering:
    """A backend that offers extensions, and answers whatever is asked of it with `said`."""

    def __init__(self, *extensions: str, said: Any = None) -> None:
        self.extensions: Any = {name: {} for name in extensions}
        self.said = said or {"drawn": [1, None]}
        self.asked: list[Asked] = []

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            capabilities = {"extensions": self.extensions}
            writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", capabilities=capabilities)))
        else:
            self.asked.append(asked)
            writer.write(response(result(asked, **self.said)))
        await writer.drain()


async def asking(method: str, backends: list[Offering], declared: list[str] | None = None, **options: Any) -> Any:
    """The answer of a gateway before these backends to a request that declares extensions."""
    async with AsyncExitStack() as stack:
        ups = [await stack.enter_async_context(liar(each.answer)) for each in backends]
        urls = {f"b{number}": up.url for number, up in enumerate(ups)}
        front = await stack.enter_async_context(fronting(urls))
        names: dict[str, Any] = {name: {} for name in declared or [MAPS, TASKS]}
        capabilities: Any = {"extensions": names}
        body = envelope(method, {"what": {"own": None}}, capabilities=capabilities)
        return await front.client.exchange(body, options.get("extra"))


@pytest.mark.parametrize(
    ("method", "declared", "owner"),
    [
        ("maps/draw", [], "one"),
        ("com.example/maps/draw", [], "one"),
        ("draw", [MAPS], "one"),
        ("draw", [MAPS, TASKS], "one"),
        ("draw", [TASKS], None),
        ("draw", [], None),
        ("charts/draw", [], None),
        ("draw", [CHARTS], None),
        ("draw", [MAPS, CHARTS], None),
        ("charts/draw", [MAPS], None),
        ("mapsize/draw", [], None),
        ("tasks/list", [MAPS], None),
    ],
)
def test_a_method_is_of_the_one_backend_that_offers_what_it_is_named_after_or_what_its_request_declares(
    method: str, declared: list[str], owner: str | None
) -> None:
    assert owner_of(method, frozenset(declared), OFFERS) == owner


async def test_such_a_request_is_passed_on_and_answered_unchanged() -> None:
    maps, other = Offering(MAPS), Offering()
    reply = await asking("maps/draw", [other, maps], extra={"mcp-name": "a b"})
    assert reply.result == {"resultType": "complete", "drawn": [1, None]}
    (asked,) = maps.asked
    assert asked.message["params"]["what"] == {"own": None}
    assert (asked.headers["mcp-method"], asked.headers["mcp-name"]) == ("maps/draw", "a b")
    assert other.asked == []


async def test_what_nobody_or_several_offer_is_not_found() -> None:
    for backends in ([Offering(), Offering(TASKS)], [Offering(MAPS), Offering(MAPS)]):
        reply = await asking("maps/draw", backends)
        assert (reply.status, reply.code, reply.error["data"]) == (404, -32601, "maps/draw")
        assert [each.asked for each in backends] == [[], []]


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "tasks/result"])
async def test_a_method_of_the_protocols_own_that_is_not_served_is_nobodys(method: str) -> None:
    maps = Offering(MAPS)
    assert (await asking(method, [maps])).code == -32601
    assert maps.asked == []


async def test_a_task_that_comes_of_one_has_a_route() -> None:
    reply = await asking("maps/draw", [Offering(MAPS, TASKS, said=HANDLE)])
    assert reply.result["resultType"] == "task"
    assert b"theirs" not in reply.raw
