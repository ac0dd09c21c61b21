"""Waiting for a time: sleeps, and questions that are given up."""

import asyncio
from pathlib import Path

import pytest

from perdure.domain.model import Asked, Completed, InputState, JSONObject, Outcome, Status, Task
from perdure.domain.timeline import EventKind
from perdure.engine.run import Run
from perdure.store.base import Store
from perdure.store.sqlite import SQLiteStore
from tests.engine.support import Stage, answer, ask, done, ended, handlers, question, serving, value
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import eventually

NAME = question("Your name?")
AGE = question("Your age?")
DAY = 86_400_000


async def test_a_sleep_parks_the_run_until_its_time_has_come(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.sleep(3 * DAY)
        return done()

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.WORKING
    assert await store.sessions() != ()
    clock.advance(3 * DAY - 1)
    assert not await stage.is_due()
    clock.advance(1)
    assert (await stage.run()).status is Status.COMPLETED
    assert stage.claim.attempt == 1


async def test_a_sleep_is_as_long_as_it_was_at_first_whatever_crashes_meanwhile(
    store: Store, clock: VirtualClock
) -> None:
    """A worker that dies while it goes through the journal again changes nothing."""
    hang = True

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.sleep(1000)
        if hang:
            await asyncio.Event().wait()
        await run.sleep(1000)
        return done()

    stage = Stage(store, work)
    await stage.run()
    for _ in range(3):
        clock.advance(1000)
        await stage.crash(await stage.begin())
    hang = False
    assert (await stage.run()).status is Status.WORKING
    clock.advance(1000)
    assert (await stage.run()).status is Status.COMPLETED


async def test_a_sleep_whose_time_has_come_does_not_park_again(store: Store, clock: VirtualClock) -> None:
    runs: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        runs.append(1)
        for _ in range(3):
            await run.sleep(1000)
        return done()

    stage = Stage(store, work)
    while not (await stage.run()).status.terminal:
        clock.advance(1000)
    assert len(runs) == 4


async def test_a_sleep_survives_a_restart(tmp_path: Path, clock: VirtualClock) -> None:
    """Of everything: the store is opened anew, and nobody is left who knew of the task."""

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.sleep(DAY)
        return done()

    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    before = SQLiteStore(url, clock)
    await before.open()
    task = await before.create(new_task())
    async with serving(before, handlers(report=work)):
        await eventually(lambda: asleep(before, task), "it does not sleep")
    await before.close()
    clock.advance(DAY)
    after = SQLiteStore(url, clock)
    await after.open()
    async with serving(after, handlers(report=work)):
        assert (await ended(after, task)).status is Status.COMPLETED
    await after.close()


async def asleep(store: Store, task: Task) -> bool:
    run = (await store.inspect(task.id)).run
    return run is not None and (run.due_at or 0) > 0


async def test_a_worker_wakes_a_sleeper_when_its_time_has_come(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.sleep(1000)
        return done()

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), poll_ms=10):
        await eventually(lambda: asleep(store, task), "it does not sleep")
        clock.advance(1000)
        assert (await ended(store, task)).status is Status.COMPLETED


async def test_two_sleeps_side_by_side_each_end_at_their_own_time(store: Store, clock: VirtualClock) -> None:
    woken: list[tuple[str, int]] = []

    async def nap(run: Run, name: str, ms: int) -> None:
        await run.sleep(ms)
        await value(run, name)
        woken.append((name, clock.now))

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([nap(run, "long", 3000), nap(run, "short", 1000)])
        return done()

    begin = clock.now
    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    assert (await stage.run()).status is Status.WORKING
    clock.advance(1999)
    assert not await stage.is_due()
    clock.advance(1)
    assert (await stage.run()).status is Status.COMPLETED
    assert sorted(woken) == [("long", begin + 3000), ("short", begin + 1000), ("short", begin + 3000)]


async def test_a_sleep_beside_other_work_counts_from_when_it_was_come_to(store: Store, clock: VirtualClock) -> None:
    """The run parks only when the other branch is done, and that may be later than the sleep is to end."""
    let_go = asyncio.Event()

    async def long() -> None:
        await let_go.wait()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([run.sleep(1000), long()])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()

    async def recorded() -> bool:
        return "0.0/0" in await stage.entries()

    await eventually(recorded, "the sleep is not on record")
    clock.advance(1000)
    let_go.set()
    await execution.see_through()
    assert await stage.is_due()
    assert (await stage.run()).status is Status.COMPLETED


