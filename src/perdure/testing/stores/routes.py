"""Routes: where a task lies, whose it is, and for how long that is known."""

import asyncio
import random

import pytest

from perdure.domain.errors import LimitExceeded, NotStorable, RouteTaken, TaskNotFound
from perdure.domain.limits import MAX_PRINCIPAL, MAX_TENANT
from perdure.domain.model import Owner
from perdure.domain.routing import LATE_MS, MAX_BACKEND, MAX_BACKEND_TASK_ID, UNHEARD_MS, Route
from perdure.store.routes import Routes
from perdure.testing.clock import VirtualClock

from .support import ADA, BOB, ELSEWHERE, NOW

TTL = 60_000
RETENTION = 10_000
ONE, TWO, THREE = (f"tsk_{letter * 32}" for letter in "abc")


async def over(routes: Routes, *ids: str, ttl_ms: int | None = TTL) -> None:
    """The tasks of these routes are over, as a snapshot told."""
    await asyncio.gather(*(routes.update(each, ttl_ms=ttl_ms, ended=True) for each in ids))


async def purged(routes: Routes, limit: int = 10) -> int:
    return await routes.purge(limit, RETENTION)


# -- laying ------------------------------------------------------------------------------------------------------------


async def test_a_route_is_found_as_it_was_laid(routes: Routes) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    assert laid == Route(ONE, ADA, "reports", "r-1", NOW, NOW + TTL, doubtful_at=NOW + TTL)
    assert await routes.find(ADA, ONE) == laid
    assert not laid.ended


async def test_a_task_without_a_ttl_has_a_route_that_does_not_expire(routes: Routes) -> None:
    assert (await routes.lay(ADA, "reports", "r-1", None, ONE)).expires_at is None


async def test_a_task_that_was_named_before_has_the_route_that_stands(routes: Routes, clock: VirtualClock) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(1_000)
    assert await routes.lay(ADA, "reports", "r-1", None, TWO) == laid
    assert await routes.count() == 1
    with pytest.raises(TaskNotFound):
        await routes.find(ADA, TWO)


async def test_a_route_may_be_laid_again_by_whoever_does_not_know_whether_it_was(routes: Routes) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    assert await routes.lay(ADA, "reports", "r-1", TTL, ONE) == laid


@pytest.mark.parametrize("other", [BOB, ELSEWHERE])
async def test_a_task_of_another_owner_is_not_shared_and_stays_as_it_is(routes: Routes, other: Owner) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    with pytest.raises(RouteTaken):
        await routes.lay(other, "reports", "r-1", TTL, TWO)
    with pytest.raises(TaskNotFound):
        await routes.find(other, TWO)
    assert await routes.find(ADA, ONE) == laid


async def test_two_backends_may_give_the_same_id_and_a_backend_differ_by_a_letter_s_case(routes: Routes) -> None:
    for gateway_id, backend, task in ((ONE, "reports", "r-1"), (TWO, "renders", "r-1"), (THREE, "reports", "R-1")):
        await routes.lay(ADA, backend, task, TTL, gateway_id)
        found = await routes.find(ADA, gateway_id)
        assert (found.backend, found.backend_task_id) == (backend, task)


@pytest.mark.parametrize("owner", [ADA, BOB])
async def test_an_id_that_leads_elsewhere_is_not_given_again(routes: Routes, owner: Owner) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    with pytest.raises(RouteTaken):
        await routes.lay(owner, "reports", "r-2", TTL, ONE)
    assert await routes.find(ADA, ONE) == laid
    assert await routes.count() == 1


async def test_what_is_laid_many_times_at_once_is_one_route(routes: Routes) -> None:
    ids = [f"tsk_{number:032}" for number in range(40)]
    laid = await asyncio.gather(*(routes.lay(ADA, "reports", f"r-{n % 4}", TTL, each) for n, each in enumerate(ids)))
    assert len({route.id for route in laid}) == await routes.count() == 4
    for route in laid:
        assert await routes.find(ADA, route.id) == route


async def test_one_id_that_is_given_twice_at_once_leads_to_one_of_the_tasks(routes: Routes) -> None:
    calls = (routes.lay(ADA, "reports", task, TTL, ONE) for task in ("r-1", "r-2", "r-1"))
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in done} == {Route, RouteTaken}
    assert await routes.find(ADA, ONE) in done
    assert await routes.count() == 1


async def test_of_two_owners_who_are_given_one_task_at_once_one_has_it(routes: Routes) -> None:
    calls = (routes.lay(owner, "reports", "r-1", TTL, each) for owner, each in ((ADA, ONE), (BOB, TWO)))
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["Route", "RouteTaken"]


