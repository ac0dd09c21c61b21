"""Asking: a waiting task is nowhere but in the store, and its work is run again with the answers."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.domain.journal import Journal
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import JSON, Claim, Completed, Demand, JSONObject, Outcome, Status
from perdure.engine.run import Parked, Run
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from tests.engine.rigged import Rigged
from tests.engine.support import (
    Thread,
    answer,
    ask,
    asking,
    done,
    ended,
    handlers,
    question,
    serving,
    status,
    worker_session,
)
from tests.store.support import VirtualClock, new_task
from tests.support import eventually

NAME = question("Your name?")
AGE = question("Your age?")


async def ask_name(run: Run, params: JSONObject) -> Outcome:
    return Completed(await ask(run, name=NAME))


class Canary:
    """Something that only a coroutine's own frame refers to."""


def _of_runs(tasks: set[asyncio.Task[Any]]) -> list[str]:
    """The coroutines that a worker has for a run: the work, and whoever waits for it."""
    coroutines: list[Any] = [task.get_coro() for task in tasks]
    return [each.__qualname__ for each in coroutines if each.__qualname__ in {"_guarded", "Worker._see_through"}]


async def test_a_waiting_task_leaves_nothing_in_the_process(store: Store) -> None:
    canaries: list[weakref.ref[Canary]] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        canary = Canary()
        canaries.append(weakref.ref(canary))
        return Completed(await ask(run, name=NAME))

    async with serving(store, handlers(report=work), poll_ms=3_600_000):
        tasks = [await store.create(new_task()) for _ in range(20)]
        for task in tasks:
            await asking(store, task, "name")
        await eventually(lambda: not _of_runs(asyncio.all_tasks()), "a parked task still has a coroutine")
        gc.collect()
        assert [canary() for canary in canaries] == [None] * 20
        ids = {task.id for task in tasks}
        runs = [thing for thing in gc.get_objects() if isinstance(thing, Run)]
        assert [run for run in runs if run.claim.task.id in ids] == []


async def test_an_answered_task_runs_again_from_its_start_and_gets_the_recorded_answer(store: Store) -> None:
    attempts: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        attempts.append(run.claim.attempt)
        return await ask_name(run, params)

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        waiting = await asking(store, task, "name")
        assert (waiting.status, waiting.inputs[0].request) == (Status.INPUT_REQUIRED, NAME)
        await answer(store, task, name="Ada")
        over = await ended(store, task)
    assert (over.result, attempts) == ({"name": "Ada"}, [1, 1])


async def test_a_thread_parks_and_is_run_again_like_a_coroutine(store: Store) -> None:
    loop = asyncio.get_running_loop()

    def work(run: Run) -> Outcome:
        answers = asyncio.run_coroutine_threadsafe(ask(run, name=NAME), loop).result()
        return Completed(dict(answers))

    task = await store.create(new_task())
    async with serving(store, handlers(report=Thread(work))):
        await asking(store, task, "name")
        await answer(store, task, name="Ada")
        assert (await ended(store, task)).result == {"name": "Ada"}


async def test_questions_one_after_the_other_each_run_the_work_once_more(store: Store) -> None:
    runs: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        runs.append(1)
        first = await ask(run, name=NAME)
        return Completed(first | await ask(run, age=AGE))

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await asking(store, task, "name")
        await answer(store, task, name="Ada")
        await asking(store, task, "age")
        await answer(store, task, age=36, name="somebody else")
        assert (await ended(store, task)).result == {"name": "Ada", "age": 36}
    assert len(runs) == 3


async def in_one(run: Run) -> dict[str, JSON]:
    return await ask(run, name=NAME, age=AGE)


async def by_gather(run: Run) -> dict[str, JSON]:
    name, age = await asyncio.gather(ask(run, name=NAME), ask(run, age=AGE))
    return name | age


async def by_task_group(run: Run) -> dict[str, JSON]:
    async with asyncio.TaskGroup() as group:
        name, age = group.create_task(ask(run, name=NAME)), group.create_task(ask(run, age=AGE))
    return name.result() | age.result()


