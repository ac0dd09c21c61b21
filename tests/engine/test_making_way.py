"""Work in a thread that was told to make way: it can't be interrupted, and what it has begun is kept, but nothing new
begins."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from perdure.domain.errors import LeaseLost
from perdure.domain.handles import Handle
from perdure.domain.journal import Journal
from perdure.domain.model import JSON, Outcome, Status
from perdure.domain.retry import Retry
from perdure.engine.execution import Execution
from perdure.engine.external import External, external
from perdure.engine.run import Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.support import OVERRUN, Stage, Thread, ask, done, question, value
from tests.support import PATIENCE, eventually

MAKING_WAY = [Stop.LOST, Stop.TIMEOUT, Stop.SHUTDOWN]

Verb = Callable[[Run], Coroutine[Any, Any, object]]


class Held:
    """Work in a thread that waits to be let go before it goes on with `then`, which gets a way to use verbs."""

    def __init__(self, store: Store, then: Callable[[Run, Callable[[Verb], object]], Outcome]) -> None:
        self.stage = Stage(store, Thread(self._work))
        self._then = then
        self._loop = asyncio.get_running_loop()
        self._reached, self._let_go = threading.Event(), threading.Event()
        self._execution: Execution

    def _work(self, run: Run) -> Outcome:
        def use(verb: Verb) -> object:
            try:
                return asyncio.run_coroutine_threadsafe(verb(run), self._loop).result(PATIENCE)
            except concurrent.futures.CancelledError:
                raise asyncio.CancelledError from None

        self._reached.set()
        assert self._let_go.wait(PATIENCE)
        return self._then(run, use)

    async def begun(self) -> Execution:
        self._execution = await self.stage.begin()
        await eventually(self._reached.is_set, "the thread did not start")
        return self._execution

    async def over(self) -> None:
        """Let it go on, and see it through."""
        self._let_go.set()
        async with asyncio.timeout(PATIENCE):
            await self._execution.see_through()
            await self._execution.gone()


class Calls:
    """What the author's code was called for."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def __call__(self, handle: Handle | None = None) -> None:
        self.made.append("called")


def verbs(call: Calls) -> list[Verb]:
    return [
        lambda run: step(run, Step("late", call)),
        lambda run: step(run, Step("once", call, at_most_once=True)),
        lambda run: run.gather([value(run, "a branch")]),
        lambda run: ask(run, name=question("Your name?")),
        lambda run: run.sleep(1),
        lambda run: external(run, External("job", call)),
        lambda run: run.report("late"),
    ]


def each(of: list[Verb], tried: list[str]) -> Callable[[Run, Callable[[Verb], object]], Outcome]:
    """Use all of them, whatever they say."""

    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        for verb in of:
            try:
                use(verb)
            except (asyncio.CancelledError, LeaseLost):
                tried.append("refused")
        raise asyncio.CancelledError

    return then


@pytest.mark.parametrize("why", MAKING_WAY)
async def test_a_thread_that_has_to_make_way_begins_nothing_more_whatever_it_tries(store: Store, why: Stop) -> None:
    """Its next step would be done while another worker runs the task, or again by the next attempt."""
    call, tried = Calls(), list[str]()
    held = Held(store, each(verbs(call), tried))
    execution = await held.begun()
    execution.tell(why)
    await held.over()
    seen = await store.inspect(held.stage.task.id)
    assert (call.made, tried) == ([], ["refused"] * len(verbs(call)))
    assert (seen.journal, seen.task.message) == (Journal(), None)
    assert seen.task.status is (Status.COMPLETED if why is Stop.TIMEOUT else Status.WORKING)


