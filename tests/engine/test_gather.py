"""Branches side by side: each with places of its own, all of them to their ends, and one outcome of them all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from perdure.domain.errors import LimitExceeded, StepFailed
from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status
from perdure.engine.handler import Again
from perdure.engine.run import Parked, Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, Thread, answer, ask, done, ended, handlers, question, serving, value
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import eventually

NAME = question("Your name?")
AGE = question("Your age?")


async def fails(run: Run, name: str, error: Exception | None = None) -> JSON:
    async def call() -> JSON:
        raise error or ValueError(name)

    return await step(run, Step(name, call))


async def test_results_come_in_the_order_of_the_branches_whichever_is_done_first(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        first_may_end = asyncio.Event()

        async def first() -> JSON:
            await first_may_end.wait()
            return await value(run, "first", 1)

        async def second() -> JSON:
            result = await value(run, "second", 2)
            first_may_end.set()
            return result

        return Completed({"values": await run.gather([first(), second()])})

    assert await Stage(store, work).result() == {"values": [1, 2]}


async def test_nothing_side_by_side_comes_to_nothing_and_takes_a_place(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        assert await run.gather([]) == []
        return Completed({"value": await value(run, "after", 1)})

    stage = Stage(store, work)
    assert await stage.result() == {"value": 1}
    assert list(await stage.entries()) == ["1"]


async def test_each_branch_numbers_its_verbs_apart_also_when_they_are_nested(store: Store) -> None:
    async def branch(run: Run, name: str) -> list[JSON]:
        await value(run, name)
        await asyncio.sleep(0)
        inner = await run.gather([value(run, f"{name} x", 1), value(run, f"{name} y", 2)])
        await value(run, f"{name} end")
        return inner

    async def work(run: Run, params: JSONObject) -> Outcome:
        await value(run, "before")
        await run.gather([branch(run, "a"), branch(run, "b")])
        await value(run, "after")
        await ask(run, name=NAME)
        return done()

    stage = Stage(store, work)
    await stage.run()
    assert {place: entry.name for place, entry in (await stage.entries()).items()} == {
        "0": "before",
        "1.0/0": "a",
        "1.0/1.0/0": "a x",
        "1.0/1.1/0": "a y",
        "1.0/2": "a end",
        "1.1/0": "b",
        "1.1/1.0/0": "b x",
        "1.1/1.1/0": "b y",
        "1.1/2": "b end",
        "2": "after",
    }
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.COMPLETED


async def test_a_thread_inside_a_branch_is_in_that_branch(store: Store) -> None:
    loop = asyncio.get_running_loop()

    def work(run: Run) -> Outcome:
        def blocking() -> JSON:
            return asyncio.run_coroutine_threadsafe(value(run, "inside", 1), loop).result()

        async def beside() -> list[JSON]:
            return await run.gather([asyncio.to_thread(blocking)])

        return Completed({"values": asyncio.run_coroutine_threadsafe(beside(), loop).result()})

    stage = Stage(store, Thread(work))
    assert await stage.result() == {"values": [1]}
    assert list(await stage.entries()) == ["0.0/0"]


async def test_branches_park_together_when_those_that_can_go_on_have_ended(store: Store) -> None:
    ran: list[str] = []

    async def long(run: Run) -> JSON:
        for number in range(3):
            await value(run, f"part {number}")
            await asyncio.sleep(0)
        ran.append("long")
        return 1

    async def asks(run: Run, **questions: JSONObject) -> JSON:
        answers = await ask(run, **questions)
        return next(iter(answers.values()))

    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"values": await run.gather([asks(run, name=NAME), long(run), asks(run, age=AGE)])})

    stage = Stage(store, work)
    waiting = await stage.run()
    assert ([entry.key for entry in waiting.inputs], ran) == (["name", "age"], ["long"])
    assert list(await stage.entries()) == ["0.1/0", "0.1/1", "0.1/2"]
    await answer(store, stage.task, age=36, name="Ada")
    assert await stage.result() == {"values": ["Ada", 1, 36]}


async def test_an_error_comes_before_a_wait_and_the_task_does_not_wait_for_what_nobody_needs(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await run.gather([run.sleep(1000), ask(run, name=NAME), fails(run, "print")])
        except StepFailed as failed:
            return done(failed.message)
        return done("no error")

    over = await Stage(store, work).run()
    assert (over.status, over.result) == (Status.COMPLETED, done("print").result)


async def test_a_tool_that_goes_on_after_a_branch_failed_parks_for_what_it_comes_to_then(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await run.gather([ask(run, name=NAME), fails(run, "print")])
        except StepFailed:
            return Completed(await ask(run, age=AGE))
        return done("no error")

    stage = Stage(store, work)
    assert [entry.key for entry in (await stage.run()).inputs] == ["age"]
    await answer(store, stage.task, age=36)
    assert await stage.result() == {"age": 36}


async def test_a_question_beside_the_gather_still_counts_when_a_branch_fails(store: Store) -> None:
    """It was put by somebody else beside the gather, in the same run."""

    async def branch_fails(run: Run) -> list[JSON]:
        return await run.gather([fails(run, "print")])

    async def work(run: Run, params: JSONObject) -> Outcome:
        beside = asyncio.create_task(ask(run, name=NAME))
        with suppress(StepFailed):
            await branch_fails(run)
        await asyncio.wait({beside})
        assert isinstance(beside.exception(), Parked)
        return done()

    assert [entry.key for entry in (await Stage(store, work).run()).inputs] == ["name"]


async def test_the_first_branchs_error_is_the_one_that_is_raised(store: Store) -> None:
    async def later(run: Run) -> JSON:
        for _ in range(5):
            await asyncio.sleep(0)
        return await fails(run, "first")

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await run.gather([value(run, "fine"), later(run), fails(run, "second")])
        except StepFailed as failed:
            return Completed({"name": failed.name, "places": list(failed.places)})
        return done("no error")

    # The places of both, since both are to be tried again if the task is.
    assert await Stage(store, work).result() == {"name": "first", "places": ["0.1/0", "0.2/0"]}


async def test_all_steps_that_failed_side_by_side_are_tried_again_and_no_other(
    store: Store, clock: VirtualClock
) -> None:
    ran: list[str] = []

    async def flaky(run: Run, name: str, *, fail: bool) -> JSON:
        async def call() -> JSON:
            ran.append(name)
            if fail and run.claim.failures == 0:
                raise ValueError(name)
            return name

        return await step(run, Step(name, call))

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        await flaky(run, "before", fail=False)
        try:
            await run.gather([flaky(run, "a", fail=True), flaky(run, "b", fail=False), flaky(run, "c", fail=True)])
        except StepFailed as failed:
            return Again(1000, str(failed), failed.places)
        return done()

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    assert (await stage.run()).status is Status.COMPLETED
    assert ran == ["before", "a", "b", "c", "a", "c"]


@pytest.mark.parametrize("why", [Stop.CANCEL, Stop.SHUTDOWN, Stop.LOST, Stop.TIMEOUT])
async def test_a_cancellation_reaches_all_branches_and_waits_for_their_ends(store: Store, why: Stop) -> None:
    started, cleaned = list[str](), list[str]()

    async def branch(name: str) -> None:
        started.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(name)

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([branch("a"), run.gather([branch("b"), branch("c")])])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(lambda: len(started) == 3, "not all of them began")
    execution.tell(why)
    await execution.see_through()
    assert cleaned == ["a", "b", "c"]


async def test_a_branch_that_does_not_end_is_left_behind_with_its_run(store: Store) -> None:
    told: list[str] = []
    deaf_began, let_go = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        deaf_began.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                told.append("told")

    async def errs() -> None:
        raise ValueError("unnoticed")

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([deaf(), errs()])
        return done()

    stage = Stage(store, work, cleanup=0.01)
    execution = await stage.begin()
    await deaf_began.wait()
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    await execution.gone()
    assert ((await stage.now()).status, told[:2]) == (Status.CANCELLED, ["told", "told"])
    let_go.set()


async def test_branches_that_a_cancellation_kept_from_beginning_are_closed(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        execution.tell(Stop.CANCEL)
        await run.gather([value(run, "a"), value(run, "b")])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await store.request_cancel(ADA, stage.task.id)
    await execution.see_through()
    assert (await stage.now()).status is Status.CANCELLED


async def test_a_branch_that_is_parked_does_not_keep_a_run_from_those_who_can_go_on_after_a_shutdown(
    store: Store,
) -> None:
    """One branch waits for an answer, and another one was interrupted: its worker hands the run over, due at once."""
    started = asyncio.Event()

    async def long() -> JSON:
        started.set()
        return await asyncio.Future[JSON]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([ask(run, name=NAME), step(run, Step("long", long))])
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await started.wait()
    execution.tell(Stop.SHUTDOWN)
    await execution.see_through()
    assert await stage.is_due()


async def test_a_question_beside_work_that_a_shutdown_interrupts_is_put_again_by_the_next_worker(store: Store) -> None:
    """Side by side without a gather of ours: the question was noted, and the work was cut off all the same."""
    started = asyncio.Event()

    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await asyncio.gather(_noted(run), long())
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await started.wait()
    execution.tell(Stop.SHUTDOWN)
    await execution.see_through()
    assert ((await stage.now()).status, await stage.is_due()) == (Status.WORKING, True)


async def _noted(run: Run) -> None:
    try:
        await ask(run, name=NAME)
    except Parked:
        await asyncio.Event().wait()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=repr)
async def test_an_exit_in_a_branch_ends_its_task_and_not_the_server(store: Store, error: BaseException) -> None:
    async def leaves() -> None:
        raise error

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([value(run, "fine"), leaves()])
        return done()

    async def fine(run: Run, params: JSONObject) -> Outcome:
        return done()

    task, other = await store.create(new_task()), await store.create(new_task("other"))
    async with serving(store, handlers(report=work, other=fine)):
        over = await ended(store, task)
        assert (await ended(store, other)).status is Status.COMPLETED
    assert over.status is Status.FAILED


async def test_a_branch_that_cancels_itself_fails_the_task_since_nobody_asked_for_it(store: Store) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([gives_up()])
        return done()

    assert await Stage(store, work).error() == "Internal error"


async def _as_futures(run: Run) -> list[JSON]:
    return await run.gather([asyncio.ensure_future(asyncio.sleep(0, 1)), asyncio.ensure_future(asyncio.sleep(0, 2))])


async def _as_coroutines(run: Run) -> list[JSON]:
    return await run.gather([asyncio.sleep(0, 1), asyncio.sleep(0, 2)])


@pytest.mark.parametrize("how", [_as_futures, _as_coroutines])
async def test_a_branch_may_be_anything_that_can_be_awaited(
    rigged: Rigged, how: Callable[[Run], Awaitable[list[JSON]]]
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"values": await how(run)})

    assert await Stage(rigged, work).result() == {"values": [1, 2]}


async def test_a_plain_function_gathers_through_the_event_loop(rigged: Rigged) -> None:
    loop = asyncio.get_running_loop()

    def work(run: Run) -> Outcome:
        async def gather() -> list[JSON]:
            return await run.gather([value(run, "a", 1), value(run, "b", 2)])

        return Completed({"values": asyncio.run_coroutine_threadsafe(gather(), loop).result()})

    assert await Stage(rigged, Thread(work)).result() == {"values": [1, 2]}


@pytest.mark.parametrize("first", ["code", "step"])
async def test_a_step_that_failed_beside_an_error_of_the_code_is_found_behind_it(store: Store, first: str) -> None:
    async def code() -> JSON:
        try:
            raise KeyError("why")
        except KeyError as error:
            raise ConnectionError from error

    async def work(run: Run, params: JSONObject) -> Outcome:
        both = [fails(run, "a"), fails(run, "b")]
        try:
            await run.gather([code(), *both] if first == "code" else [*both, code()])
        except (ConnectionError, StepFailed) as error:
            chain = [error, *_contexts(error)]
            places = [each.places for each in chain if isinstance(each, StepFailed)]
            return Completed({"raised": type(error).__name__, "places": [list(each) for each in places if each[1:]]})
        raise AssertionError

    places: JSON = ["0.1/0", "0.2/0"] if first == "code" else ["0.0/0", "0.1/0"]
    raised = "ConnectionError" if first == "code" else "StepFailed"
    assert await Stage(store, work).result() == {"raised": raised, "places": [places]}


async def test_errors_that_have_a_history_in_common_are_not_tied_into_a_circle(store: Store) -> None:
    shared = ValueError("why")
    shared.__context__ = circle = KeyError("a circle already")
    circle.__context__ = shared

    async def code() -> JSON:
        error = ConnectionError()
        error.__context__ = shared
        raise error

    async def failed() -> JSON:
        error = StepFailed("s", "ValueError", "why", places=("7",))
        error.__context__ = shared
        raise error

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await run.gather([code(), failed()])
        except ConnectionError as error:
            return Completed({"before": type(error.__context__).__name__})
        raise AssertionError

    assert await Stage(store, work).result() == {"before": "ValueError"}


async def test_gathers_that_lie_too_deep_within_each_other_are_refused_before_a_place_is_too_long(store: Store) -> None:
    refused: list[str] = []

    async def deeper(run: Run, levels: int) -> int:
        try:
            (found,) = await run.gather([deeper(run, levels + 1)])
        except LimitExceeded as error:
            refused.append(str(error))
            return levels
        return found

    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"levels": await deeper(run, 0)})

    assert await Stage(store, work).result() == {"levels": 250}
    assert ["more than 1000 characters" in each for each in refused] == [True]


def _contexts(error: BaseException) -> Iterator[BaseException]:
    while error.__context__ is not None:
        error = error.__context__
        yield error