async def test_a_sleep_and_a_question_side_by_side_go_on_with_whichever_comes(
    store: Store, clock: VirtualClock
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        _, answers = await run.gather([run.sleep(1000), ask(run, name=NAME)])
        assert answers is not None
        return Completed(answers)

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.INPUT_REQUIRED
    clock.advance(1000)
    assert (await stage.run()).status is Status.INPUT_REQUIRED  # the time has come, and the answer has not
    await answer(store, stage.task, name="Ada")
    assert await stage.result() == {"name": "Ada"}


async def test_an_answer_that_comes_first_is_kept_while_the_sleep_goes_on(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        _, answers = await run.gather([run.sleep(1000), ask(run, name=NAME)])
        assert answers is not None
        return Completed(answers)

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.WORKING
    clock.advance(1000)
    assert await stage.result() == {"name": "Ada"}


async def test_a_sleeping_task_is_cancelled_at_once(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.sleep(DAY)
        return done()

    stage = Stage(store, work)
    await stage.run()
    assert (await store.request_cancel(ADA, stage.task.id)).status is Status.CANCELLED


# -- questions that are given up ---------------------------------------------------------------------------------------


async def impatient(run: Run, params: JSONObject) -> Outcome:
    closed = await run.ask({"name": Asked(NAME, timeout_ms=1000), "age": Asked(AGE)})
    return Completed({key: [each.state.value, each.response] for key, each in closed.items()})


async def test_a_question_whose_time_runs_out_is_superseded_and_the_tool_goes_on(
    store: Store, clock: VirtualClock
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        closed = await run.ask({"name": Asked(NAME, timeout_ms=1000)})
        return done(closed["name"].state.value)

    stage = Stage(store, work)
    await stage.run()
    clock.advance(999)
    assert not await stage.is_due()
    clock.advance(1)
    assert (await stage.run()).result == done(InputState.SUPERSEDED.value).result
    assert (EventKind.UNANSWERED, "name") in await stage.events()
    # Whoever answers now is too late, and hears nothing of it.
    assert (await answer(store, stage.task, name="Ada")).status is Status.COMPLETED


async def test_a_question_that_is_answered_in_time_is_answered(store: Store, clock: VirtualClock) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed(await ask(run, name=Asked(NAME, timeout_ms=1000)))

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    clock.advance(1000)
    assert await stage.result() == {"name": "Ada"}


async def test_an_answer_to_another_question_is_kept_when_one_is_given_up(store: Store, clock: VirtualClock) -> None:
    stage = Stage(store, impatient)
    await stage.run()
    await answer(store, stage.task, age=36)
    clock.advance(1000)
    assert await stage.result() == {"name": ["superseded", None], "age": ["answered", 36]}


async def test_a_question_without_an_end_stays_open_when_another_one_is_given_up(
    store: Store, clock: VirtualClock
) -> None:
    stage = Stage(store, impatient)
    await stage.run()
    clock.advance(1000)
    waiting = await stage.run()
    assert (waiting.status, [entry.key for entry in waiting.inputs]) == (Status.INPUT_REQUIRED, ["age"])
    await answer(store, stage.task, name="too late", age=36)
    assert await stage.result() == {"name": ["superseded", None], "age": ["answered", 36]}


@pytest.mark.parametrize("when", ["before it reads the journal", "after"])
async def test_an_answer_that_comes_while_a_timer_has_woken_the_run_is_not_lost(
    store: Store, clock: VirtualClock, when: str
) -> None:
    """The task is `working` then, and its other question is still open."""
    woken, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        if when == "after":
            await value(run, "a")
        if run.claim.at > stage.task.created_at:
            woken.set()
            await go_on.wait()
        return await impatient(run, params)

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    execution = await stage.begin()
    await woken.wait()
    await answer(store, stage.task, age=36)
    go_on.set()
    await execution.see_through()
    if when == "after":
        assert (await stage.now()).status is Status.WORKING
        assert await stage.is_due()
        await stage.run()
    assert (await stage.now()).result == {"name": ["superseded", None], "age": ["answered", 36]}
