"""Two things at the same moment, in both orders: each has a winner, and the loser changes nothing.

A gate holds one verb of the store up, just before or just after it has happened; the other side acts meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status, Task
from perdure.engine.run import Run, Stop
from perdure.engine.steps import Step, step
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, Work, answer, ask, done, question
from tests.store.support import ADA, VirtualClock, new_task

BEFORE, AFTER = "before it", "after it"
orders = pytest.mark.parametrize("order", [BEFORE, AFTER])

NAME = question("Your name?")


async def at_once(run: Run, params: JSONObject) -> Outcome:
    return done()


async def ask_name(run: Run, params: JSONObject) -> Outcome:
    return Completed(await ask(run, name=NAME))


async def sleep(run: Run, params: JSONObject) -> Outcome:
    await run.sleep(1000)
    return done()


async def race(
    store: Rigged,
    work: Work,
    verb: str,
    order: str,
    other: Callable[[Stage], Awaitable[object]],
    task: Task | None = None,
) -> tuple[Stage, bool]:
    """One run of `work`, with what `other` does before or after `verb`; and whether the run counted."""
    stage = Stage(store, work)
    if task is not None:
        stage.task = task
    gate = store.gate_before(verb) if order == BEFORE else store.gate_after(verb)
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await other(stage)
    gate.open()
    return stage, await seeing


async def cancel(stage: Stage) -> None:
    await stage.store.request_cancel(ADA, stage.task.id)


async def take_over(stage: Stage) -> None:
    run = (await stage.store.inspect(stage.task.id)).run
    await stage.store.take_over([run.session] if run is not None and run.session is not None else [])


# -- completion --------------------------------------------------------------------------------------------------------


@orders
async def test_a_result_wins_against_a_cancellation_in_either_order(gated: Rigged, order: str) -> None:
    """The work had ended before it could hear of it."""
    stage, counted = await race(gated, at_once, "finish", order, cancel)
    over = await stage.now()
    assert (counted, over.status, over.result) == (True, Status.COMPLETED, done().result)


@orders
async def test_of_a_completion_and_a_takeover_the_first_wins(gated: Rigged, order: str) -> None:
    stage, counted = await race(gated, at_once, "finish", order, take_over)
    now = await stage.now()
    if order == BEFORE:
        assert (counted, now.status) == (False, Status.WORKING)
        assert (await stage.run()).result == done().result
        assert stage.claim.attempt == 2
    else:
        assert (counted, now.status) == (True, Status.COMPLETED)
        assert await gated.sessions() != ()


@orders
async def test_of_a_completion_and_an_expiry_the_first_wins(gated: Rigged, clock: VirtualClock, order: str) -> None:
    async def expire(stage: Stage) -> None:
        clock.advance(1000)
        await gated.expire(10)

    task = await gated.create(new_task(ttl_ms=1000))
    stage, counted = await race(gated, at_once, "finish", order, expire, task)
    over = await stage.now()
    assert (counted, over.status) == ((False, Status.FAILED) if order == BEFORE else (True, Status.COMPLETED))


@orders
async def test_of_a_completion_and_a_deadline_that_somebody_else_keeps_the_first_wins(
    gated: Rigged, clock: VirtualClock, order: str
) -> None:
    async def free(stage: Stage) -> None:
        clock.advance(120_001)
        await gated.free_overdue(10, late_ms=60_000)

    task = await gated.create(new_task(timeout_ms=60_000))
    stage, counted = await race(gated, at_once, "finish", order, free, task)
    assert counted == (order == AFTER)
    assert (await stage.now()).status is (Status.WORKING if order == BEFORE else Status.COMPLETED)


# -- parking -----------------------------------------------------------------------------------------------------------


@orders
@pytest.mark.parametrize("work", [ask_name, sleep])
async def test_a_cancellation_wins_against_a_wait_in_either_order(gated: Rigged, order: str, work: Work) -> None:
    stage, counted = await race(gated, work, "park", order, cancel)
    over = await stage.now()
    assert (counted, over.status, over.inputs) == (True, Status.CANCELLED, ())


@orders
async def test_of_a_wait_and_a_takeover_the_first_wins(gated: Rigged, order: str) -> None:
    stage, counted = await race(gated, ask_name, "park", order, take_over)
    if order == BEFORE:
        assert (counted, (await stage.now()).status) == (False, Status.WORKING)
        assert (await stage.run()).status is Status.INPUT_REQUIRED
    assert (await stage.now()).status is Status.INPUT_REQUIRED
    await answer(gated, stage.task, name="Ada")
    assert await stage.result() == {"name": "Ada"}


@orders
async def test_of_a_wait_and_an_expiry_the_expiry_wins_in_either_order(
    gated: Rigged, clock: VirtualClock, order: str
) -> None:
    async def expire(stage: Stage) -> None:
        clock.advance(1000)
        await gated.expire(10)

    task = await gated.create(new_task(ttl_ms=1000))
    stage, counted = await race(gated, ask_name, "park", order, expire, task)
    over = await stage.now()
    assert (counted, over.status, over.inputs) == (order == AFTER, Status.FAILED, ())


@orders
async def test_an_answer_is_kept_whether_it_comes_before_or_after_the_run_that_wakes(
    gated: Rigged, clock: VirtualClock, order: str
) -> None:
    """A timer wakes the run, and the answer comes while it is on its way to sleep again."""

    async def work(run: Run, params: JSONObject) -> Outcome:
        answers, _ = await run.gather([ask(run, name=NAME), run.sleep(1000)])
        assert answers is not None
        return Completed(answers)

    async def answer_it(stage: Stage) -> None:
        await answer(gated, stage.task, name="Ada")

    stage = Stage(gated, work)
    await stage.run()
    clock.advance(1000)
    stage, _ = await race(gated, work, "park", order, answer_it, stage.task)
    assert await stage.result() == {"name": "Ada"}


@orders
async def test_a_time_that_comes_while_the_run_is_being_parked_is_not_slept_through(
    gated: Rigged, clock: VirtualClock, order: str
) -> None:
    async def later(stage: Stage) -> None:
        clock.advance(1000)

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([run.sleep(1000)])  # which is on record before the run is parked
        return done()

    stage, _ = await race(gated, work, "park", order, later)
    assert await stage.is_due()
    assert (await stage.run()).status is Status.COMPLETED


# -- takeover and expiry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["cancel", "take over"])
async def test_a_task_that_is_cancelled_and_taken_over_is_cancelled_in_either_order(gated: Rigged, first: str) -> None:
    stage = Stage(gated, ask_name)
    gate = gated.gate_before("journal")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    for act in (cancel, take_over) if first == "cancel" else (take_over, cancel):
        await act(stage)
    execution.tell(Stop.LOST)
    gate.open()
    assert not await seeing
    assert (await stage.now()).status is Status.CANCELLED


@pytest.mark.parametrize("first", ["cancel", "expire"])
async def test_a_running_task_that_is_cancelled_and_expires_has_failed_in_either_order(
    gated: Rigged, clock: VirtualClock, first: str
) -> None:
    """The intent to cancel is none of the ends: what ends it is the expiry, before the work could."""

    async def expire(stage: Stage) -> None:
        clock.advance(1000)
        await gated.expire(10)

    stage = Stage(gated, ask_name)
    stage.task = await gated.create(new_task(ttl_ms=1000))
    gate = gated.gate_before("journal")
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    for act in (cancel, expire) if first == "cancel" else (expire, cancel):
        await act(stage)
    execution.tell(Stop.LOST)
    gate.open()
    assert not await seeing
    assert (await stage.now()).status is Status.FAILED


@orders
async def test_a_run_that_is_handed_over_when_its_task_is_cancelled_is_cancelled_in_either_order(
    gated: Rigged, order: str
) -> None:
    async def hangs(run: Run, params: JSONObject) -> Outcome:
        return await asyncio.Future[Outcome]()

    stage = Stage(gated, hangs)
    gate = gated.gate_before("release") if order == BEFORE else gated.gate_after("release")
    execution = await stage.begin()
    execution.tell(Stop.SHUTDOWN)
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    await cancel(stage)
    gate.open()
    await seeing
    assert (await stage.now()).status is Status.CANCELLED


@orders
async def test_of_a_recorded_step_and_a_takeover_the_first_wins(gated: Rigged, order: str) -> None:
    ran: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(run.claim.attempt)
            return run.claim.attempt

        return Completed({"attempt": await step(run, Step("charge", call))})

    stage, counted = await race(gated, work, "record", order, take_over)
    assert not counted
    assert await stage.result() == ({"attempt": 2} if order == BEFORE else {"attempt": 1})
    assert ran == ([1, 2] if order == BEFORE else [1])
