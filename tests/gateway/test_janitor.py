"""No route is deleted while its task can be read, and none stays for ever: doubtful ones are asked about."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import StoreUnavailable, TaskExpired, TaskNotFound, Unreadable
from perdure.domain.model import JSON, JSONObject, Owner, Status
from perdure.domain.routing import UNHEARD_MS, Route
from perdure.gateway.janitor import Heard, Janitor, Nothing, Standing, heard, settled
from perdure.store.memory import MemoryRoutes, MemoryStore
from perdure.store.routes import Routes
from perdure.store.sqlite import SQLiteRoutes
from perdure.testing import VirtualClock
from perdure.testing.stores.support import ADA, BOB, DONE, NOW, new_task, running
from tests.support import PATIENCE, eventually

TTL = 60_000
RETENTION = 10_000
AGAIN = 5_000
ONE, TWO, THREE = (f"tsk_{letter * 32}" for letter in "abc")
WORKING, OVER = Heard(TTL, ended=False), Heard(TTL, ended=True)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def routes(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Routes]:
    on_disk = SQLiteRoutes(f"sqlite:///{tmp_path / 'tasks.db'}", clock)
    routes: Routes = on_disk if request.param == "sqlite" else MemoryRoutes(clock)
    await routes.open()
    yield routes
    await routes.close()


class Backends:
    """What all backends know of their tasks, by their own ids, and who asked for what. What is unknown is gone."""

    def __init__(self, **tasks: Standing) -> None:
        self.tasks = tasks
        self.asked: list[str] = []
        self.hear: Callable[[Route], object] = lambda _: None

    async def __call__(self, route: Route) -> Standing:
        self.asked.append(route.backend_task_id)
        self.hear(route)
        return self.tasks.get(route.backend_task_id, Nothing.GONE)

    def take(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


def janitor(routes: Routes, ask: Backends, clock: VirtualClock, **options: Any) -> Janitor:
    return Janitor(routes, ask, clock, retention_ms=RETENTION, again_ms=AGAIN, **options)


async def sweep(janitor: Janitor) -> None:
    """Until there is nothing more."""
    async with asyncio.timeout(PATIENCE):
        while await janitor.sweep():
            pass


# -- what becomes of a route -------------------------------------------------------------------------------------------


async def test_a_task_whose_ttl_was_extended_at_its_end_is_found_though_nobody_polled(
    routes: Routes, clock: VirtualClock
) -> None:
    """As `keep_result` does it: the gateway knows the first ttl only."""
    store = MemoryStore(clock)
    claim = await running(store, new_task(ttl_ms=TTL, keep_ms=5 * TTL))
    task = await store.get(ADA, claim.task.id)
    await routes.lay(ADA, "reports", task.id, task.ttl_ms, ONE)
    clock.advance(TTL - 1)
    await store.finish(claim, DONE)

    async def ask(route: Route) -> Standing:
        try:
            task = await store.get(route.owner, route.backend_task_id)
        except (TaskNotFound, TaskExpired):
            return Nothing.GONE
        return Heard(task.ttl_ms, task.status.terminal)

    keeper = Janitor(routes, ask, clock, retention_ms=RETENTION)
    clock.advance(2 * TTL)
    await sweep(keeper)
    route = await routes.find(ADA, ONE)
    assert (await store.get(ADA, route.backend_task_id)).status is Status.COMPLETED
    clock.advance(5 * TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=0)
    await sweep(keeper)
    assert await routes.count() == 0


async def test_what_is_found_to_be_over_is_deleted_after_the_retention(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", ONE, TTL, ONE)
    backends = Backends(**{ONE: OVER})
    keeper = janitor(routes, backends, clock)
    clock.advance(UNHEARD_MS)
    await sweep(keeper)
    assert backends.asked == [ONE]
    assert await routes.count() == 1
    clock.advance(RETENTION)
    await sweep(keeper)
    assert await routes.count() == 0
    assert len(backends.asked) == 1


async def test_what_is_over_and_has_no_ttl_is_found_for_as_long_as_its_backend_has_it(
    routes: Routes, clock: VirtualClock
) -> None:
    laid = await routes.lay(ADA, "reports", ONE, None, ONE)
    await routes.update(ONE, ttl_ms=None, ended=True)
    backends = Backends(**{ONE: Heard(None, ended=True)})
    keeper = janitor(routes, backends, clock)
    for _ in range(3):
        clock.advance(UNHEARD_MS - 1)
        await sweep(keeper)
        assert backends.take() == []
        clock.advance(1)
        await sweep(keeper)
        assert backends.take() == [ONE]
        assert (await routes.find(ADA, ONE)).backend_task_id == laid.backend_task_id
    del backends.tasks[ONE]
    clock.advance(UNHEARD_MS)
    await sweep(keeper)
    assert (await routes.find(ADA, ONE)).ended
    clock.advance(RETENTION)
    await sweep(keeper)
    assert await routes.count() == 0


async def test_what_the_backend_does_not_know_any_more_goes_too(routes: Routes, clock: VirtualClock) -> None:
    for each, ttl_ms in ((ONE, TTL), (TWO, None)):
        await routes.lay(ADA, "reports", each, ttl_ms, each)
    keeper = janitor(routes, Backends(), clock)
    clock.advance(UNHEARD_MS)
    await sweep(keeper)
    found = await routes.find_many(ADA, [ONE, TWO])
    assert [(found[each].over_at, found[each].ended) for each in (ONE, TWO)] == [(NOW + UNHEARD_MS, True)] * 2
    clock.advance(RETENTION)
    await sweep(keeper)
    assert await routes.count() == 0


async def test_a_task_that_goes_on_past_its_ttl_is_asked_about_again_and_again(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", ONE, TTL, ONE)
    backends = Backends(**{ONE: WORKING})
    keeper = janitor(routes, backends, clock)
    clock.advance(TTL)
    for _ in range(3):
        await sweep(keeper)
        await sweep(keeper)
        assert backends.take() == [ONE]
        clock.advance(AGAIN)
    backends.tasks[ONE] = OVER
    await sweep(keeper)
    clock.advance(RETENTION)
    await sweep(keeper)
    assert await routes.count() == 0


async def test_one_without_a_ttl_is_asked_about_once_a_day(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", ONE, None, ONE)
    backends = Backends(**{ONE: Heard(None, ended=False)})
    keeper = janitor(routes, backends, clock)
    for _ in range(3):
        clock.advance(UNHEARD_MS - 1)
        await sweep(keeper)
        assert backends.take() == []
        clock.advance(1)
        await sweep(keeper)
        assert backends.take() == [ONE]


async def test_what_a_client_was_told_in_time_is_not_asked_about(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", ONE, TTL, ONE)
    await routes.update(ONE, ttl_ms=TTL, ended=True)
    backends = Backends()
    clock.advance(TTL + RETENTION)
    await sweep(janitor(routes, backends, clock))
    assert (backends.asked, await routes.count()) == ([], 0)


async def test_each_is_asked_about_under_its_owner(routes: Routes, clock: VirtualClock) -> None:
    for owner, each in ((ADA, ONE), (BOB, TWO)):
        await routes.lay(owner, "reports", each, TTL, each)
    backends = Backends()
    owners: dict[str, Owner] = {}
    backends.hear = lambda route: owners.update({route.id: route.owner})
    clock.advance(TTL)
    await sweep(janitor(routes, backends, clock))
    assert owners == {ONE: ADA, TWO: BOB}


# -- backends that don't say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [Nothing.UNREACHABLE, Nothing.UNCLEAR])
async def test_what_could_not_be_asked_stays_until_it_can_be(
    routes: Routes, clock: VirtualClock, nothing: Nothing
) -> None:
    laid = await routes.lay(ADA, "reports", ONE, TTL, ONE)
    backends = Backends(**{ONE: nothing})
    keeper = janitor(routes, backends, clock)
    clock.advance(1_000 * UNHEARD_MS)
    for _ in range(3):
        await sweep(keeper)
        assert backends.take() == [ONE]
        assert (await routes.find(ADA, ONE)).expires_at == laid.expires_at
        clock.advance(AGAIN)
    backends.tasks[ONE] = Heard(2_000 * UNHEARD_MS, ended=True)
    await sweep(keeper)
    assert (await routes.find(ADA, ONE)).ended


async def test_a_backend_that_is_away_is_not_asked_about_each_of_its_tasks_and_others_are(
    routes: Routes, clock: VirtualClock
) -> None:
    lost = [f"tsk_{number:032}" for number in range(500)]
    for each in lost:
        await routes.lay(ADA, "away", each, TTL, each)
    await routes.lay(ADA, "reports", THREE, TTL, THREE)
    backends = Backends(**dict.fromkeys(lost, Nothing.UNREACHABLE), **{THREE: OVER})
    keeper = janitor(routes, backends, clock, at_once=4)
    clock.advance(TTL)
    await sweep(keeper)
    asked = backends.take()
    assert THREE in asked
    assert len(asked) <= 1 + 4
    assert (await routes.find(ADA, THREE)).ended
    backends.tasks.update(dict.fromkeys(lost, OVER))
    clock.advance(AGAIN)
    await sweep(keeper)
    assert sorted(backends.asked) == lost


async def test_a_task_of_which_nothing_clear_is_said_does_not_hold_up_others_of_its_backend(
    routes: Routes, clock: VirtualClock
) -> None:
    for each in (ONE, TWO):
        await routes.lay(ADA, "reports", each, TTL, each)
    backends = Backends(**{ONE: Nothing.UNCLEAR, TWO: OVER})
    clock.advance(TTL)
    await sweep(janitor(routes, backends, clock, at_once=1))
    assert (await routes.find(ADA, TWO)).ended


async def test_an_operator_may_say_for_how_long_a_backend_that_never_comes_back_is_believed_in(
    routes: Routes, clock: VirtualClock
) -> None:
    for each, ttl_ms in ((ONE, TTL), (TWO, None)):
        await routes.lay(ADA, "away", each, ttl_ms, each)
    keeper = janitor(
        routes, Backends(**dict.fromkeys((ONE, TWO), Nothing.UNREACHABLE)), clock, give_up_ms=30 * UNHEARD_MS
    )
    clock.advance(TTL + 30 * UNHEARD_MS)
    await sweep(keeper)
    clock.advance(AGAIN)
    await sweep(keeper)
    clock.advance(RETENTION)
    await sweep(keeper)
    assert set(await routes.find_many(ADA, [ONE, TWO])) == {TWO}


async def test_no_more_is_asked_at_once_than_is_said(routes: Routes, clock: VirtualClock) -> None:
    ids = [f"tsk_{number:032}" for number in range(20)]
    for each in ids:
        await routes.lay(ADA, "reports", each, TTL, each)
    begun: list[str] = []
    go = asyncio.Event()

    async def ask(route: Route) -> Standing:
        begun.append(route.id)
        await go.wait()
        return OVER

    async def three_are_under_way() -> bool:
        return len(begun) == 3

    clock.advance(TTL)
    sweeping = asyncio.create_task(Janitor(routes, ask, clock, retention_ms=0, at_once=3).sweep())
    await eventually(three_are_under_way, "three questions have begun")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(begun) == 3
    go.set()
    assert await sweeping
    assert sorted(begun) == ids


# -- several, and a store that is away ---------------------------------------------------------------------------------


async def test_two_gateways_ask_about_each_task_once(routes: Routes, clock: VirtualClock) -> None:
    ids = [f"tsk_{number:032}" for number in range(300)]
    for each in ids:
        await routes.lay(ADA, "reports", each, TTL, each)
    backends = Backends(**dict.fromkeys(ids, OVER))
    clock.advance(TTL)
    await asyncio.gather(*(sweep(janitor(routes, backends, clock)) for _ in range(2)))
    assert sorted(backends.asked) == ids


async def test_what_a_gateway_was_asking_about_when_it_died_is_asked_about_later(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", ONE, TTL, ONE)
    clock.advance(TTL)
    asking = asyncio.Event()

    async def ask(route: Route) -> Standing:
        asking.set()
        await asyncio.Event().wait()
        return OVER

    dying = asyncio.create_task(Janitor(routes, ask, clock, retention_ms=0, again_ms=AGAIN).sweep())
    await asyncio.wait_for(asking.wait(), PATIENCE)
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    clock.advance(AGAIN)
    await sweep(janitor(routes, Backends(**{ONE: OVER}), clock))
    assert (await routes.find(ADA, ONE)).ended


class Rigged(MemoryRoutes):
    """Routes whose verbs fail: each takes the next of `faults`, and does as it should where that is None."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.faults: dict[str, Iterator[Exception | None]] = {}

    def fail(self, verb: str) -> None:
        fault = next(self.faults.get(verb, iter(())), None)
        if fault is not None:
            raise fault

    async def update(self, id: str, *, ttl_ms: int | None, ended: bool) -> None:
        self.fail("update")
        await super().update(id, ttl_ms=ttl_ms, ended=ended)

    async def purge(self, limit: int, retention_ms: int) -> int:
        self.fail("purge")
        return await super().purge(limit, retention_ms)


