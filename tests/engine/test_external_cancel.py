"""Work that another system owns, and that somebody wants to stop: it is told, once, whatever happens meanwhile."""

import asyncio

import pytest

from perdure.domain.errors import AlreadySettled
from perdure.domain.model import JSON, JSONObject, Outcome, Status
from perdure.engine.execution import Execution
from perdure.engine.external import External, external
from perdure.engine.handler import Again
from perdure.engine.run import Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.farm import Farm
from tests.engine.rigged import Rigged
from tests.engine.support import (
    Coroutine,
    Stage,
    ask,
    claim_as_another,
    done,
    ended,
    handlers,
    question,
    serving,
    value,
)
from tests.store.support import ADA, new_task
from tests.support import PATIENCE, eventually


async def test_a_task_that_waits_for_work_which_can_not_be_told_is_cancelled_at_once(store: Store) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work())
    await stage.run()
    assert (await store.request_cancel(ADA, stage.task.id)).status is Status.CANCELLED
    with pytest.raises(AlreadySettled):
        await farm.report()


async def test_a_cancellation_wakes_the_run_which_tells_the_other_system_once_and_then_ends(store: Store) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work(cancel=True))
    await stage.run()
    for _ in range(3):
        asked = await store.request_cancel(ADA, stage.task.id)
        assert (asked.status, asked.cancel_requested) == (Status.WORKING, True)
    assert (await stage.run()).status is Status.CANCELLED
    assert farm.cancelled == farm.started
    assert len(farm.cancelled) == 1


async def test_a_worker_does_so_by_itself(store: Store) -> None:
    farm = Farm(store)
    task = await store.create(new_task())
    async with serving(store, handlers(report=farm.work(cancel=True))):
        await eventually(lambda: len(farm.started) == 1, "it was not handed over")
        await store.request_cancel(ADA, task.id)
        assert (await ended(store, task)).status is Status.CANCELLED
    assert farm.cancelled == farm.started


async def test_a_report_that_comes_before_the_woken_run_does_is_the_end_of_the_work_and_nobody_is_told(
    store: Store,
) -> None:
    farm = Farm(store)
    stage = Stage(store, farm.work(cancel=True))
    await stage.run()
    await store.request_cancel(ADA, stage.task.id)
    await farm.report()
    assert await stage.result() == {"result": "picture"}
    assert farm.cancelled == []


async def test_a_run_that_began_only_to_hear_of_its_cancellation_cleans_up_and_waits_for_nothing(store: Store) -> None:
    farm = Farm(store)
    caught: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await external(run, External("render", farm.start, farm.cancel))
        except asyncio.CancelledError:
            for verb in (
                lambda: value(run, "clean up"),
                lambda: run.sleep(1),
                lambda: ask(run, name=question("Why?")),
                lambda: external(run, External("render", farm.start, farm.cancel)),
            ):
                try:
                    await verb()
                except asyncio.CancelledError:
                    caught.append("cancelled")
            raise
        return done()

    stage = Stage(store, work)
    await stage.run()
    await store.request_cancel(ADA, stage.task.id)
    assert (await stage.run()).status is Status.CANCELLED
    assert (caught, len(farm.started), len(farm.cancelled)) == (["cancelled"] * 2, 1, 1)
    assert [entry.name for entry in (await stage.entries()).values()] == ["render", "start render"]


async def test_a_cancellation_that_comes_while_the_work_is_being_started_is_told_in_a_run_of_its_own(
    store: Store,
) -> None:
    """Nobody knows whether it has begun there, so it is told; with a run of its own, so that no crash forgets it."""
    farm = Farm(store)
    farm.on_start = asyncio.Event().wait  # pyright: ignore[reportAttributeAccessIssue] - never returns
    stage = Stage(store, farm.work(cancel=True))
    execution = await stage.begin()
    await eventually(lambda: len(farm.started) == 1, "it was not begun")
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert ((await stage.now()).status, farm.cancelled) == (Status.WORKING, [])
    assert (await stage.run()).status is Status.CANCELLED
    assert farm.cancelled == farm.started