@pytest.mark.parametrize("ask", [in_one, by_gather, by_task_group])
async def test_two_questions_at_once_are_asked_together_however_they_are_put(
    store: Store, ask: Callable[[Run], Awaitable[dict[str, JSON]]], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed(await ask(run))

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await asking(store, task, "name", "age")
        await answer(store, task, age=36)
        waiting = await asking(store, task, "name")
        assert waiting.status is Status.INPUT_REQUIRED
        await answer(store, task, name="Ada")
        assert (await ended(store, task)).result == {"name": "Ada", "age": 36}
    assert caplog.records == []


async def return_anyway(run: Run) -> Outcome:
    try:
        return Completed(await ask(run, name=NAME))
    except BaseException:  # noqa: BLE001 - the mistake that this is about
        return done("never mind")


async def raise_something_else(run: Run) -> Outcome:
    try:
        return Completed(await ask(run, name=NAME))
    except Parked as parked:
        raise RuntimeError("never mind") from parked


async def ask_something_else(run: Run) -> Outcome:
    try:
        return Completed(await ask(run, name=NAME))
    except Parked:
        return Completed(await ask(run, name=NAME))


@pytest.mark.parametrize("swallow", [return_anyway, raise_something_else, ask_something_else])
async def test_work_that_swallows_being_parked_is_parked_all_the_same(
    store: Store, swallow: Callable[[Run], Awaitable[Outcome]]
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return await swallow(run)

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        await asking(store, task, "name")
        await answer(store, task, name="Ada")
        assert (await ended(store, task)).result == {"name": "Ada"}


async def again_after_the_answer(run: Run) -> None:
    await ask(run, name=NAME)
    await ask(run, name=AGE)


async def again_side_by_side(run: Run) -> None:
    # Only the first exception is heard of, and that one only parks.
    await asyncio.gather(ask(run, name=NAME), ask(run, name=AGE))


async def again_in_a_group(run: Run) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(run, name=NAME))
        group.create_task(ask(run, name=AGE))


@pytest.mark.parametrize("reuse", [again_after_the_answer, again_side_by_side, again_in_a_group])
async def test_another_question_under_the_same_key_fails_the_task_and_names_the_key(
    store: Store, reuse: Callable[[Run], Awaitable[None]]
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await reuse(run)
        return done("unreachable")

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        if reuse is again_after_the_answer:
            await asking(store, task, "name")
            await answer(store, task, name="Ada")
        over = await ended(store, task)
    assert over.status is Status.FAILED
    assert over.error is not None
    assert over.error.code == INTERNAL_ERROR
    assert "'name'" in over.error.message


async def test_a_question_that_can_not_be_stored_fails_the_task_and_says_so(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await ask(run, share={"default": float("inf")})
        return done("unreachable")

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        over = await ended(store, task)
    assert over.error is not None
    assert "can't be stored as JSON" in over.error.message
    assert f"could not be stored: {over.error.message}" in caplog.text


async def test_a_question_whose_answers_are_in_already_when_it_is_stored_runs_the_task_again_at_once(
    clock: VirtualClock,
) -> None:
    class Behind(Rigged):
        """A store that reads what another replica wrote late, once."""

        behind = False

        async def journal(self, claim: Claim) -> Journal:
            if self.behind:
                self.behind = False
                return Journal()
            return await super().journal(claim)

    store = Behind(MemoryStore(clock))
    task = await store.create(new_task())
    async with serving(store, handlers(report=ask_name), poll_ms=3_600_000):
        await asking(store, task, "name")
        store.behind = True
        await answer(store, task, name="Ada")
        over = await ended(store, task)
    assert (over.result, store.calls.count("park")) == ({"name": "Ada"}, 2)


async def test_a_task_is_answered_while_its_worker_does_not_know_yet_that_it_is_parked(rigged: Rigged) -> None:
    """The park happened, but its caller heard "unavailable". When it tries again, the task is running once more."""
    task = await rigged.create(new_task())

    async def answer_before_the_caller_knows() -> None:
        await answer(rigged, task, name="Ada")

    rigged.after["park"].append(answer_before_the_caller_knows)
    rigged.forget("park")
    rigged.fail("park", 1)
    async with serving(rigged, handlers(report=ask_name)):
        assert (await ended(rigged, task)).result == {"name": "Ada"}


async def test_a_task_that_asks_while_it_waits_for_nobody_is_claimed_by_no_worker(store: Store) -> None:
    task = await store.create(new_task())
    async with serving(store, handlers(report=ask_name)):
        await asking(store, task, "name")
        session = await worker_session(store)
        assert await store.claim(session, [Demand("tools/call:report", 10)], 10) == ()
    assert await status(store, task) is Status.INPUT_REQUIRED
