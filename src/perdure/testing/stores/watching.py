"""What those who watch tasks ask: what has changed, whether others have written, and which tasks an owner has."""

from dataclasses import replace

import pytest

from perdure.domain.model import Failed, Failure, Owner, Status, Task
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import ADA, AGE, BOB, DONE, ELSEWHERE, NAME, Changes, hire, new_task, parked, running

# -- what has changed --------------------------------------------------------------------------------------------------


async def test_of_the_known_tasks_those_that_have_changed_come_back_as_their_owner_sees_them(store: Store) -> None:
    claim = await running(store, new_task(owner=BOB))
    idle = await store.create(new_task())
    known = {idle.id: idle.version, claim.task.id: claim.task.version}
    assert await store.changed(known) == {}
    await store.report(claim, "halfway")
    assert await store.changed(known) == {claim.task.id: await store.get(BOB, claim.task.id)}
    await store.finish(claim, DONE)
    over = await store.get(BOB, claim.task.id)
    assert over.result == DONE.result
    assert await store.changed(known) == {over.id: over}
    assert await store.changed({**known, over.id: over.version}) == {}
    assert await store.changed({}) == {}


async def test_a_task_that_waits_is_told_with_its_open_questions(store: Store) -> None:
    claim = await parked(store, name=NAME, age=AGE)
    first = await store.get(ADA, claim.task.id)
    assert [question.key for question in first.inputs] == ["name", "age"]
    assert await store.changed({first.id: claim.task.version}) == {first.id: first}
    await store.answer(ADA, first.id, {"name": "Ada"})
    second = await store.get(ADA, first.id)
    assert [question.key for question in second.inputs] == ["age"]
    assert await store.changed({first.id: first.version}) == {first.id: second}


async def test_a_version_that_is_ahead_of_the_store_is_another_one(store: Store) -> None:
    """A database that was set back has lost what its readers have seen."""
    task = await store.create(new_task())
    assert await store.changed({task.id: task.version + 5}) == {task.id: task}


async def test_a_task_that_is_gone_is_told_as_none(store: Store, clock: VirtualClock) -> None:
    claim, stays = await running(store, new_task(ttl_ms=1_000)), await store.create(new_task())
    await store.finish(claim, DONE)
    over = await store.get(ADA, claim.task.id)
    clock.advance(1_000)
    assert await store.purge(10, linger_ms=0, tombstone_ms=60_000) == 1
    assert await store.changed({over.id: over.version, stays.id: stays.version}) == {over.id: None}


@pytest.mark.parametrize("strange", ["tsk_nobody", "", "tsk_ünknöwn", "\ud800", "tsk_\0", 'tsk_"quoted"\\', "a,b\n{}"])
async def test_what_never_was_a_task_is_told_as_none(store: Store, strange: str) -> None:
    task = await store.create(new_task())
    assert await store.changed({strange: 1, task.id: 0}) == {strange: None, task.id: task}
    assert await store.changed({strange: 1}) == {strange: None}


async def test_hundreds_of_tasks_are_looked_at_in_one_go(store: Store) -> None:
    tasks = [await store.create(new_task()) for _ in range(300)]
    last = tasks[-1]
    await store.request_cancel(ADA, last.id)
    assert await store.changed({task.id: task.version for task in tasks}) == {last.id: await store.get(ADA, last.id)}


async def test_looking_for_changes_changes_nothing(store: Store, changes: Changes) -> None:
    claim = await parked(store)
    before = await store.inspect(claim.task.id)
    changes.clear()
    await store.changed({claim.task.id: 0})
    await store.page(ADA, None, 10)
    assert await store.inspect(claim.task.id) == before
    assert changes == []


# -- whether others have written ---------------------------------------------------------------------------------------


async def test_what_a_store_commits_itself_is_committed_by_nobody_else(store: Store) -> None:
    before = store.commits_by_others()
    for _ in range(5):
        claim = await running(store)
        assert store.commits_by_others() == before
        await store.finish(claim, DONE)
        assert store.commits_by_others() == before


# -- which tasks an owner has ------------------------------------------------------------------------------------------


async def numbers(store: Store, owner: Owner, after: int | None, limit: int) -> list[int]:
    return [task.seq for task in await store.page(owner, after, limit)]


async def test_an_owners_tasks_come_newest_first_page_after_page(store: Store) -> None:
    made = [(await store.create(new_task())).seq for _ in range(5)]
    newest = sorted(made, reverse=True)
    assert await numbers(store, ADA, None, 10) == newest
    assert await numbers(store, ADA, None, 2) == newest[:2]
    assert await numbers(store, ADA, newest[1], 2) == newest[2:4]
    assert await numbers(store, ADA, newest[3], 2) == newest[4:]
    assert await numbers(store, ADA, newest[4], 2) == []


async def test_a_page_has_the_tasks_of_its_owner_and_no_others(store: Store) -> None:
    mine = await store.create(new_task())
    for owner in (BOB, ELSEWHERE):
        await store.create(new_task(owner=owner))
    theirs = await numbers(store, BOB, None, 10)
    assert await numbers(store, ADA, None, 10) == [mine.seq]
    assert await numbers(store, ADA, max(theirs) + 1, 10) == [mine.seq]
    for nobody in (Owner("acme", ""), Owner("", "ada"), Owner("acmeada", ""), Owner("\ud800", "ada"), Owner("a\0", "")):
        assert await numbers(store, nobody, None, 10) == []


async def test_a_page_goes_on_where_it_was_though_tasks_are_made_and_purged_meanwhile(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store, new_task(ttl_ms=1_000))
    oldest, middle, newest = claim.seq, await store.create(new_task()), await store.create(new_task())
    assert await numbers(store, ADA, None, 1) == [newest.seq]
    await store.create(new_task())
    assert await numbers(store, ADA, newest.seq, 10) == [middle.seq, oldest]
    await store.finish(claim, DONE)
    clock.advance(1_000)
    await store.purge(10, linger_ms=0, tombstone_ms=60_000)
    assert await numbers(store, ADA, newest.seq, 10) == [middle.seq]
    assert await numbers(store, ADA, oldest, 10) == []


def listed(task: Task) -> Task:
    return replace(task, result=None, error=None, inputs=())


async def test_a_page_says_how_tasks_stand_and_nothing_of_what_they_ask_or_came_to(
    store: Store, clock: VirtualClock
) -> None:
    asking = await parked(store)
    idle = await store.create(new_task(ttl_ms=60_000, keep_ms=5_000))
    worker = await hire(store)
    for name, outcome in (("good", DONE), ("bad", Failed(Failure(-32000, "Broken", {"a": [1]}), "It broke"))):
        clock.advance(10)
        await store.create(new_task(name))
        (claim,) = await worker.claim(1, f"tools/call:{name}")
        await store.finish(claim, outcome)
    await store.request_cancel(ADA, idle.id)
    page = await store.page(ADA, None, 10)
    assert page == tuple([listed(await store.get(ADA, task.id)) for task in page])
    assert [task.status for task in page] == [
        Status.FAILED,
        Status.COMPLETED,
        Status.CANCELLED,
        Status.INPUT_REQUIRED,
    ]
    assert (page[0].message, page[3].id) == ("It broke", asking.task.id)