# -- what a backend may say --------------------------------------------------------------------------------------------


async def test_names_are_kept_as_long_as_they_may_be(routes: Routes) -> None:
    """Of characters that take four bytes each, and in an order that no compression makes smaller."""
    chance = random.Random(7)

    def text(most: int, first: int = 0x10000, last: int = 0x20000) -> str:
        return "".join(chr(chance.randrange(first, last)) for _ in range(most))

    owner = Owner(text(MAX_TENANT, 33, 127), text(MAX_PRINCIPAL, 33, 127))
    laid = await routes.lay(owner, text(MAX_BACKEND), text(MAX_BACKEND_TASK_ID), TTL, ONE)
    assert await routes.find(owner, ONE) == laid
    assert await routes.lay(owner, laid.backend, laid.backend_task_id, TTL, TWO) == laid


async def test_a_name_that_is_longer_is_refused_without_being_shown(routes: Routes) -> None:
    for backend, task in (("b" * (MAX_BACKEND + 1), "r-1"), ("reports", "t" * (MAX_BACKEND_TASK_ID + 1))):
        with pytest.raises(LimitExceeded) as caught:
            await routes.lay(ADA, backend, task, TTL, ONE)
        assert "ttt" not in str(caught.value)
    assert await routes.count() == 0


@pytest.mark.parametrize("odd", ["\0", "\ud800", "a\0b"])
async def test_text_that_can_not_be_stored_is_refused_and_nobody_else_hears_of_it(routes: Routes, odd: str) -> None:
    calls = [
        routes.lay(ADA, "reports", "r-1", TTL, ONE),
        routes.lay(ADA, "reports", odd, TTL, TWO),
        routes.lay(ADA, odd, "r-2", TTL, TWO),
        routes.lay(Owner(odd, "ada"), "reports", "r-2", TTL, TWO),
        routes.lay(Owner("acme", odd), "reports", "r-2", TTL, TWO),
        routes.lay(ADA, "reports", "r-2", TTL, odd),
    ]
    laid, *refused = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(laid, Route)
    assert {type(each) for each in refused} == {NotStorable}
    assert await routes.count() == 1


@pytest.mark.parametrize("ttl_ms", [2**80, 2**62])
async def test_a_ttl_of_ages_is_a_long_one(routes: Routes, clock: VirtualClock, ttl_ms: int) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", ttl_ms, ONE)
    assert laid.expires_at is not None
    assert await routes.find(ADA, ONE) == laid
    await routes.update(ONE, ttl_ms=TTL, ended=False)
    await routes.update(ONE, ttl_ms=ttl_ms, ended=False)
    assert await routes.find(ADA, ONE) == laid
    await over(routes, ONE, ttl_ms=ttl_ms)
    assert await purged(routes) == 0


@pytest.mark.parametrize("ttl_ms", [0, -1, -(2**80)])
async def test_a_ttl_below_none_is_none(routes: Routes, ttl_ms: int) -> None:
    assert (await routes.lay(ADA, "reports", "r-1", ttl_ms, ONE)).expires_at == NOW
    await over(routes, ONE, ttl_ms=ttl_ms)
    assert await purged(routes) == 0


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [BOB, ELSEWHERE, Owner("acme", ""), Owner("ada", "acme"), Owner("\0", "\ud800")])
async def test_a_route_is_its_owner_s_alone(routes: Routes, other: Owner) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    with pytest.raises(TaskNotFound):
        await routes.find(other, ONE)
    assert await routes.find_many(other, [ONE]) == {}


@pytest.mark.parametrize("odd", ["", "\0", "\ud800", "tsk_ü", ONE.upper(), f"{ONE} ", "'; DROP TABLE route"])
async def test_what_is_no_id_is_not_found_and_leaves_others_alone(routes: Routes, odd: str) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    found, missing = await asyncio.gather(routes.find(ADA, ONE), routes.find(ADA, odd), return_exceptions=True)
    assert found == laid
    assert isinstance(missing, TaskNotFound)
    assert await routes.find_many(ADA, [odd, ONE]) == {ONE: laid}
    assert await routes.find_many(ADA, [odd]) == {}
    await routes.update(odd, ttl_ms=None, ended=True)


