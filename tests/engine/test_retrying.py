"""Another attempt of a whole task: when, with what it has done before, and how often."""

import asyncio

import pytest

from perdure.domain.errors import StepFailed
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState
from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status
from perdure.domain.timeline import EventKind
from perdure.engine.external import External, external
from perdure.engine.handler import Again
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.farm import BROKEN
from tests.engine.rigged import Rigged
from tests.engine.support import Coroutine, Stage, answer, ask, done, question, value
from tests.store.support import ADA, VirtualClock

NAME = question("Your name?")


async def test_a_failed_attempt_is_followed_by_another_after_the_delay(store: Store, clock: VirtualClock) -> None:
    attempts: list[tuple[int, int]] = []

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        attempts.append((run.claim.attempt, run.claim.failures))
        return Again(60_000, f"attempt {run.claim.attempt} failed") if run.claim.attempt < 3 else done()

    stage = Stage(store, work)
    for _ in range(2):
        assert (await stage.run()).status is Status.WORKING
        clock.advance(59_999)
        assert not await stage.is_due()
        clock.advance(1)
    assert (await stage.run()).status is Status.COMPLETED
    assert attempts == [(1, 0), (2, 1), (3, 2)]
    assert await stage.events() == [(EventKind.RETRY, "attempt 1 failed"), (EventKind.RETRY, "attempt 2 failed")]


async def test_steps_before_the_failed_one_keep_their_results_and_the_rest_is_done_again(
    store: Store, clock: VirtualClock
) -> None:
    ran: list[str] = []

    async def does(run: Run, name: str, *, fail: bool = False) -> JSON:
        async def call() -> JSON:
            ran.append(name)
            if fail and run.claim.failures == 0:
                raise ValueError(name)
            return name

        return await step(run, Step(name, call))

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        await does(run, "before")
        try:
            await does(run, "fails", fail=True)
        except StepFailed as failed:
            await does(run, "report it")
            return Again(1, str(failed), failed.places)
        await does(run, "after")
        return done()

    stage = Stage(store, work)
    await stage.run()
    assert list(await stage.entries()) == ["0"]
    clock.advance(1)
    assert (await stage.run()).status is Status.COMPLETED
    assert ran == ["before", "fails", "report it", "fails", "after"]


async def test_an_error_that_came_from_no_step_undoes_nothing(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        result = await value(run, "a", run.claim.failures)
        return Again(1, "elsewhere") if run.claim.failures == 0 else Completed({"result": result})

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1)
    assert await stage.result() == {"result": 0}


async def test_an_answer_is_kept_though_the_step_before_its_question_is_done_again(
    store: Store, clock: VirtualClock
) -> None:
    async def fails_at_first(run: Run) -> JSON:
        async def call() -> JSON:
            if run.claim.failures == 0:
                raise ValueError
            return None

        return await step(run, Step("fails", call))

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        try:
            await fails_at_first(run)
        except StepFailed as failed:
            answers = await ask(run, name=NAME)
            return Again(1, str(answers), failed.places)
        await value(run, "a step more")
        return Completed(await ask(run, name=NAME))

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    await stage.run()
    clock.advance(1)
    assert await stage.result() == {"name": "Ada"}


async def test_external_work_that_failed_is_begun_anew_under_another_ticket(store: Store, clock: VirtualClock) -> None:
    handles: list[Handle] = []

    async def start(handle: Handle) -> None:
        handles.append(handle)
        if len(handles) == 1:
            raise ConnectionError

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        try:
            return Completed({"result": await external(run, External("render", start))})
        except StepFailed as failed:
            return Again(1, str(failed), failed.places)

    stage = Stage(store, work)
    await stage.run()  # the start fails: the work was never begun, and keeps its handle
    clock.advance(1)
    await stage.run()
    assert handles[0] == handles[1]
    await store.settle(handles[1].task_id, handles[1].place, handles[1].token, EntryState.FAILED, BROKEN)
    await stage.run()
    clock.advance(1)
    await stage.run()
    assert handles[2].token != handles[1].token


async def test_failures_and_deaths_are_counted_apart(store: Store, clock: VirtualClock) -> None:
    seen: list[tuple[int, int, int]] = []

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        seen.append((run.claim.attempt, run.claim.failures, run.claim.deaths))
        if run.claim.attempt == 2:
            await asyncio.Event().wait()
        return Again(1, "again") if run.claim.attempt == 1 else done()

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1)
    execution = await stage.begin()
    await asyncio.sleep(0)
    await stage.crash(execution)
    await stage.run()
    assert seen == [(1, 0, 0), (2, 1, 0), (3, 1, 1)]


@pytest.mark.parametrize("order", ["cancel first", "retry first"])
async def test_a_task_that_is_cancelled_when_an_attempt_fails_has_no_other_in_either_order(
    gated: Rigged, order: str
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        return Again(1000, "again")

    stage = Stage(gated, work)
    gate = gated.gate_before("retry") if order == "cancel first" else gated.gate_after("retry")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await gated.request_cancel(ADA, stage.task.id)
    gate.open()
    await seeing
    assert (await stage.now()).status is Status.CANCELLED


async def test_an_attempt_that_failed_beside_a_branch_that_waits_is_tried_again_and_does_not_wait(
    store: Store, clock: VirtualClock
) -> None:
    async def fails(run: Run) -> JSON:
        async def call() -> JSON:
            if run.claim.failures == 0:
                raise ValueError
            return "fine"

        return await step(run, Step("fails", call))

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        try:
            result, answers = await run.gather([fails(run), ask(run, name=NAME)])
        except StepFailed as failed:
            return Again(1000, str(failed), failed.places)
        return Completed({"result": result, "answers": answers})

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.WORKING
    clock.advance(1000)
    assert (await stage.run()).status is Status.INPUT_REQUIRED
    await answer(store, stage.task, name="Ada")
    assert await stage.result() == {"result": "fine", "answers": {"name": "Ada"}}


async def test_a_handler_may_have_a_run_that_overran_tried_again(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        if run.claim.failures == 0:
            await asyncio.Event().wait()
        return done()

    handler = Coroutine(work, overrun=lambda run: Again(1000, "ran out of time"))
    stage = Stage(store, handler)
    await stage.create(timeout_ms=20)
    assert (await stage.run()).status is Status.WORKING
    assert await stage.events() == [(EventKind.RETRY, "ran out of time")]
    clock.advance(1000)
    assert (await stage.run()).status is Status.COMPLETED
