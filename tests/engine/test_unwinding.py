"""What code does while it is unwound is not in the way of the next run, which comes by there with something else."""

import asyncio
from contextlib import suppress

import pytest

from perdure.domain.errors import ConfigurationError, StepFailed
from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status
from perdure.engine.run import Parked, Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.support import Stage, answer, ask, done, value
from tests.store.support import ADA, NAME
from tests.support import eventually


async def test_a_step_in_a_finally_does_not_run_when_the_run_parks(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await ask(run, name=NAME)
            await value(run, "use")
        finally:
            await value(run, "release")
        return done()

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.INPUT_REQUIRED
    assert await stage.entries() == {}
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.COMPLETED
    assert [entry.name for entry in (await stage.entries()).values()] == ["use", "release"]


async def test_nor_in_the_finally_around_a_gather_of_which_a_branch_parks(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await run.gather([ask(run, name=NAME), value(run, "beside")])
        finally:
            await value(run, "release")
        return done()

    stage = Stage(store, work)
    await stage.run()
    assert list(await stage.entries()) == ["0.1/0"]
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.COMPLETED


@pytest.mark.parametrize("why", [Stop.SHUTDOWN, Stop.LOST])
async def test_nor_when_the_run_has_to_make_way(store: Store, why: Stop) -> None:
    reached = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await value(run, "before")
            reached.set()
            await asyncio.Event().wait()
        finally:
            await value(run, "release")
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(reached.is_set, "it did not get there")
    execution.tell(why)
    await execution.see_through()
    assert [entry.name for entry in (await stage.entries()).values()] == ["before"]
    assert (await stage.now()).status is Status.WORKING


async def test_steps_of_the_clean_up_after_a_cancellation_run_and_are_not_on_record(store: Store) -> None:
    reached, ran = asyncio.Event(), list[str]()

    async def fails() -> JSON:
        raise ZeroDivisionError

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await value(run, "before")
            reached.set()
            await asyncio.Event().wait()
        finally:
            ran.append(str(await value(run, "undo", "undone")))
            with pytest.raises(StepFailed, match="ZeroDivisionError"):
                await step(run, Step("fails", fails))
            await run.gather([value(run, "side"), value(run, "by side")])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(reached.is_set, "it did not get there")
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert ((await stage.now()).status, ran) == (Status.CANCELLED, ["undone"])
    assert [entry.name for entry in (await stage.entries()).values()] == ["before"]


async def test_a_verb_in_a_task_of_asyncios_that_is_no_branch_fails_the_task_and_says_where_it_belongs(
    store: Store,
) -> None:
    async def chapter(run: Run, number: int) -> object:
        await asyncio.sleep(0)
        return await value(run, "chapter", number)

    async def work(run: Run, params: JSONObject) -> Outcome:
        with suppress(ConfigurationError):
            await asyncio.gather(*(chapter(run, number) for number in range(3)))
        return done("swallowed")

    over = await Stage(store, work).run()
    assert over.status is Status.FAILED
    assert over.error is not None
    assert "step 'chapter'" in over.error.message
    assert "task.gather" in over.error.message


async def test_a_wait_that_was_swallowed_is_a_wait_for_every_verb_after_it(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        for _ in range(2):
            with suppress(Parked):
                await ask(run, name=NAME)
        with pytest.raises(Parked):
            await value(run, "too early")
        return Completed({})

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.INPUT_REQUIRED
    assert await stage.entries() == {}
