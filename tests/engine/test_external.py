"""Work that another system owns: begun once, settled from outside at any moment, given up in time."""

import asyncio

import pytest

from perdure.domain.errors import AlreadySettled, LimitExceeded, StepFailed, TaskNotFound
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState
from perdure.domain.limits import Limits
from perdure.domain.model import Completed, JSONObject, Outcome, Status
from perdure.engine.external import External, external
from perdure.engine.run import Run
from perdure.store.base import Store
from tests.engine.farm import BROKEN, Farm
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, Work, done, ended, handlers, serving
from tests.store.support import VirtualClock, new_task
from tests.support import eventually


async def test_work_that_is_settled_later_wakes_the_run_that_waits_for_it(store: Store) -> None:
    farm = Farm(store)
    task = await store.create(new_task())
    async with serving(store, handlers(report=farm.work())):
        await eventually(lambda: len(farm.started) == 1, "it was not handed over")
        await farm.report()
        assert (await ended(store, task)).result == {"result": "picture"}
    assert len(farm.started) == 1
    (handle,) = farm.started
    assert (handle.task_id, handle.place) == (task.id, "0")
    assert len(handle.token) >= 32


async def test_a_run_that_waits_for_work_elsewhere_is_parked_and_not_due(store: Store) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work())
    assert (await stage.run()).status is Status.WORKING
    assert not await stage.is_due()
    await farm.report()
    assert await stage.result() == {"result": "picture"}


async def test_work_that_is_settled_while_the_call_that_starts_it_is_under_way_is_not_slept_through(
    store: Store,
) -> None:
    farm = Farm(store)
    farm.on_start = farm.report
    stage = Stage(store, farm.work())
    await stage.run()
    assert await stage.result() == {"result": "picture"}
    assert len(farm.started) == 1


async def test_work_that_is_settled_before_the_run_is_parked_is_not_slept_through(gated: Rigged) -> None:
    farm = Farm(gated)
    gate = gated.gate_before("park")
    stage = Stage(gated, farm.work())
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await farm.report()
    gate.open()
    await seeing
    assert await stage.result() == {"result": "picture"}


async def test_work_that_was_settled_before_its_start_was_on_record_is_not_started_again(gated: Rigged) -> None:
    """The worker died in between: the report is there, and the record of the start is not."""
    farm = Farm(gated)
    farm.on_start = farm.report
    stage = Stage(gated, farm.work())
    gate = gated.gate_before("record")
    gate.open()  # of the announcement
    gate = gated.gate_before("record")
    execution = await stage.begin()
    await gate.reached()
    await stage.crash(execution)
    gate.open()
    await execution.gone()
    assert await stage.result() == {"result": "picture"}
    assert len(farm.started) == 1


async def test_a_start_that_a_crash_interrupted_is_made_again_with_the_same_ticket(store: Store) -> None:
    farm = Farm(store)
    farm.on_start = asyncio.Event().wait  # pyright: ignore[reportAttributeAccessIssue] - never returns
    stage = Stage(store, farm.work())
    execution = await stage.begin()
    await eventually(lambda: len(farm.started) == 1, "it was not begun")
    await stage.crash(execution)
    farm.on_start = None
    await stage.run()
    first, second = farm.started
    assert first == second


async def test_a_report_of_failure_fails_the_step_with_what_was_reported(store: Store) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work())
    await stage.run()
    await farm.report(BROKEN, EntryState.FAILED)
    assert await stage.result() == BROKEN


async def test_a_start_that_fails_is_a_failed_step(store: Store) -> None:
    farm = Farm(store)

    async def refuse() -> None:
        raise ConnectionError("no farm")

    farm.on_start = refuse
    stage = Stage(store, farm.work())
    assert await stage.result() == {"type": "ConnectionError", "message": "no farm", "detail": None}


async def test_a_long_name_is_cut_where_the_start_is_named_after_it(store: Store) -> None:
    farm = Farm(store)

    async def work(run: Run, params: JSONObject) -> Outcome:
        await external(run, External("r" * 10, farm.start))
        return done()

    stage = Stage(store, work, limits=Limits(step_name=10))
    await stage.run()
    assert {place: entry.name for place, entry in (await stage.entries()).items()} == {
        "0": "r" * 10,
        "1": "start " + "r" * 4,
    }


async def test_what_others_reported_counts_in_the_journal_and_when_it_is_full_no_more_is_begun(store: Store) -> None:
    farm = Farm(store)

    async def work(run: Run, params: JSONObject) -> Outcome:
        first = await external(run, External("first", farm.start))
        try:
            await external(run, External("second", farm.start))
        except LimitExceeded as error:
            return Completed({"first": first, "error": str(error)})
        return done("no limit")

    stage = Stage(store, work, limits=Limits(journal=300))
    await stage.run()
    await farm.report("x" * 250)
    result = await stage.result()
    assert result["first"] == "x" * 250
    assert str(result["error"]).startswith("The journal of a task takes at most 300 bytes as JSON")
    assert len(farm.started) == 1


