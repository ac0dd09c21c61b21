"""Expiry, purge, tombstones."""

import pytest

from perdure.domain.errors import TaskExpired, TaskNotFound
from perdure.domain.journal import EntryState, Journal
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Status, Task
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    BOB,
    DONE,
    ELSEWHERE,
    NAME,
    NOW,
    TOKEN,
    asks,
    both,
    elsewhere,
    hire,
    new_task,
    parked,
    running,
    sleep,
    step,
    waiting,
)

TTL = 60_000

# -- expire ------------------------------------------------------------------------------------------------------------


async def test_an_unfinished_task_fails_when_its_ttl_has_run_out_and_not_before(
    store: Store, clock: VirtualClock
) -> None:
    created = await store.create(new_task(ttl_ms=TTL))
    clock.advance(TTL - 1)
    assert await store.expire(10) == 0
    clock.advance(1)
    assert await store.expire(10) == 1
    task = await store.get(ADA, created.id)
    assert (task.status, task.version, task.updated_at) == (Status.FAILED, 2, NOW + TTL)
    assert task.error is not None
    assert task.error.code == INTERNAL_ERROR
    assert "expired" in task.error.message
    assert await store.expire(10) == 0


async def test_running_and_waiting_tasks_expire_too_and_run_no_more(store: Store, clock: VirtualClock) -> None:
    waiting = await parked(store, new_task(ttl_ms=TTL))
    working = await running(store, new_task(ttl_ms=TTL))
    clock.advance(TTL)
    assert await store.expire(10) == 2
    for claim in (waiting, working):
        task = await store.get(ADA, claim.task.id)
        assert (task.status, task.inputs) == (Status.FAILED, ())
    assert (await store.answer(ADA, waiting.task.id, {"name": "late"})).status is Status.FAILED
    assert await (await hire(store)).claim() == ()


async def test_a_task_without_ttl_never_expires(store: Store, clock: VirtualClock) -> None:
    for_ever = await store.create(new_task())
    clock.advance(10**12)
    assert await store.expire(10) == 0
    assert await store.get(ADA, for_ever.id) == for_ever


async def test_a_finished_task_does_not_expire(store: Store, clock: VirtualClock) -> None:
    over = await store.finish(await running(store, new_task(ttl_ms=TTL)), DONE)
    clock.advance(10 * TTL)
    assert await store.expire(10) == 0
    assert await store.get(ADA, over.id) == over


async def test_expiry_takes_the_longest_overdue_first_and_no_more_than_the_limit(
    store: Store, clock: VirtualClock
) -> None:
    tasks = [await store.create(new_task(ttl_ms=ttl_ms)) for ttl_ms in (3_000, 1_000, 2_000)]
    clock.advance(3_000)
    assert await store.expire(2) == 2
    assert [(await store.get(ADA, task.id)).status for task in tasks] == [Status.WORKING, Status.FAILED, Status.FAILED]
    assert await store.expire(2) == 1


async def test_a_task_that_was_to_stop_fails_by_expiry_all_the_same(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(ttl_ms=TTL))
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(TTL)
    await store.expire(10)
    assert (await store.get(ADA, claim.task.id)).status is Status.FAILED


# -- keep_result -------------------------------------------------------------------------------------------------------


async def test_finishing_late_extends_the_ttl_and_that_is_what_clients_read(store: Store, clock: VirtualClock) -> None:
    claim = await running(store, new_task(ttl_ms=TTL, keep_ms=10_000))
    clock.advance(TTL - 1_000)
    over = await store.finish(claim, DONE)
    assert over.ttl_ms == TTL + 9_000
    assert await store.get(ADA, over.id) == over
    clock.advance(9_999)
    assert await store.purge(10, linger_ms=0, tombstone_ms=1_000) == 0
    clock.advance(1)
    assert await store.purge(10, linger_ms=0, tombstone_ms=1_000) == 1


async def test_finishing_early_leaves_the_ttl_as_it_was(store: Store) -> None:
    claim = await running(store, new_task(ttl_ms=TTL, keep_ms=10_000))
    assert (await store.finish(claim, DONE)).ttl_ms == TTL


async def test_what_expiry_has_to_say_is_kept_as_long_as_a_result(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task(ttl_ms=TTL, keep_ms=10_000))
    clock.advance(TTL + 500)
    await store.expire(10)
    assert (await store.get(ADA, created.id)).ttl_ms == TTL + 10_500


# -- purge -------------------------------------------------------------------------------------------------------------


async def finished(store: Store, *, ttl_ms: int | None = TTL) -> Task:
    return await store.finish(await running(store, new_task(ttl_ms=ttl_ms)), DONE)


async def test_a_finished_task_is_deleted_once_its_ttl_has_run_out_and_it_has_lingered(
    store: Store, clock: VirtualClock
) -> None:
    over = await finished(store)
    clock.advance(TTL + 4_999)
    assert await store.purge(10, linger_ms=5_000, tombstone_ms=1_000) == 0
    assert await store.get(ADA, over.id) == over
    clock.advance(1)
    assert await store.purge(10, linger_ms=5_000, tombstone_ms=1_000) == 1
    with pytest.raises(TaskExpired):
        await store.get(ADA, over.id)
    assert await store.purge(10, linger_ms=5_000, tombstone_ms=1_000) == 0


