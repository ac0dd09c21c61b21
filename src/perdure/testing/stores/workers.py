"""What workers ask first: sessions, and claims. What they write is in `writes.py`."""

import pytest

from perdure.domain.errors import LeaseLost
from perdure.domain.model import (
    Change,
    Demand,
    Session,
    Status,
)
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    DONE,
    HANDLER,
    LEASE,
    NOW,
    Changes,
    hire,
    new_task,
    running,
)

# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_a_session_lives_as_long_as_its_lease_says(store: Store, clock: VirtualClock) -> None:
    session = await store.open_session(LEASE, {"host": "here", "pid": 7})
    assert session == Session(session.id, NOW + LEASE, {"host": "here", "pid": 7})
    clock.advance(LEASE - 1)
    assert await store.sessions() == ((session, False),)
    clock.advance(1)
    assert await store.sessions() == ((session, True),)


async def test_sessions_have_names_of_their_own(store: Store) -> None:
    ids = [(await store.open_session(LEASE, {})).id for _ in range(3)]
    assert {session.id for session, _ in await store.sessions()} == set(ids)
    assert len(set(ids)) == 3


async def test_renewal_counts_from_now(store: Store, clock: VirtualClock) -> None:
    worker = await hire(store)
    clock.advance(20_000)
    await store.renew(worker.session, LEASE)
    ((session, lapsed),) = await store.sessions()
    assert (session.expires_at, lapsed) == (NOW + 20_000 + LEASE, False)


