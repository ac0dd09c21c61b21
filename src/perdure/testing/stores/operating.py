"""What operators look through, count, hasten and throw away."""

import pytest

from perdure.domain import timeline
from perdure.domain.errors import TaskExpired, TaskNotFound
from perdure.domain.journal import EntryState
from perdure.domain.model import Asked, Status, Task
from perdure.domain.operating import Count, Hastened, Listed, Listing, Tally, Which
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    BOB,
    DONE,
    ELSEWHERE,
    HANDLER,
    NAME,
    NOW,
    Changes,
    asks,
    both,
    elsewhere,
    external,
    hire,
    new_task,
    parked,
    running,
    sleep,
    step,
    take,
    waiting,
)

ALL = Which()
UNFINISHED = frozenset({Status.WORKING, Status.INPUT_REQUIRED})
TOMBSTONE = 60_000


def ids(listing: Listing) -> list[str]:
    return [each.id for each in listing.tasks]


async def meant(store: Store, which: Which) -> list[str]:
    """All that are meant, by the parts of one that a caller would ask for."""
    found, after = list[str](), None
    while True:
        part = await store.browse(which, after, 2)
        found += ids(part)
        if part.next is None:
            return found
        after = part.next


async def over(store: Store, name: str = "report", **options: object) -> Task:
    """A task that is over."""
    await store.create(new_task(name, **options))  # pyright: ignore[reportArgumentType] - of its own names
    (claim,) = await (await hire(store)).claim(1, f"tools/call:{name}")
    return await store.finish(claim, DONE)


# -- browse and named --------------------------------------------------------------------------------------------------


async def test_an_empty_store_has_nothing_to_list_or_count(store: Store) -> None:
    assert await store.browse(ALL, None, 10) == Listing((), None)
    assert await store.browse(Which(UNFINISHED), None, 10) == Listing((), None)
    assert await store.find_by_prefix("", 10) == ()
    assert await store.tally(None, 10) == Tally((), None)


async def test_a_list_shows_how_tasks_and_their_runs_stand(store: Store, clock: VirtualClock) -> None:
    gone = await over(store, ttl_ms=1_000)
    clock.advance(5)
    claim = await running(store, new_task(owner=BOB, timeout_ms=7_000))
    await store.request_cancel(BOB, claim.task.id)
    (second, first) = (await store.browse(ALL, None, 10)).tasks
    run = (await store.inspect(claim.task.id)).run
    assert first == Listed(gone.seq, gone.id, ADA, HANDLER, Status.COMPLETED, NOW, NOW, NOW + 1_000, False, None)
    at = NOW + 5
    assert second == Listed(claim.seq, claim.task.id, BOB, HANDLER, Status.WORKING, at, at, None, True, run)
    assert run is not None


async def test_a_list_comes_in_parts_and_each_looks_at_no_more_than_it_was_asked_for(store: Store) -> None:
    made = [(await over(store)).id for _ in range(2)] + [(await store.create(new_task("b"))).id for _ in range(3)]
    first = await store.browse(ALL, None, 2)
    assert ids(first) == [made[4], made[3]]
    second = await store.browse(ALL, first.next, 2)
    assert ids(second) == [made[2], made[1]]
    assert await store.browse(ALL, second.next, 2) == Listing((await store.find_by_prefix(made[0], 1)), None)
    rare = await store.browse(Which(name="report"), None, 3)
    assert rare.tasks == ()
    assert rare.next is not None, "there are more to look at"
    assert ids(await store.browse(Which(name="report"), rare.next, 3)) == [made[1], made[0]]


async def test_who_asks_for_unfinished_tasks_does_not_look_at_those_that_are_over(store: Store) -> None:
    first = await store.create(new_task("b"))
    for _ in range(3):
        await over(store)
    second = await store.create(new_task("b"))
    part = await store.browse(Which(UNFINISHED), None, 2)
    assert ids(part) == [second.id, first.id]
    assert await store.browse(Which(frozenset({Status.INPUT_REQUIRED})), part.next, 2) == Listing((), None)


async def test_each_part_of_a_filter_leaves_some_out(store: Store, clock: VirtualClock) -> None:
    done = await over(store)
    clock.advance(1_000)
    asking = (await parked(store, new_task("report", owner=BOB))).task
    clock.advance(1_000)
    far = await store.create(new_task("other", owner=ELSEWHERE))
    assert await meant(store, ALL) == [far.id, asking.id, done.id]
    assert await meant(store, Which(frozenset({Status.COMPLETED}))) == [done.id]
    assert await meant(store, Which(frozenset({Status.COMPLETED, Status.WORKING}))) == [far.id, done.id]
    assert await meant(store, Which(UNFINISHED)) == [far.id, asking.id]
    assert await meant(store, Which(frozenset())) == []
    assert await meant(store, Which(name="report")) == [asking.id, done.id]
    assert await meant(store, Which(tenant=ADA.tenant)) == [asking.id, done.id]
    assert await meant(store, Which(principal=ADA.principal)) == [far.id, done.id]
    assert await meant(store, Which(name="report", tenant="other")) == []


