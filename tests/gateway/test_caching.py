"""Lists are kept for as long as their backends say, and for whom."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from perdure.domain.model import Owner
from perdure.gateway import shelf
from perdure.gateway.backends import Asker
from perdure.gateway.config import parse
from perdure.gateway.shelf import KINDS, TOOLS
from tests.gateway.raw_backend import Asked, liar, response, result
from tests.gateway.support import Front, fronting
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import envelope

ADA, EVE = Asker(Owner("", "ada")), Asker(Owner("", "eve"))


class Listing:
    """A backend with one tool, named after how often it was asked for its list."""

    def __init__(self, **hint: Any) -> None:
        self.hint = hint
        self.capabilities: Any = {"tools": {}}
        self.fresh_ms = 60_000
        self.asked = 0
        self.pages: list[Any] = []
        self.before_it_answers: Callable[[], Awaitable[object]] | None = None

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        message = asked.message
        if message["method"] == "server/discover":
            versions = {"supportedVersions": ["2026-07-28"]}
            hint: Any = {"ttlMs": self.fresh_ms, "cacheScope": "public"}
            writer.write(response(result(asked, **hint, capabilities=self.capabilities, **versions)))
        else:
            self.asked += 1
            tool: Any = {"name": f"t{self.asked}", "inputSchema": {"type": "object"}}
            page: Any = self.pages.pop(0) if self.pages else {"tools": [tool]}
            if self.before_it_answers is not None:
                await self.before_it_answers()
            writer.write(response(result(asked, **{**self.hint, **page})))
        await writer.drain()

    @asynccontextmanager
    async def fronted(self) -> AsyncGenerator[Front]:
        async with liar(self.answer) as up, fronting({"it": up.url}) as front:
            yield front


@asynccontextmanager
async def without_prefixes(one: Listing, two: Listing) -> AsyncGenerator[Front]:
    """A gateway before both, `a` and `b`, of which each may have any name."""
    async with liar(one.answer) as first, liar(two.answer) as second:
        tables = (f'[backends.{name}]\nurl = "{at.url}"\nprefix = ""\n' for name, at in (("a", first), ("b", second)))
        config = parse('[gateway]\nstore = "memory"\n' + "".join(tables))
        async with fronting({}, config=config) as front:
            yield front


async def listed(front: Front, asker: Asker = ADA) -> Any:
    return await front.gateway.catalog.page(KINDS[TOOLS], None, asker)


async def test_a_public_list_is_asked_for_once_and_passed_on_with_its_hint() -> None:
    backend = Listing(ttlMs=60_000, cacheScope="public")
    async with backend.fronted() as front:
        for asker in (ADA, ADA, EVE):
            page = await listed(front, asker)
            assert [tool["name"] for tool in page["tools"]] == ["it_t1"]
            assert page["cacheScope"] == "public"
            assert 50_000 < page["ttlMs"] <= 60_000


async def test_clients_may_keep_what_was_kept_here_for_no_longer_than_its_backend_said() -> None:
    backend = Listing(ttlMs=60_000, cacheScope="public")
    async with backend.fronted() as front:

        async def hints() -> list[int]:
            discovered = await front.gateway.catalog.discovery.result(ADA)
            return [cast("int", each["ttlMs"]) for each in (await listed(front), discovered)]

        first = await hints()

        async def less_is_left() -> bool:
            return all(now < before for now, before in zip(await hints(), first, strict=True))

        await eventually(less_is_left, "the whole ttl was said again")
        assert backend.asked == 1


async def test_a_private_list_is_kept_for_its_owner_alone() -> None:
    async with Listing(ttlMs=60_000, cacheScope="private").fronted() as front:
        names = [(await listed(front, asker))["tools"][0]["name"] for asker in (ADA, EVE, ADA, EVE)]
        assert names == ["it_t1", "it_t2", "it_t1", "it_t2"]


async def test_a_list_without_a_hint_is_stale_at_once_and_private() -> None:
    async with Listing().fronted() as front:
        assert (await listed(front))["tools"][0]["name"] == "it_t1"
        page = await listed(front)
        assert page["tools"][0]["name"] == "it_t2"
        assert (page["ttlMs"], page["cacheScope"]) == (0, "private")


async def test_all_pages_of_a_backend_are_one_list_with_the_shortest_hint() -> None:
    backend = Listing(cacheScope="public")
    backend.pages = [
        {"tools": [{"name": "a", "inputSchema": {"type": "object"}}], "nextCursor": "more", "ttlMs": 5_000},
        {"tools": [{"name": "b", "inputSchema": {"type": "object"}}], "ttlMs": 3_000},
    ]
    async with backend.fronted() as front:
        page = await listed(front)
        assert [tool["name"] for tool in page["tools"]] == ["it_a", "it_b"]
        assert 0 < page["ttlMs"] <= 3_000


async def test_a_backend_whose_cursors_never_end_is_an_error_and_no_endless_loop() -> None:
    backend = Listing()
    backend.pages = [{"tools": [], "nextCursor": "again"}] * 3
    async with backend.fronted() as front:
        reply = await front.client.exchange(envelope("tools/list"))
        assert (reply.status, reply.error["data"]["backend"]) == (502, "it")


async def test_a_list_that_is_none_is_an_error() -> None:
    backend = Listing()
    backend.pages = [{"tools": {"title": "nameless"}}]
    async with backend.fronted() as front:
        assert (await front.client.exchange(envelope("tools/list"))).status == 502


async def test_a_backend_without_the_capability_is_not_asked() -> None:
    backend = Listing()
    backend.capabilities = {"prompts": {}}
    async with backend.fronted() as front:
        assert (await listed(front))["tools"] == []
        assert backend.asked == 0


async def test_what_a_backend_said_of_itself_last_stands_in_for_it_while_it_is_away() -> None:
    backend = Listing()
    backend.capabilities, backend.fresh_ms = {"tools": {}, "extensions": {"com.example/maps": {}}}, 0

    async def full(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response({}, status="503 Service Unavailable"))
        await writer.drain()

    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        before = (await front.client.request("server/discover")).result
        up.answer = full
        after = (await front.client.request("server/discover")).result
    assert after["capabilities"] == before["capabilities"]
    assert after["ttlMs"] == 0


async def test_what_was_listed_last_stands_in_for_a_backend_that_fails() -> None:
    backend = Listing(cacheScope="public")
    async with backend.fronted() as front:
        assert (await listed(front))["tools"][0]["name"] == "it_t1"
        backend.pages = [{"tools": "nonsense"}]
        page = await listed(front)
        assert [tool["name"] for tool in page["tools"]] == ["it_t1"]
        assert page["ttlMs"] == 0


@pytest.mark.parametrize("ttl_ms", [0, 60_000])
async def test_a_tool_that_was_added_since_the_last_list_is_found_where_names_stay_as_they_are(
    ttl_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may have listed it at another gateway, or have got its name with the result of a call."""
    monkeypatch.setattr(shelf, "_LATELY", 0.0)
    one, two = (Listing(ttlMs=ttl_ms, cacheScope="public") for _ in range(2))
    async with without_prefixes(one, two) as front:
        two.pages = [{"tools": [{"name": "other", "inputSchema": {"type": "object"}}]}]
        assert len((await listed(front))["tools"]) == 2
        two.pages = [{"tools": [{"name": "new", "inputSchema": {"type": "object"}}]}]
        found = await front.gateway.catalog.tool("new", ADA)
        assert found is not None
        assert (found[0].name, found[1]) == ("b", "new")
        assert await front.gateway.catalog.tool("none at all", ADA) is None


