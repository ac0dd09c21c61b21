"""A run whose lease was taken over: whatever it tries, it writes nothing more, and its work is stopped."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import LeaseLost
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState
from perdure.domain.model import JSON, JSONObject, Outcome, Status
from perdure.domain.retry import Retry
from perdure.domain.timeline import EventKind
from perdure.engine.external import External, external
from perdure.engine.handler import Again
from perdure.engine.run import Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.support import (
    Stage,
    ask,
    done,
    ended,
    handlers,
    question,
    serving,
    value,
    worker_session,
)
from tests.store.support import ADA, VirtualClock, new_task
from tests.support import eventually

Verb = Callable[[Run], Awaitable[object]]

called: list[str] = []


async def _start(handle: Handle) -> None:
    called.append("start")


async def _call() -> JSON:
    called.append("call")
    return 1


async def _failing() -> JSON:
    called.append("call")
    raise ValueError


async def _report(run: Run) -> None:
    await run.report("still here")


async def _step(run: Run) -> None:
    await step(run, Step("charge", _call))


async def _report_in_a_step(run: Run) -> None:
    async def call() -> JSON:
        await run.report("still here")
        return None

    await step(run, Step("charge", call, retry=Retry()))


async def _failing_step(run: Run) -> None:
    await step(run, Step("charge", _failing))


async def _retried_step(run: Run) -> None:
    await step(run, Step("charge", _failing, retry=Retry()))


async def _step_at_most_once(run: Run) -> None:
    await step(run, Step("charge", _call, at_most_once=True))


async def _external(run: Run) -> None:
    await external(run, External("render", _start))


async def _side_by_side(run: Run) -> None:
    await run.gather([run.sleep(1000)])


async def _lose(store: Store, stage: Stage) -> None:
    run = (await store.inspect(stage.task.id)).run
    assert run is not None
    assert run.session is not None
    assert await store.take_over([run.session]) == 1


@pytest.mark.parametrize(
    ("verb", "did"),
    [
        (_report, []),
        (_report_in_a_step, []),
        (_step, ["call"]),
        (_failing_step, ["call"]),
        (_retried_step, ["call"]),
        (_step_at_most_once, []),
        (_external, []),
        (_side_by_side, []),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
async def test_no_verb_writes_anything_for_a_run_that_was_taken_over_and_the_work_hears_of_it(
    store: Store, verb: Verb, did: list[str]
) -> None:
    """Before the worker does. A step whose intent is stored first does not even begin."""
    lost = asyncio.Event()
    refused: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        await lost.wait()
        try:
            await verb(run)
        except LeaseLost:
            refused.append("lost")
            raise
        return done()

    called.clear()
    stage = Stage(store, work)
    execution = await stage.begin()
    await _lose(store, stage)
    before = await store.inspect(stage.task.id)
    lost.set()
    assert not await execution.see_through()
    assert await store.inspect(stage.task.id) == before
    assert (refused, called, execution.run.stop) == (["lost"], did, Stop.LOST)


async def _asks(run: Run) -> Outcome:
    await ask(run, name=question("Your name?"))
    return done()


async def _sleeps(run: Run) -> Outcome:
    await run.sleep(1000)
    return done()


async def _finishes(run: Run) -> Outcome:
    return done()


async def _fails(run: Run) -> Outcome:
    raise ValueError


async def _again(run: Run) -> Again:
    return Again(1000, "again", ("0",))


@pytest.mark.parametrize("end", [_asks, _sleeps, _finishes, _fails, _again])
async def test_no_end_of_a_run_that_was_taken_over_changes_anything(
    store: Store, end: Callable[[Run], Awaitable[Outcome | Again]]
) -> None:
    lost = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome | Again:
        await value(run, "before")
        await lost.wait()
        return await end(run)

    stage = Stage(store, work)
    execution = await stage.begin()

    async def recorded() -> bool:
        return "0" in await stage.entries()

    await eventually(recorded, "the step is not on record")
    await _lose(store, stage)
    before = await store.inspect(stage.task.id)
    lost.set()
    assert not await execution.see_through()
    assert await store.inspect(stage.task.id) == before


async def test_a_shutdown_does_not_release_what_somebody_else_has(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return await asyncio.Future[Outcome]()

    stage = Stage(store, work)
    execution = await stage.begin()
    await _lose(store, stage)
    other = await stage.begin()
    before = await store.inspect(stage.task.id)
    execution.tell(Stop.SHUTDOWN)
    assert not await execution.see_through()
    assert await store.inspect(stage.task.id) == before
    other.abandon()


async def test_external_work_that_a_lost_run_would_give_up_is_given_up_once(store: Store, clock: VirtualClock) -> None:
    """To settle needs the handle and no lease: the one that was taken over may be first, and the other one finds it."""

    async def work(run: Run, params: JSONObject) -> Outcome:
        await external(run, External("render", _start, timeout_ms=1000))
        return done()

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    first = await stage.begin()
    await _lose(store, stage)
    second = await stage.begin()
    assert (await first.see_through(), await second.see_through()) == (False, True)
    assert (await stage.entries())["0"].state is EntryState.FAILED
    assert [kind for kind, _ in await stage.events()].count(EventKind.SETTLED) == 1


async def test_the_work_of_a_worker_that_was_taken_over_is_cancelled_and_its_result_dropped(store: Store) -> None:
    """A worker that was stopped and goes on (SIGSTOP, a suspended laptop): it hears of it at its next renewal."""
    stops: list[Stop | None] = []
    attempts: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        attempts.append(run.claim.attempt)
        if run.claim.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stops.append(run.stop)
                return done("of the first")
        return done("of the second")

    task = await store.create(new_task())
    async with serving(store, handlers(report=work), lease_ms=60):
        session = await worker_session(store)
        await eventually(lambda: attempts == [1], "it did not begin")
        await store.take_over([session])
        over = await ended(store, task)
    assert (over.status, over.result, stops) == (Status.COMPLETED, done("of the second").result, [Stop.LOST])
    assert (await store.get(ADA, task.id)).version == over.version