async def test_ages_are_told_from_now(store: Store, clock: VirtualClock) -> None:
    first = await store.create(new_task("b"))
    clock.advance(1_000)
    second = await store.create(new_task("b"))
    clock.advance(500)
    await store.request_cancel(ADA, first.id)
    assert await meant(store, Which(older_ms=1_500)) == [first.id]
    assert await meant(store, Which(older_ms=1_501)) == []
    assert await meant(store, Which(newer_ms=1_500)) == [second.id]
    assert await meant(store, Which(newer_ms=1_501)) == [second.id, first.id]
    assert await meant(store, Which(older_ms=500, newer_ms=1_501)) == [second.id, first.id]
    assert await meant(store, Which(unchanged_ms=500)) == [second.id]
    assert await meant(store, Which(unchanged_ms=501)) == []


async def test_names_that_no_store_can_have_are_nobodys(store: Store) -> None:
    await store.create(new_task())
    for name in ("\ud800", "\0"):
        for which in (Which(name=name), Which(tenant=name), Which(principal=name)):
            assert await store.browse(which, None, 10) == Listing((), None)
        assert await store.find_by_prefix(name, 10) == ()


async def test_a_task_is_found_by_how_its_id_begins(store: Store) -> None:
    one, other = [await store.create(new_task()) for _ in range(2)]
    await over(store, "b")
    (found,) = await store.find_by_prefix(one.id, 2)
    assert (found.id, found.owner, found.status) == (one.id, ADA, Status.WORKING)
    assert found == (await store.browse(ALL, other.seq, 1)).tasks[0]
    begin = one.id[:-4]
    assert [each.id for each in await store.find_by_prefix(begin, 2)] == sorted([one.id, other.id])
    assert [each.id for each in await store.find_by_prefix(begin, 1)] == [one.id]
    assert await store.find_by_prefix(f"{one.id}a", 2) == ()


# -- tally -------------------------------------------------------------------------------------------------------------


async def test_tasks_are_counted_by_handler_and_status_with_the_first_of_each(
    store: Store, clock: VirtualClock
) -> None:
    for _ in range(2):
        await over(store, "b")
        clock.advance(1_000)
    await store.create(new_task("b"))
    await store.create(new_task("a"))
    assert await store.tally(None, 10) == Tally(
        (
            Count("tools/call:a", Status.WORKING, 1, NOW + 2_000),
            Count("tools/call:b", Status.COMPLETED, 2, NOW),
            Count("tools/call:b", Status.WORKING, 1, NOW + 2_000),
        ),
        None,
    )


async def test_a_count_comes_in_parts(store: Store) -> None:
    for _ in range(5):
        await store.create(new_task())
    counted, after = list[int](), None
    for _ in range(3):
        part = await store.tally(after, 2)
        counted += [each.count for each in part.counts]
        after = part.next
    assert (counted, after) == ([2, 2, 1], None)


# -- hasten ------------------------------------------------------------------------------------------------------------