async def test_names_that_nobody_has_do_not_cost_a_list_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "_LATELY", 3_600.0)
    one, two = (Listing(ttlMs=60_000, cacheScope="public") for _ in range(2))
    async with without_prefixes(one, two) as front:
        for number in range(10):
            assert await front.gateway.catalog.tool(f"none_{number}", ADA) is None
    assert (one.asked, two.asked) == (1, 1)


async def test_a_list_that_changed_while_it_was_asked_for_is_asked_for_anew() -> None:
    """By whoever hears of the change: what is on its way is from before it. Clients are told to keep it no longer."""
    backend = Listing(ttlMs=60_000, cacheScope="public")
    asked, answering = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        asked.set()
        await answering.wait()

    async with backend.fronted() as front:
        backend.before_it_answers = hold
        front.gateway.catalog.forget("it", [TOOLS])  # what was listed at the start
        before = backend.asked
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            first = group.create_task(listed(front))
            await asked.wait()
            front.gateway.catalog.forget("it", [TOOLS])
            later = group.create_task(listed(front, EVE))
            await anyio.wait_all_tasks_blocked()
            backend.before_it_answers = None
            answering.set()
        assert first.result()["ttlMs"] == 0
        assert [tool["name"] for tool in later.result()["tools"]] == [f"it_t{before + 2}"]
        assert backend.asked == before + 2
        assert (await listed(front))["tools"] == later.result()["tools"]