async def test_a_cancellation_that_comes_while_another_branch_goes_on_is_told(store: Store) -> None:
    farm = Farm(store)
    long_began = asyncio.Event()

    async def long() -> JSON:
        long_began.set()
        return await asyncio.Future[JSON]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([external(run, External("render", farm.start, farm.cancel)), step(run, Step("long", long))])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await long_began.wait()

    async def handed_over() -> bool:
        return "0.0/1" in await stage.entries()

    await eventually(handed_over, "it was not handed over")
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert (await stage.run()).status is Status.CANCELLED
    assert farm.cancelled == farm.started


@pytest.mark.parametrize("order", ["cancel first", "park first"])
async def test_a_cancellation_at_the_moment_of_parking_is_told_in_either_order(gated: Rigged, order: str) -> None:
    farm = Farm(gated)
    stage = Stage(gated, farm.work(cancel=True))
    gate = gated.gate_before("park") if order == "cancel first" else gated.gate_after("park")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await gated.request_cancel(ADA, stage.task.id)
    gate.open()
    await seeing
    assert (await stage.run()).status is Status.CANCELLED
    assert farm.cancelled == farm.started


async def test_another_process_may_ask_for_it_and_any_worker_tells(two_processes: tuple[Store, Store]) -> None:
    ours, theirs = two_processes
    farm = Farm(ours)
    task = await ours.create(new_task())
    async with serving(ours, handlers(report=farm.work(cancel=True)), poll_ms=20):

        async def parked() -> bool:
            run = (await theirs.inspect(task.id)).run
            return run is not None and run.session is None and len(farm.started) == 1

        await eventually(parked, "it was not parked")
        await theirs.request_cancel(ADA, task.id)
        assert (await ended(theirs, task)).status is Status.CANCELLED
    assert farm.cancelled == farm.started


async def test_a_cancellation_that_comes_during_the_claim_of_the_woken_run_does_not_stop_it_before_it_has_told(
    rigged: Rigged,
) -> None:
    """The worker hears of it twice: from the claim, and as a hint of its own store while that was under way."""
    farm = Farm(rigged)
    task = await rigged.create(new_task())
    claim = await claim_as_another(rigged)
    execution = Execution(rigged, Coroutine(farm.work(cancel=True)), claim, cleanup=PATIENCE)
    await execution.see_through()

    async def cancel() -> None:
        await rigged.request_cancel(ADA, task.id)

    rigged.before["claim"].append(cancel)
    async with serving(rigged, handlers(report=farm.work(cancel=True))):
        assert (await ended(rigged, task)).status is Status.CANCELLED
    assert farm.cancelled == farm.started


async def test_a_cancelled_run_that_never_comes_to_its_end_is_ended_after_its_cleanup(store: Store) -> None:
    """Also one that began only to hear of it: the code before the external work hangs this time."""
    farm = Farm(store)
    hang = False

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        if hang:
            await asyncio.Event().wait()
        return await farm.work(cancel=True)(run, params)

    stage = Stage(store, work, cleanup=0.01)
    await stage.run()
    hang = True
    await store.request_cancel(ADA, stage.task.id)
    assert (await stage.run()).status is Status.CANCELLED
    assert farm.cancelled == []


async def test_a_run_that_may_go_on_after_all_hands_its_external_work_over_at_a_shutdown(store: Store) -> None:
    """A shutdown is no cancellation: nobody is told, and the next worker waits for the same work."""
    farm = Farm(store)
    farm.on_start = asyncio.Event().wait  # pyright: ignore[reportAttributeAccessIssue] - never returns
    stage = Stage(store, farm.work(cancel=True))
    execution = await stage.begin()
    await eventually(lambda: len(farm.started) == 1, "it was not begun")
    execution.tell(Stop.SHUTDOWN)
    await execution.see_through()
    farm.on_start = None
    await stage.run()
    await farm.report()
    assert await stage.result() == {"result": "picture"}
    assert (farm.cancelled, farm.started[0]) == ([], farm.started[1])