async def test_a_run_that_waits_for_its_next_attempt_is_due_now(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await running(store)
    await store.retry(claim, 3_600_000, "no")
    assert await take(store) is None
    changes.clear()
    clock.advance(1)
    assert await store.hasten(claim.task.id) is Hastened.DUE
    (change,) = changes
    assert (change.task_id, change.runnable, change.cancel) == (claim.task.id, True, False)
    assert (await store.inspect(claim.task.id)).events[1:] == (timeline.hastened(NOW + 1),)
    again = await take(store)
    assert again is not None
    assert (again.failures, again.deaths) == (1, 0)


async def test_a_sleep_is_over_and_a_step_is_tried_again(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step("0", state=EntryState.RETRYING), wake_in_ms=50_000)
    await store.record(claim, step("1"))
    await store.park(claim, sleep(60_000, "2"))
    clock.advance(10)
    assert await store.hasten(claim.task.id) is Hastened.DUE
    entries = (await store.inspect(claim.task.id)).journal.entries
    assert {place: entry.wake_at for place, entry in entries.items()} == {"0": NOW + 10, "1": None, "2": NOW + 10}
    again = await take(store)
    assert again is not None
    assert again.at == NOW + 10
    assert (await store.journal(again)).entries == entries


async def test_a_sleep_that_is_over_keeps_its_time(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    await store.record(claim, step("0", state=EntryState.RETRYING), wake_in_ms=10)
    clock.advance(10)
    await store.retry(claim, 1_000, "no")
    assert await store.hasten(claim.task.id) is Hastened.DUE
    assert (await store.inspect(claim.task.id)).journal.entries["0"].wake_at == NOW + 10


async def test_what_others_were_promised_stays(store: Store, clock: VirtualClock) -> None:
    """A sleep beside them is cut short all the same."""
    question = Asked(NAME, timeout_ms=60_000)
    claim = await waiting(store, both(asks(name=question), elsewhere("0", 90_000), sleep(99_000, "1")))
    clock.advance(10)
    assert await store.hasten(claim.task.id) is Hastened.DUE
    journal = (await store.inspect(claim.task.id)).journal
    assert (journal.questions["name"].deadline, journal.questions["name"].state.value) == (NOW + 60_000, "outstanding")
    assert [journal.entries[place].wake_at for place in "01"] == [NOW + 90_000, NOW + 10]


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
async def test_what_waits_for_an_answer_or_for_work_elsewhere_goes_on_waiting(
    store: Store, changes: Changes, timeout_ms: int | None
) -> None:
    asking = await parked(store, name=Asked(NAME, timeout_ms=timeout_ms))
    working = await waiting(store, elsewhere("0", timeout_ms))
    changes.clear()
    for claim in (asking, working):
        before = await store.inspect(claim.task.id)
        assert await store.hasten(claim.task.id) is Hastened.WAITING
        assert await store.inspect(claim.task.id) == before
    assert changes == []


async def test_a_question_that_was_answered_and_work_that_is_over_promise_nothing(store: Store) -> None:
    """An attempt may wait for the very instant at which they would have been given up."""
    claim = await parked(store, name=Asked(NAME, timeout_ms=60_000))
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await take(store)
    assert again is not None
    await store.record(again, external("1"), wake_in_ms=60_000)
    await store.settle(claim.task.id, "1", "a-token-that-nobody-guesses", EntryState.DONE, None)
    await store.retry(again, 60_000, "no")
    assert await store.hasten(claim.task.id) is Hastened.DUE


async def test_what_is_due_or_held_or_over_is_left_as_it_is(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    ended = await over(store)
    asleep = await waiting(store, sleep(1_000))
    clock.advance(1_000)
    ready = await store.create(new_task("ready"))
    busy = await store.create(new_task("busy"))
    await (await hire(store)).claim(1, "tools/call:busy")
    changes.clear()
    expected = {
        ended.id: Hastened.OVER,
        asleep.task.id: Hastened.READY,
        ready.id: Hastened.READY,
        busy.id: Hastened.HELD,
    }
    before = {task_id: await store.inspect(task_id) for task_id in expected}
    assert {task_id: await store.hasten(task_id) for task_id in expected} == expected
    assert {task_id: await store.inspect(task_id) for task_id in expected} == before
    assert changes == []


@pytest.mark.parametrize("task_id", ["tsk_nobody", "", "\ud800", "\0"])
async def test_what_is_unknown_can_not_be_hastened(store: Store, task_id: str) -> None:
    with pytest.raises(TaskNotFound):
        await store.hasten(task_id)


# -- discard -----------------------------------------------------------------------------------------------------------


async def test_tasks_that_are_over_are_thrown_away_whatever_their_ttl(
    store: Store, clock: VirtualClock, changes: Changes
) -> None:
    claim = await running(store, new_task(key="one", digest="d"))
    await store.record(claim, step(), note="again")
    await store.park(claim, asks(name=NAME))
    await store.request_cancel(ADA, claim.task.id)
    for_ever, kept = await over(store), await over(store, ttl_ms=1_000)
    changes.clear()
    assert await store.discard([claim.task.id, for_ever.id, for_ever.id], tombstone_ms=TOMBSTONE) == 2
    assert [each.id for each in (await store.browse(ALL, None, 10)).tasks] == [kept.id]
    assert await store.recall(ADA, "one", "d") is None
    for task_id in (claim.task.id, for_ever.id):
        with pytest.raises(TaskNotFound):
            await store.inspect(task_id)
        with pytest.raises(TaskExpired):
            await store.get(ADA, task_id)
        with pytest.raises(TaskNotFound):
            await store.get(BOB, task_id)
    clock.advance(TOMBSTONE)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, for_ever.id)
    assert changes == []


async def test_what_is_unfinished_or_unknown_is_passed_over(store: Store) -> None:
    held = await running(store)
    asking = await parked(store)
    ready = await store.create(new_task())
    task_ids = [held.task.id, asking.task.id, ready.id, "tsk_nobody", "", "\ud800", "\0"]
    assert await store.discard(task_ids, tombstone_ms=TOMBSTONE) == 0
    assert await store.discard([], tombstone_ms=TOMBSTONE) == 0
    assert (await store.get(ADA, asking.task.id)).status is Status.INPUT_REQUIRED
    assert (await store.finish(held, DONE)).status is Status.COMPLETED


async def test_nothing_of_a_task_that_was_thrown_away_comes_back_under_its_id(store: Store) -> None:
    claim = await running(store, new := new_task())
    await store.record(claim, step(), note="again")
    await store.finish(claim, DONE)
    assert await store.discard([new.id], tombstone_ms=TOMBSTONE) == 1
    again = await store.create(new)
    inspection = await store.inspect(new.id)
    assert (inspection.task, inspection.journal.entries, inspection.events) == (again, {}, ())
