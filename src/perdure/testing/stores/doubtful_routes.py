"""Routes of which nobody knows whether their tasks are over: who gets them to ask, and that none is deleted unasked."""

import asyncio

import pytest

from perdure.domain.routing import UNHEARD_MS
from perdure.store.routes import Routes
from perdure.testing.clock import VirtualClock

from .support import ADA, BOB, NOW

TTL = 60_000
AGAIN = 5_000
ONE, TWO, THREE = (f"tsk_{letter * 32}" for letter in "abc")
MANY = tuple(f"tsk_{number:032}" for number in range(20))


async def taken(routes: Routes, limit: int = 10) -> set[str]:
    return set(await routes.take_doubtful(limit, AGAIN))


@pytest.mark.parametrize("ttl_ms", [0, TTL, None])
async def test_a_route_is_never_purged_before_its_task_is_known_to_be_over(
    routes: Routes, clock: VirtualClock, ttl_ms: int | None
) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", ttl_ms, ONE)
    clock.advance(1_000 * UNHEARD_MS)
    assert await routes.purge(10, 0) == 0
    assert await routes.find(ADA, ONE) == laid
    assert await taken(routes) == {ONE}
    assert await routes.purge(10, 0) == 0
    await routes.update(ONE, ttl_ms=laid.gone_ttl_ms, ended=True)
    assert await routes.purge(10, 0) == 1


@pytest.mark.parametrize(("ttl_ms", "after"), [(0, 0), (TTL, TTL), (None, UNHEARD_MS)])
async def test_a_route_is_doubtful_once_its_ttl_has_run_out_or_a_day_without_one_has_passed(
    routes: Routes, clock: VirtualClock, ttl_ms: int | None, after: int
) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", ttl_ms, ONE)
    assert laid.doubtful_at == NOW + after
    clock.advance(after - 1)
    assert await taken(routes) == set()
    clock.advance(1)
    assert await taken(routes) == {ONE}


@pytest.mark.parametrize(("ttl_ms", "again"), [(TTL, AGAIN), (None, UNHEARD_MS)])
async def test_what_somebody_is_asking_about_nobody_else_gets_for_a_while(
    routes: Routes, clock: VirtualClock, ttl_ms: int | None, again: int
) -> None:
    await routes.lay(ADA, "reports", "r-1", ttl_ms, ONE)
    clock.advance(UNHEARD_MS)
    got = await routes.take_doubtful(10, AGAIN)
    assert got == {ONE: await routes.find(ADA, ONE)}
    assert got[ONE].doubtful_at == NOW + UNHEARD_MS + again
    clock.advance(again - 1)
    assert await taken(routes) == set()
    clock.advance(1)
    assert await taken(routes) == {ONE}


async def test_one_without_a_ttl_is_put_off_for_longer_than_a_day_where_that_is_said(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", None, ONE)
    clock.advance(UNHEARD_MS)
    assert (await routes.take_doubtful(10, 3 * UNHEARD_MS))[ONE].doubtful_at == NOW + 4 * UNHEARD_MS


async def test_what_is_over_is_not_doubtful(routes: Routes, clock: VirtualClock) -> None:
    for each, ttl_ms in ((ONE, TTL), (TWO, None)):
        laid = await routes.lay(ADA, "reports", each, ttl_ms, each)
        await routes.update(each, ttl_ms=laid.gone_ttl_ms, ended=True)
        assert (await routes.find(ADA, each)).doubtful_at is None
    clock.advance(10 * UNHEARD_MS)
    assert await taken(routes) == set()


async def test_a_ttl_that_became_longer_settles_the_doubt_until_it_runs_out(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(TTL)
    assert await taken(routes) == {ONE}
    await routes.update(ONE, ttl_ms=3 * TTL, ended=False)
    clock.advance(2 * TTL - 1)
    assert await taken(routes) == set()
    clock.advance(1)
    assert await taken(routes) == {ONE}


async def test_a_ttl_that_was_lifted_settles_it_for_a_day(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(TTL)
    await routes.update(ONE, ttl_ms=None, ended=False)
    assert (await routes.find(ADA, ONE)).doubtful_at == NOW + TTL + UNHEARD_MS


async def test_a_ttl_that_is_past_and_changes_with_each_answer_is_not_asked_about_at_once(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(TTL)
    for ttl_ms in (TTL - 1, TTL - 2, 0):
        assert await taken(routes) == {ONE}
        await routes.update(ONE, ttl_ms=ttl_ms, ended=False)
        assert await taken(routes) == set()
        clock.advance(AGAIN)


async def test_no_more_are_taken_than_is_said_and_the_longest_doubtful_first(
    routes: Routes, clock: VirtualClock
) -> None:
    for owner, each, ttl_ms in ((ADA, TWO, TTL), (BOB, ONE, TTL + 1), (ADA, THREE, TTL + 2)):
        await routes.lay(owner, "reports", each, ttl_ms, each)
    clock.advance(2 * TTL)
    assert await taken(routes, 0) == set()
    assert await taken(routes, 1) == {TWO}
    assert await taken(routes, 2) == {ONE, THREE}
    assert await taken(routes, 2) == set()


async def test_of_those_that_are_as_long_doubtful_the_ids_decide(routes: Routes, clock: VirtualClock) -> None:
    for each in (THREE, ONE, TWO):
        await routes.lay(ADA, "reports", each, TTL, each)
    clock.advance(TTL)
    assert [await taken(routes, 1) for _ in range(3)] == [{ONE}, {TWO}, {THREE}]


async def test_many_who_ask_at_once_get_each_route_once(routes: Routes, clock: VirtualClock) -> None:
    await asyncio.gather(*(routes.lay(ADA, "reports", each, TTL, each) for each in MANY))
    clock.advance(TTL)
    got = await asyncio.gather(*(taken(routes, 8) for _ in range(4)))
    assert sorted(each for part in got for each in part) == sorted(MANY)


async def test_a_client_that_hears_of_the_end_while_somebody_asks_is_believed(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(TTL)
    await asyncio.gather(taken(routes), routes.update(ONE, ttl_ms=3 * TTL, ended=True))
    route = await routes.find(ADA, ONE)
    assert (route.expires_at, route.ended_at) == (NOW + 3 * TTL, NOW + TTL)
    await routes.update(ONE, ttl_ms=TTL, ended=False)
    assert await routes.find(ADA, ONE) == route
