"""What those who watch tasks ask: what has changed, and whether others have written."""

import pytest

from perdure.domain.model import Failed, Failure, Owner
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import ADA, BOB, DONE, ELSEWHERE, Changes, new_task, parked, running, standing

# -- what has changed --------------------------------------------------------------------------------------------------


async def test_of_the_known_tasks_those_that_have_changed_are_told_whoevers_they_are(store: Store) -> None:
    claim = await running(store, new_task(owner=BOB))
    idle = await store.create(new_task())
    known = {idle.id: idle.version, claim.task.id: claim.task.version}
    assert await store.changed(known) == {}
    await store.report(claim, "halfway")
    assert await store.changed(known) == {claim.task.id: await store.get(BOB, claim.task.id)}
    await store.finish(claim, DONE)
    over = await store.get(BOB, claim.task.id)
    assert await store.changed(known) == {over.id: standing(over)}
    assert await store.changed({**known, over.id: over.version}) == {}
    assert await store.changed({}) == {}


async def test_results_errors_and_questions_are_left_out(store: Store) -> None:
    asks, done, failed = await parked(store), await running(store), await running(store)
    await store.finish(done, DONE)
    await store.finish(failed, Failed(Failure(-32603, "broken", None)))
    ids = [claim.task.id for claim in (asks, done, failed)]
    whole = [await store.get(ADA, task_id) for task_id in ids]
    assert [(bool(task.inputs), task.result, task.error is not None) for task in whole] == [
        (True, None, False), (False, DONE.result, False), (False, None, True)
    ]  # fmt: skip
    assert await store.changed(dict.fromkeys(ids, 0)) == {task.id: standing(task) for task in whole}


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


@pytest.mark.parametrize("owner", [BOB, ELSEWHERE, Owner("\ud800", "ada"), Owner("acme", "a\0")], ids=repr)
async def test_what_is_another_owners_is_told_as_none_whatever_version_is_known(store: Store, owner: Owner) -> None:
    task, other = await store.create(new_task(owner=ADA)), "tsk_nobody"
    for version in (0, task.version):
        known = {task.id: version, other: version}
        assert await store.changed(known, owner) == {task.id: None, other: None}
    assert await store.changed({task.id: 0}, ADA) == {task.id: task}
    assert await store.changed({task.id: task.version}, ADA) == {}


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
