"""The janitor before real backends: what nobody polled to its end is found out, and stays readable meanwhile."""

import pytest

from perdure.domain import ids
from perdure.domain.routing import UNHEARD_MS
from perdure.gateway.asking import Asking
from perdure.gateway.janitor import Janitor, Nothing
from perdure.store.memory import MemoryRoutes
from perdure.testing import VirtualClock
from perdure.wire.identity import ANONYMOUS
from tests.gateway.conftest import Pair
from tests.gateway.support import fronting


def mint() -> str:
    return ids.mint(lambda n: b"\1" * n)


async def test_a_task_that_nobody_polled_is_found_to_be_over_and_one_that_is_unknown_too(pair: Pair) -> None:
    """One that has no ttl is there for good, over or not."""
    clock = VirtualClock()
    routes = MemoryRoutes(clock)
    async with fronting({"one": pair.one.client.url, "two": pair.two.client.url}, routes=routes) as front:
        task_id = await front.client.start("one_hello", {"name": "Ada"})
        brief = await front.client.start("one_must")
        at_work = await front.client.start("two_gated")
        unknown = (await routes.lay(ANONYMOUS, "two", mint(), None, mint())).id
        for each in (task_id, brief):
            await pair.one.client.until((await routes.find(ANONYMOUS, each)).backend_task_id)
        clock.advance(1_000 * UNHEARD_MS)
        keeper = Janitor(routes, Asking(front.gateway.backends), clock, retention_ms=1_000)
        while await keeper.sweep():
            pass
        found = await routes.find_many(ANONYMOUS, [task_id, brief, at_work, unknown])
        assert {each for each, route in found.items() if route.ended} == {brief, unknown}
        assert (await front.client.until(task_id))["result"]["content"][0]["text"] == "Hello, Ada!"


@pytest.mark.parametrize("backend", ["one", "elsewhere"])
async def test_a_backend_that_is_away_or_not_configured_says_nothing(backend: str) -> None:
    routes = MemoryRoutes(VirtualClock())
    route = await routes.lay(ANONYMOUS, backend, mint(), None, mint())
    async with fronting({"one": "http://127.0.0.1:1/mcp"}, routes=routes) as front:
        assert await Asking(front.gateway.backends)(route) is Nothing.UNREACHABLE