async def test_several_pieces_of_work_side_by_side_each_have_a_ticket_of_their_own(store: Store) -> None:
    farm = Farm(store)

    async def work(run: Run, params: JSONObject) -> Outcome:
        what = External("render", farm.start)
        return Completed({"values": await run.gather([external(run, what), external(run, what)])})

    stage = Stage(store, work)
    await stage.run()
    first, second = farm.started
    assert first.token != second.token
    await store.settle(second.task_id, second.place, second.token, EntryState.DONE, "two")
    assert (await stage.run()).status is Status.WORKING
    await store.settle(first.task_id, first.place, first.token, EntryState.DONE, "one")
    assert await stage.result() == {"values": ["one", "two"]}


async def test_a_forged_ticket_settles_nothing(store: Store) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work())
    await stage.run()
    (handle,) = farm.started
    with pytest.raises(TaskNotFound):
        await store.settle(handle.task_id, handle.place, "forged", EntryState.DONE, "picture")
    assert not await stage.is_due()


# -- time --------------------------------------------------------------------------------------------------------------

TOO_LATE: JSONObject = {"type": "TimeoutError", "message": "'render' did not report in time", "detail": None}


async def test_work_that_does_not_report_in_time_is_given_up_and_a_late_report_refused(
    store: Store, clock: VirtualClock
) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work(timeout_ms=1000))
    await stage.run()
    clock.advance(999)
    assert not await stage.is_due()
    clock.advance(1)
    assert await stage.result() == TOO_LATE
    with pytest.raises(AlreadySettled):
        await farm.report()


async def test_its_time_is_counted_from_when_it_was_announced_whatever_crashes(
    store: Store, clock: VirtualClock
) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work(timeout_ms=1000))
    await stage.run()
    clock.advance(500)
    stage_of_another = await stage.is_due()
    assert not stage_of_another
    clock.advance(500)
    await stage.crash(await stage.begin())
    assert await stage.result() == TOO_LATE


async def test_a_report_that_comes_just_before_the_work_is_given_up_counts(gated: Rigged, clock: VirtualClock) -> None:
    farm = Farm(gated)
    stage = Stage(gated, farm.work(timeout_ms=1000))
    await stage.run()
    clock.advance(1000)
    gate = gated.gate_before("settle")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await farm.report()
    gate.open()
    await seeing
    assert (await stage.now()).result == {"result": "picture"}


async def test_a_report_that_comes_just_after_the_work_was_given_up_is_refused(
    gated: Rigged, clock: VirtualClock
) -> None:
    farm = Farm(gated)
    stage = Stage(gated, farm.work(timeout_ms=1000))
    await stage.run()
    clock.advance(1000)
    gate = gated.gate_after("settle")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    with pytest.raises(AlreadySettled):
        await farm.report()
    gate.open()
    await seeing
    assert (await stage.now()).result == TOO_LATE


async def test_a_report_that_was_there_when_the_time_ran_out_counts(store: Store, clock: VirtualClock) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work(timeout_ms=1000))
    await stage.run()
    clock.advance(1000)
    await farm.report()
    assert await stage.result() == {"result": "picture"}


async def test_a_run_whose_task_was_purged_while_it_gave_up_is_dropped(gated: Rigged, clock: VirtualClock) -> None:
    farm = Farm(gated)
    stage = Stage(gated, farm.work(timeout_ms=1000))
    stage.task = await gated.create(new_task(ttl_ms=1000))
    await stage.run()
    clock.advance(1000)
    gate = gated.gate_after("settle")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    assert await gated.expire(10) == 1
    assert await gated.purge(10, linger_ms=0, tombstone_ms=1000) == 1
    gate.open()
    assert not await seeing


# -- the other side hangs ----------------------------------------------------------------------------------------------


async def hangs(handle: Handle) -> None:
    await asyncio.Event().wait()


def hanging(what: External) -> Work:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await external(run, what)
        except StepFailed as failed:
            return Completed({"type": failed.type, "message": failed.message})
        raise AssertionError

    return work


async def test_a_start_that_hangs_is_given_up_when_the_time_of_the_work_is_up_and_the_other_side_is_told(
    store: Store,
) -> None:
    farm = Farm(store)
    stage = Stage(store, hanging(External("render", hangs, farm.cancel, timeout_ms=20)))
    assert await stage.result() == {"type": "TimeoutError", "message": "'render' was not begun in time"}
    assert len(farm.cancelled) == 1


async def test_a_cancel_that_hangs_is_given_up_after_a_time_of_its_own(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    farm = Farm(store)
    stage = Stage(store, hanging(External("render", farm.start, hangs, timeout_ms=1000, cancel_ms=20)))
    await stage.run()
    clock.advance(1000)
    assert await stage.result() == {"type": "TimeoutError", "message": "'render' did not report in time"}
    assert "'render' could not be told in time" in caplog.text


async def test_a_time_out_of_the_authors_own_is_an_error_like_any_other(store: Store, clock: VirtualClock) -> None:
    async def times_out(handle: Handle) -> None:
        raise TimeoutError("mine")

    stage = Stage(store, hanging(External("render", times_out, timeout_ms=1000)))
    assert await stage.result() == {"type": "TimeoutError", "message": "mine"}
    stage = Stage(store, hanging(External("render", Farm(store).start, times_out, timeout_ms=1000)))
    await stage.run()
    clock.advance(1000)
    assert (await stage.run()).status is Status.FAILED