async def test_of_many_those_are_found_that_are_the_owner_s(routes: Routes) -> None:
    mine = [await routes.lay(ADA, "reports", f"r-{each}", TTL, each) for each in (ONE, TWO)]
    await routes.lay(BOB, "reports", "r-3", TTL, THREE)
    found = await routes.find_many(ADA, [THREE, TWO, "tsk_none", ONE, TWO])
    assert dict(found) == {route.id: route for route in mine}
    assert await routes.find_many(ADA, []) == {}


async def test_two_who_ask_for_one_route_at_once_hear_each_their_own(routes: Routes) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    calls = (routes.find(owner, ONE) for owner in (BOB, ADA, ELSEWHERE))
    bob, ada, elsewhere = await asyncio.gather(*calls, return_exceptions=True)
    assert ada == laid
    assert isinstance(bob, TaskNotFound)
    assert isinstance(elsewhere, TaskNotFound)


# -- what snapshots tell -----------------------------------------------------------------------------------------------


async def test_a_ttl_that_changed_counts_from_when_the_route_was_laid(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    for ttl_ms in (2 * TTL, None, 1_000):
        clock.advance(1_000)
        await routes.update(ONE, ttl_ms=ttl_ms, ended=False)
        assert (await routes.find(ADA, ONE)).expires_at == (None if ttl_ms is None else NOW + ttl_ms)


async def test_what_is_over_is_so_since_it_was_first_heard(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(1_000)
    for _ in range(2):
        await routes.update(ONE, ttl_ms=TTL, ended=True)
        clock.advance(1_000)
    route = await routes.find(ADA, ONE)
    assert (route.ended, route.ended_at) == (True, NOW + 1_000)


async def test_a_task_that_ended_and_has_no_ttl_is_there_for_good(routes: Routes, clock: VirtualClock) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", None, ONE)
    clock.advance(1_000)
    await routes.update(ONE, ttl_ms=None, ended=True)
    assert await routes.find(ADA, ONE) == laid


async def test_one_whose_ttl_is_lifted_at_its_end_or_later_is_too(routes: Routes, clock: VirtualClock) -> None:
    for each, before in ((ONE, False), (TWO, True)):
        await routes.lay(ADA, "reports", each, TTL, each)
        await routes.update(each, ttl_ms=TTL, ended=before)
    clock.advance(1_000)
    for each in (ONE, TWO):
        await routes.update(each, ttl_ms=None, ended=True)
        route = await routes.find(ADA, each)
        assert (route.ended, route.expires_at, route.doubtful_at) == (False, None, NOW + 1_000 + UNHEARD_MS)
    clock.advance(9 * UNHEARD_MS)
    assert await purged(routes) == 0


async def test_a_snapshot_that_comes_late_does_not_take_back_that_a_task_is_over(routes: Routes) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await routes.update(ONE, ttl_ms=3 * TTL, ended=True)
    over = await routes.find(ADA, ONE)
    await routes.update(ONE, ttl_ms=TTL, ended=False)
    assert await routes.find(ADA, ONE) == over


async def test_a_task_that_its_backend_knows_again_long_after_the_end_has_its_route_back(
    routes: Routes, clock: VirtualClock
) -> None:
    """A gateway had asked a wrong server, which did not know it."""
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    before = await routes.find(ADA, ONE)
    await routes.update(ONE, ttl_ms=TTL, ended=True)
    clock.advance(LATE_MS)
    await routes.update(ONE, ttl_ms=TTL, ended=False)
    again = await routes.find(ADA, ONE)
    assert (again.ended, again.expires_at) == (False, before.expires_at)
    clock.advance(2 * UNHEARD_MS)
    assert await purged(routes) == 0
    assert [*await routes.take_doubtful(10, 1_000)] == [ONE]


async def test_what_a_result_is_kept_for_may_change_after_the_end(routes: Routes) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await routes.update(ONE, ttl_ms=TTL, ended=True)
    await routes.update(ONE, ttl_ms=2 * TTL, ended=True)
    route = await routes.find(ADA, ONE)
    assert (route.expires_at, route.ended_at) == (NOW + 2 * TTL, NOW)


async def test_many_snapshots_at_once_are_each_of_their_own_route(routes: Routes) -> None:
    ids = [f"tsk_{number:032}" for number in range(20)]
    await asyncio.gather(*(routes.lay(ADA, "reports", each, TTL, each) for each in ids))
    told = (routes.update(each, ttl_ms=TTL + n, ended=n % 2 == 0) for n, each in enumerate(ids))
    unheard_of = (routes.update("tsk_none", ttl_ms=1, ended=True) for _ in range(3))
    again = (routes.update(each, ttl_ms=1, ended=False) for each in ids[::2])
    await asyncio.gather(*told, *unheard_of, *again)
    found = await routes.find_many(ADA, ids)
    assert [(found[each].expires_at, found[each].ended) for each in ids] == [
        (NOW + TTL + n, n % 2 == 0) for n in range(20)
    ]


# -- purging -----------------------------------------------------------------------------------------------------------


async def test_a_route_with_a_ttl_goes_once_that_and_the_retention_have_passed(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await over(routes, ONE)
    clock.advance(TTL + RETENTION - 1)
    assert await purged(routes) == 0
    clock.advance(1)
    assert await purged(routes) == 1
    with pytest.raises(TaskNotFound):
        await routes.find(ADA, ONE)
    assert await routes.find_many(ADA, [ONE]) == {}
    assert await routes.count() == await purged(routes) == 0


async def test_one_without_stays_for_as_long_as_its_task_is_there(routes: Routes, clock: VirtualClock) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", None, ONE)
    await routes.update(ONE, ttl_ms=None, ended=True)
    for _ in range(3):
        clock.advance(UNHEARD_MS)
        assert [*await routes.take_doubtful(10, 1_000)] == [ONE]
        await routes.update(ONE, ttl_ms=None, ended=True)
        assert await purged(routes) == 0
    assert (await routes.find(ADA, ONE)).expires_at is laid.expires_at is None


async def test_and_goes_once_the_retention_has_passed_since_it_was_found_to_be_gone(
    routes: Routes, clock: VirtualClock
) -> None:
    laid = await routes.lay(ADA, "reports", "r-1", None, ONE)
    await routes.update(ONE, ttl_ms=None, ended=True)
    clock.advance(100 * TTL)
    await routes.update(ONE, ttl_ms=laid.gone_ttl_ms, ended=True)
    clock.advance(RETENTION - 1)
    assert await purged(routes) == 0
    assert (await routes.find(ADA, ONE)).ended
    clock.advance(1)
    assert await purged(routes) == 1


async def test_one_whose_task_was_found_to_be_over_late_stays_for_the_retention_from_then_on(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    clock.advance(9 * TTL)
    await over(routes, ONE)
    clock.advance(RETENTION - 1)
    assert await purged(routes) == 0
    clock.advance(1)
    assert await purged(routes) == 1


async def test_one_whose_ttl_became_longer_stays_for_longer(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await routes.update(ONE, ttl_ms=3 * TTL, ended=True)
    clock.advance(TTL + RETENTION)
    assert await purged(routes) == 0
    clock.advance(2 * TTL)
    assert await purged(routes) == 1


async def test_no_more_are_purged_than_is_said_and_the_oldest_first(routes: Routes, clock: VirtualClock) -> None:
    for number, each in enumerate((TWO, ONE, THREE)):
        await routes.lay(ADA, "reports", each, TTL, each)
        await over(routes, each, ttl_ms=TTL + number)
    clock.advance(TTL + RETENTION + 2)
    assert await purged(routes, 0) == 0
    assert await purged(routes, 2) == 2
    assert set(await routes.find_many(ADA, [ONE, TWO, THREE])) == {THREE}
    assert await purged(routes, 2) == 1


async def test_two_who_purge_at_once_delete_each_route_once(routes: Routes, clock: VirtualClock) -> None:
    ids = [f"tsk_{number:032}" for number in range(20)]
    await asyncio.gather(*(routes.lay(ADA, "reports", each, TTL, each) for each in ids))
    await over(routes, *ids)
    clock.advance(TTL + RETENTION)
    assert sum(await asyncio.gather(*(purged(routes, 8) for _ in range(4)))) == 20


async def test_what_is_told_of_a_route_while_it_is_purged_does_not_bring_it_back(
    routes: Routes, clock: VirtualClock
) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await over(routes, ONE)
    clock.advance(TTL + RETENTION)
    gone, _ = await asyncio.gather(purged(routes), routes.update(ONE, ttl_ms=TTL - 1, ended=True))
    assert gone == 1
    assert await routes.count() == 0


async def test_a_task_whose_route_was_purged_gets_another(routes: Routes, clock: VirtualClock) -> None:
    await routes.lay(ADA, "reports", "r-1", TTL, ONE)
    await over(routes, ONE)
    clock.advance(TTL + RETENTION)
    await purged(routes)
    laid = await routes.lay(BOB, "reports", "r-1", TTL, TWO)
    assert (laid.id, laid.created_at) == (TWO, NOW + TTL + RETENTION)
    await routes.update(ONE, ttl_ms=None, ended=True)
    assert await routes.find(BOB, TWO) == laid