async def test_an_answer_that_could_not_be_noted_is_asked_for_again_and_others_are_noted(clock: VirtualClock) -> None:
    routes = Rigged(clock)
    ids = (ONE, TWO, THREE)
    for each in ids:
        await routes.lay(ADA, "reports", each, TTL, each)
    backends = Backends(**dict.fromkeys(ids, OVER))
    keeper = janitor(routes, backends, clock, at_once=1)
    clock.advance(TTL)
    routes.faults["update"] = iter([StoreUnavailable(), Unreadable("", "it was damaged"), None])
    await sweep(keeper)
    assert [route.ended for route in (await routes.find_many(ADA, ids)).values()].count(True) == 1
    clock.advance(AGAIN)
    await sweep(keeper)
    assert all(route.ended for route in (await routes.find_many(ADA, ids)).values())
    assert len(backends.asked) == 5


async def test_it_goes_on_after_a_store_was_away_until_it_is_cancelled(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    routes = Rigged(clock)
    await routes.lay(ADA, "reports", ONE, TTL, ONE)
    clock.advance(TTL)
    routes.faults["purge"] = iter([StoreUnavailable(), StoreUnavailable()])
    shares = iter([0.0, 0.5, 1.0])

    def chance() -> float:
        return next(shares, 0.0)

    keeper = Janitor(routes, Backends(), clock, retention_ms=0, every_ms=2, chance=chance)
    with caplog.at_level(logging.WARNING):
        keeping = asyncio.create_task(keeper.keep_house())

        async def gone() -> bool:
            return await routes.count() == 0

        await eventually(gone, "the route is deleted")
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
    assert "the store is unavailable" in caplog.text
    assert next(shares, None) in (1.0, None), "it has waited after each of the two faults"


# -- what an answer says -----------------------------------------------------------------------------------------------

ROUTE = Route(ONE, ADA, "reports", "r-1", NOW, NOW + TTL, doubtful_at=NOW + TTL)
SNAPSHOT: JSONObject = {"taskId": "r-1", "status": "working", "ttlMs": TTL}


def result(**changed: JSON) -> JSONObject:
    return {"jsonrpc": "2.0", "id": 1, "result": {**SNAPSHOT, **changed}}


@pytest.mark.parametrize("status", [*Status])
@pytest.mark.parametrize("ttl_ms", [None, 0, TTL])
def test_a_snapshot_says_the_ttl_and_whether_the_task_is_over(status: Status, ttl_ms: int | None) -> None:
    assert heard(result(status=str(status), ttlMs=ttl_ms), ROUTE) == Heard(ttl_ms, status.terminal)


def test_a_task_that_is_unknown_or_expired_is_gone() -> None:
    error: JSONObject = {"code": -32602, "message": "Task has expired"}
    assert heard({"jsonrpc": "2.0", "id": 1, "error": error}, ROUTE) is Nothing.GONE


ODD: list[JSON] = [True, 1.5, [], {}, "gone", ""]


@pytest.mark.parametrize(
    "response",
    [
        *({"error": {"code": code, "message": ""}} for code in (-32603, -32601, -32000, -32021, "-32602", None)),
        {"error": "gone"},
        {"result": None},
        {"result": []},
        {},
        result(taskId="r-2"),
        result(taskId=None),
        *(result(status=each) for each in [*ODD, None]),
        *(result(ttlMs=each) for each in ODD),
    ],
)
def test_anything_else_says_nothing(response: JSONObject) -> None:
    assert heard(response, ROUTE) is Nothing.UNCLEAR


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2)))
def test_whatever_a_backend_sends_ends_no_route_by_mistake(odd: JSON) -> None:
    for response in ({"error": odd}, {"result": odd}, result(status=odd, ttlMs=odd)):
        answer = heard(response, ROUTE)
        assert answer is Nothing.UNCLEAR


@pytest.mark.parametrize("nothing", [Nothing.UNREACHABLE, Nothing.UNCLEAR])
def test_without_a_limit_a_silent_backend_is_believed_in_for_ever(nothing: Nothing) -> None:
    assert settled(ROUTE, nothing, None, NOW + 10**15) is None


@pytest.mark.parametrize("nothing", [Nothing.UNREACHABLE, Nothing.UNCLEAR])
def test_with_one_until_it_has_passed_since_the_ttl_ran_out(nothing: Nothing) -> None:
    assert settled(ROUTE, nothing, 1_000, NOW + TTL + 1_000) is None
    assert settled(ROUTE, nothing, 1_000, NOW + TTL + 1_001) == OVER