async def test_nor_does_one_whose_task_is_over_though_it_still_runs(store: Store) -> None:
    """It was cancelled, did not look in time, and its task has come to its end without it."""
    call, tried = Calls(), list[str]()
    held = Held(store, each(verbs(call), tried))
    held.stage = Stage(store, held.stage.handler, cleanup=0)
    execution = await held.begun()
    await store.request_cancel(held.stage.task.owner, held.stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert (await held.stage.now()).status is Status.CANCELLED
    await held.over()
    assert (call.made, tried) == ([], ["refused"] * len(verbs(call)))


async def test_one_that_was_cancelled_goes_on_until_it_looks(store: Store) -> None:
    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        return done(str(use(lambda run: value(run, "last", "said"))))

    held = Held(store, then)
    execution = await held.begun()
    await store.request_cancel(held.stage.task.owner, held.stage.task.id)
    execution.tell(Stop.CANCEL)
    await held.over()
    assert (await held.stage.now()).result == done("said").result
    assert [entry.name for entry in (await held.stage.entries()).values()] == ["last"]


async def test_a_step_that_was_under_way_is_on_record_and_may_say_how_far_it_is(store: Store) -> None:
    reached, let_go = asyncio.Event(), asyncio.Event()

    async def pay(run: Run) -> JSON:
        reached.set()
        await let_go.wait()
        await run.report("paid")
        return "receipt"

    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        use(lambda run: step(run, Step("pay", lambda: pay(run))))
        use(lambda run: value(run, "letter"))
        raise AssertionError

    held = Held(store, then)
    execution = await held.begun()
    seeing = asyncio.create_task(held.over())
    await reached.wait()
    execution.tell(Stop.SHUTDOWN)
    let_go.set()
    await seeing
    seen = await store.inspect(held.stage.task.id)
    assert [(entry.name, entry.value) for entry in seen.journal.entries.values()] == [("pay", "receipt")]
    assert (seen.task.status, seen.task.message) == (Status.WORKING, "paid")
    assert await held.stage.is_due()


async def test_a_step_that_has_failed_is_not_tried_again(store: Store) -> None:
    tries = list[int]()

    async def fails() -> JSON:
        tries.append(len(tries))
        raise ConnectionError("refused")

    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        use(lambda run: step(run, Step("flaky", fails, retry=Retry(max_attempts=5, backoff="1ms"))))
        raise AssertionError

    held = Held(store, then)

    async def told(seconds: float) -> None:
        execution.tell(Stop.TIMEOUT)

    held.stage.pause = told
    execution = await held.begun()
    await held.over()
    assert (tries, (await held.stage.now()).result) == ([0], OVERRUN.result)


async def test_a_shield_holds_it_back_until_its_block_is_over(store: Store) -> None:
    inside, let_go = threading.Event(), threading.Event()
    refused = list[bool]()

    async def enter(block: Any) -> None:
        block.__enter__()

    async def leave(block: Any) -> None:
        block.__exit__(None, None, None)

    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        block = run.shield()
        use(lambda run: enter(block))
        inside.set()
        assert let_go.wait(PATIENCE)
        use(lambda run: value(run, "shielded"))
        use(lambda run: leave(block))
        try:
            use(lambda run: value(run, "late"))
        except asyncio.CancelledError:
            refused.append(True)
            raise
        raise AssertionError

    held = Held(store, then)
    execution = await held.begun()
    seeing = asyncio.create_task(held.over())
    await eventually(inside.is_set, "it did not get there")
    execution.tell(Stop.SHUTDOWN)
    let_go.set()
    await seeing
    assert ([entry.name for entry in (await held.stage.entries()).values()], refused) == (["shielded"], [True])


async def test_what_a_thread_returns_that_was_refused_something_is_half_of_a_result_and_no_end(store: Store) -> None:
    """At a shutdown, where the result counts of one that came to its end by itself."""

    def then(run: Run, use: Callable[[Verb], object]) -> Outcome:
        with suppress(asyncio.CancelledError):
            use(lambda run: value(run, "late"))
        return done("as far as I got")

    held = Held(store, then)
    execution = await held.begun()
    execution.tell(Stop.SHUTDOWN)
    await held.over()
    assert ((await held.stage.now()).status, await held.stage.is_due()) == (Status.WORKING, True)