async def test_a_lapsed_lease_that_nobody_took_over_may_be_renewed(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    ((session, _),) = await store.sessions()
    clock.advance(LEASE)
    await store.renew(session.id, LEASE)
    assert await store.take_over() == 0
    await store.report(claim, "still here")


async def test_renewing_tells_which_of_its_own_runs_are_to_stop(store: Store) -> None:
    for _ in range(3):
        await store.create(new_task())
    worker, neighbour = await hire(store), await hire(store)
    one, _ = await worker.claim(2)
    other = await neighbour.claim_one()
    assert (await store.renew(worker.session, LEASE)).cancelled == frozenset()
    for claim in (one, other):
        await store.request_cancel(ADA, claim.task.id)
    assert (await store.renew(worker.session, LEASE)).cancelled == {one.seq}
    assert (await store.renew(neighbour.session, LEASE)).cancelled == {other.seq}


async def test_renewing_tells_what_the_session_holds_and_under_which_fences(store: Store) -> None:
    for _ in range(4):
        await store.create(new_task())
    worker, neighbour = await hire(store), await hire(store)
    one, two, over = await worker.claim(3)
    other = await neighbour.claim_one()
    await store.finish(over, DONE)
    assert (await store.renew(worker.session, LEASE)).held == {(one.seq, one.fence), (two.seq, two.fence)}
    await store.release(one)
    again = await neighbour.claim_one()
    assert again.seq == one.seq
    assert (await store.renew(worker.session, LEASE)).held == {(two.seq, two.fence)}
    assert (await store.renew(neighbour.session, LEASE)).held == {(other.seq, other.fence), (again.seq, again.fence)}


async def test_what_a_session_gives_back_may_be_run_at_once_without_counting_an_attempt(
    store: Store, changes: Changes
) -> None:
    for _ in range(3):
        await store.create(new_task(max_attempts=1))
    worker = await hire(store)
    one, kept, two = await worker.claim()
    changes.clear()
    assert await store.give_back(worker.session, frozenset({(two.seq, two.fence), (one.seq, one.fence)})) == 2
    assert changes == [Change(each.task.id, each.seq, Status.WORKING, runnable=True) for each in (one, two)]
    with pytest.raises(LeaseLost):
        await store.finish(one, DONE)
    await store.report(kept, "still mine")
    again = await (await hire(store)).claim()
    assert [(claim.seq, claim.attempt, claim.task) for claim in again] == [
        (each.seq, 1, each.task) for each in (one, two)
    ]


async def test_only_what_the_session_still_holds_under_that_fence_is_given_back(store: Store, changes: Changes) -> None:
    for _ in range(4):
        await store.create(new_task())
    worker, neighbour = await hire(store), await hire(store)
    over, freed, stale = await worker.claim(3)
    other = await neighbour.claim_one()
    await store.finish(over, DONE)
    await store.release(stale)
    current = await worker.claim_one()
    assert current.seq == stale.seq
    await store.release(freed)
    changes.clear()
    gone = frozenset((claim.seq, claim.fence) for claim in (over, freed, stale, other))
    assert await store.give_back(worker.session, gone | {(999, current.fence)}) == 0
    assert await store.give_back("nobody", gone) == 0
    assert await store.give_back(worker.session, frozenset()) == 0
    assert changes == []
    for claim in (current, other):
        await store.report(claim, "still mine")


async def test_what_was_to_stop_is_cancelled_when_it_is_given_back(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    assert await store.give_back(claim.session, frozenset({(claim.seq, claim.fence)})) == 1
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_a_session_that_is_unknown_closed_or_taken_over_can_neither_renew_nor_claim(
    store: Store, clock: VirtualClock
) -> None:
    closed, lapsed = await hire(store), await hire(store)
    await store.close_session(closed.session)
    clock.advance(LEASE)
    await store.take_over()
    for session in ("nobody", closed.session, lapsed.session):
        with pytest.raises(LeaseLost):
            await store.renew(session, LEASE)
        with pytest.raises(LeaseLost):
            await store.claim(session, [Demand(HANDLER, 1)], 1)


async def test_a_lapsed_session_claims_nothing(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task())
    worker = await hire(store)
    clock.advance(LEASE)
    with pytest.raises(LeaseLost):
        await worker.claim()
    assert (await (await hire(store)).claim_one()).task == created


async def test_closing_a_session_frees_its_runs_without_counting_an_attempt(store: Store) -> None:
    await store.create(new_task(max_attempts=1))
    worker = await hire(store)
    claim = await worker.claim_one()
    await store.close_session(worker.session)
    assert await store.sessions() == ()
    again = await (await hire(store)).claim_one()
    assert (again.seq, again.attempt, again.task) == (claim.seq, 1, claim.task)


async def test_closing_a_session_cancels_what_only_waited_for_its_worker_to_stop(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    ((session, _),) = await store.sessions()
    await store.close_session(session.id)
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_closing_a_session_twice_or_one_that_never_was_does_nothing(store: Store) -> None:
    worker = await hire(store)
    await store.close_session(worker.session)
    await store.close_session(worker.session)
    await store.close_session("nobody")


async def test_closing_a_session_leaves_the_runs_of_others_alone(store: Store) -> None:
    claim = await running(store)
    await store.close_session((await hire(store)).session)
    await store.report(claim, "still mine")


# -- claim -------------------------------------------------------------------------------------------------------------


async def test_only_handlers_that_are_named_are_claimed(store: Store) -> None:
    mine, theirs = await store.create(new_task("mine")), await store.create(new_task("theirs"))
    worker = await hire(store)
    assert await worker.claim(10, "tools/call:other", "mine", "") == ()
    assert await store.claim(worker.session, [], 10) == ()
    assert [claim.task for claim in await worker.claim(10, "tools/call:mine")] == [mine]
    assert [claim.task for claim in await worker.claim(10, "tools/call:theirs")] == [theirs]


async def test_claims_come_in_the_order_of_the_handlers_and_oldest_first_within_each(
    store: Store, clock: VirtualClock
) -> None:
    for name in ("a", "b", "b", "a"):
        await store.create(new_task(name))
        clock.advance(1)
    claims = await (await hire(store)).claim(10, "tools/call:b", "tools/call:a")
    assert [(claim.operation.name, claim.seq) for claim in claims] == [("b", 2), ("b", 3), ("a", 1), ("a", 4)]


async def test_a_run_that_was_given_back_waits_behind_those_that_have_been_due_longer(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    clock.advance(1)
    second = await store.create(new_task())
    clock.advance(1)
    await store.release(claim)
    assert [claim.seq for claim in await (await hire(store)).claim()] == [second.seq, claim.seq]


async def test_no_more_than_the_limit_is_claimed_across_all_handlers(store: Store) -> None:
    for name in ("a", "a", "b", "b"):
        await store.create(new_task(name))
    worker = await hire(store)
    both = ("tools/call:b", "tools/call:a")
    assert await worker.claim(0, *both) == ()
    assert [claim.operation.name for claim in await worker.claim(3, *both)] == ["b", "b", "a"]
    assert [claim.operation.name for claim in await worker.claim(3, *both)] == ["a"]
    assert await worker.claim(3, *both) == ()


async def test_a_handler_that_is_named_twice_claims_each_run_once(store: Store) -> None:
    await store.create(new_task())
    assert len(await (await hire(store)).claim(10, HANDLER, HANDLER)) == 1


async def test_two_workers_never_hold_the_same_run(store: Store) -> None:
    for _ in range(4):
        await store.create(new_task())
    one, other = await hire(store), await hire(store)
    first, second = await one.claim(3), await other.claim(3)
    assert (len(first), len(second)) == (3, 1)
    assert not {claim.seq for claim in first} & {claim.seq for claim in second}


async def test_claiming_shows_no_change_to_the_task(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task())
    clock.advance(10)
    claim = await (await hire(store)).claim_one()
    assert claim.task == created == await store.get(ADA, created.id)
    assert claim.attempt == 1


async def test_a_later_claim_always_has_the_larger_fence(store: Store) -> None:
    await store.create(new_task())
    fences: list[int] = []
    for _ in range(4):
        claim = await (await hire(store)).claim_one()
        fences.append(claim.fence)
        await store.release(claim)
    assert fences == sorted(set(fences))
    assert fences[0] > 0