async def test_unfinished_tasks_and_those_without_ttl_are_never_purged(store: Store, clock: VirtualClock) -> None:
    unfinished = await store.create(new_task("other", ttl_ms=TTL))
    for_ever = await finished(store, ttl_ms=None)
    clock.advance(10**12)
    assert await store.purge(10, linger_ms=0, tombstone_ms=1_000) == 0
    for task in (unfinished, for_ever):
        assert await store.get(ADA, task.id) == task


async def test_the_purge_goes_in_batches_and_the_oldest_go_first(store: Store, clock: VirtualClock) -> None:
    tasks = [await finished(store, ttl_ms=ttl_ms) for ttl_ms in (3_000, 1_000, 2_000)]
    clock.advance(3_000)
    assert await store.purge(2, linger_ms=0, tombstone_ms=10_000) == 2
    assert await store.get(ADA, tasks[0].id) == tasks[0]
    assert await store.purge(2, linger_ms=0, tombstone_ms=10_000) == 1


async def test_only_the_owner_hears_that_a_task_has_expired(store: Store, clock: VirtualClock) -> None:
    over = await finished(store)
    clock.advance(TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=10_000)
    for owner in (BOB, ELSEWHERE):
        with pytest.raises(TaskNotFound):
            await store.get(owner, over.id)
    with pytest.raises(TaskExpired):
        await store.get(ADA, over.id)
    with pytest.raises(TaskExpired):
        await store.answer(ADA, over.id, {"name": "Ada"})
    with pytest.raises(TaskExpired):
        await store.request_cancel(ADA, over.id)


async def test_a_tombstone_speaks_until_it_has_aged(store: Store, clock: VirtualClock) -> None:
    over = await finished(store)
    clock.advance(TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=1_000)
    clock.advance(999)
    with pytest.raises(TaskExpired):
        await store.get(ADA, over.id)
    clock.advance(1)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, over.id)


async def test_a_purge_that_finds_aged_tombstones_only_counts_no_tasks(store: Store, clock: VirtualClock) -> None:
    over = await finished(store)
    clock.advance(TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=1_000)
    clock.advance(1_000)
    assert await store.purge(10, linger_ms=0, tombstone_ms=1_000) == 0
    with pytest.raises(TaskNotFound):
        await store.get(ADA, over.id)


async def test_the_questions_of_a_purged_task_go_with_it(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, new_task(ttl_ms=TTL))
    await store.request_cancel(ADA, claim.task.id)
    assert list((await store.journal(claim)).questions) == ["name"]
    clock.advance(TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=1_000)
    assert await store.journal(claim) == Journal()


async def test_the_number_of_a_purged_task_is_never_given_again(store: Store, clock: VirtualClock) -> None:
    """A worker that outlived the purge of its task must not take another one for it."""
    over = await finished(store)
    clock.advance(TTL)
    await store.purge(10, linger_ms=0, tombstone_ms=1_000)
    new = await running(store)
    assert new.seq > over.seq
    assert (await store.park(new, asks(name=NAME))).id == new.task.id


async def test_nothing_of_a_purged_task_is_left_for_one_that_takes_its_id_and_its_key(
    store: Store, clock: VirtualClock
) -> None:
    new = new_task(ttl_ms=TTL, key="k", digest="d")
    claim = await running(store, new)
    await store.record(claim, step(), note="again")
    await store.park(claim, both(asks(name=NAME), elsewhere("1")))
    await store.request_cancel(ADA, claim.task.id)
    clock.advance(TTL)
    assert await store.purge(10, linger_ms=0, tombstone_ms=10 * TTL) == 1
    with pytest.raises(TaskNotFound):
        await store.inspect(new.id)
    again = await running(store, new)
    assert again.seq > claim.seq
    assert (again.attempt, again.task.status, again.task.cancel_requested) == (1, Status.WORKING, False)
    for each in (claim, again):
        assert await store.journal(each) == Journal()
    inspection = await store.inspect(new.id)
    assert (inspection.journal, inspection.events) == (Journal(), ())
    assert await store.get(ADA, new.id) == again.task == await store.recall(ADA, "k", "d")
    with pytest.raises(TaskNotFound):
        await store.settle(new.id, "1", TOKEN, EntryState.DONE, None)


async def test_an_id_may_be_purged_twice(store: Store, clock: VirtualClock) -> None:
    """Its tombstone may still stand there when the next one is due."""
    new = new_task(ttl_ms=TTL)
    for _ in range(2):
        await store.finish(await running(store, new), DONE)
        clock.advance(TTL)
        assert await store.purge(10, linger_ms=0, tombstone_ms=10 * TTL) == 1
    clock.advance(9 * TTL + 1)
    with pytest.raises(TaskExpired):
        await store.get(ADA, new.id)


async def test_a_sleeping_task_expires_and_wakes_no_more(store: Store, clock: VirtualClock) -> None:
    claim = await waiting(store, sleep(TTL), new_task(ttl_ms=TTL))
    clock.advance(TTL)
    assert await store.expire(10) == 1
    assert await (await hire(store)).claim() == ()
    assert (await store.get(ADA, claim.task.id)).status is Status.FAILED
