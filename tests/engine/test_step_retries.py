"""A step's own retries and its bound in time; and that what it did is never forgotten for a cancellation."""

import asyncio
from collections.abc import Callable

import pytest

from perdure.domain.errors import StepFailed
from perdure.domain.journal import EntryState
from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status
from perdure.domain.retry import Retry
from perdure.domain.timeline import EventKind
from perdure.engine.run import Run, Stop
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, Work, done
from tests.store.support import ADA, VirtualClock
from tests.support import eventually

SHORT = Retry(4, backoff="100ms", jitter=0)
LONG = Retry(4, backoff="1m", jitter=0, longest="10m")


class Flaky:
    """The call of a step that fails the first `failures` times."""

    def __init__(self, failures: int, error: Callable[[int], Exception] = lambda number: OSError(f"try {number}")):
        self.tries = 0
        self._failures = failures
        self._error = error

    async def __call__(self) -> JSON:
        self.tries += 1
        if self.tries <= self._failures:
            raise self._error(self.tries)
        return self.tries


def retried(call: Flaky, retry: Retry, *, at_most_once: bool = False) -> Work:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            return Completed({"value": await step(run, Step("fetch", call, retry=retry, at_most_once=at_most_once))})
        except StepFailed as failed:
            return Completed({"failed": failed.message})

    return work


async def test_short_waits_between_tries_are_waited_out_in_memory(store: Store) -> None:
    stage = Stage(store, retried(Flaky(3), SHORT))
    assert await stage.result() == {"value": 4}
    assert stage.pauses == [0.1, 0.2, 0.4]


async def test_the_jitter_of_each_wait_is_drawn_from_what_the_run_was_given(store: Store) -> None:
    stage = Stage(store, retried(Flaky(3), Retry(4, backoff="100ms", factor=1, jitter=0.5)))
    drawn = iter((0.0, 0.5, 0.8))
    stage.chance = lambda: next(drawn)
    assert await stage.result() == {"value": 4}
    assert stage.pauses == [0.1, 0.075, 0.06]


async def test_a_wait_of_more_than_a_second_parks_the_run(store: Store, clock: VirtualClock) -> None:
    call = Flaky(2)
    stage = Stage(store, retried(call, LONG))
    for tries, minutes in ((1, 1), (2, 2)):
        assert (await stage.run()).status is Status.WORKING
        assert (call.tries, stage.pauses) == (tries, [])
        clock.advance(minutes * 60_000 - 1)
        assert not await stage.is_due()
        clock.advance(1)
    assert await stage.result() == {"value": 3}
    assert stage.claim.attempt == 1


async def test_a_wait_of_exactly_a_second_is_still_short(store: Store) -> None:
    stage = Stage(store, retried(Flaky(1), Retry(2, backoff="1s", jitter=0)))
    assert await stage.result() == {"value": 2}
    assert stage.pauses == [1.0]


@pytest.mark.parametrize("retry", [SHORT, LONG])
async def test_the_last_failure_is_the_steps(store: Store, clock: VirtualClock, retry: Retry) -> None:
    call = Flaky(99)
    stage = Stage(store, retried(call, retry))
    while not (await stage.run()).status.terminal:
        clock.advance(600_000)
    assert ((await stage.now()).result, call.tries) == ({"failed": "try 4"}, 4)


async def test_what_is_not_worth_another_try_ends_the_step_at_once(store: Store) -> None:
    call = Flaky(99, lambda number: KeyError(number) if number == 2 else OSError(number))
    stage = Stage(store, retried(call, Retry(4, backoff="100ms", jitter=0, on=(OSError,))))
    assert await stage.result() == {"failed": "2"}
    assert call.tries == 2


async def test_every_failed_try_but_the_last_is_in_the_timeline(store: Store) -> None:
    stage = Stage(store, retried(Flaky(99, lambda number: OSError("x" * 1000)), SHORT))
    await stage.run()
    events = await stage.events()
    assert [kind for kind, _ in events] == [EventKind.STEP_RETRY] * 3
    assert [detail[:38] for _, detail in events] == [
        f"fetch: try {number} failed with OSError: xxxx" for number in (1, 2, 3)
    ]
    assert {len(detail) for _, detail in events} == {500}


async def test_failures_are_counted_across_crashes(store: Store, clock: VirtualClock) -> None:
    """The worker dies during the second and the third try: neither is a failure of the step, and none is forgotten."""
    tries: list[int] = []

    async def call() -> JSON:
        tries.append(len(tries) + 1)
        if tries[-1] in (2, 3):
            await asyncio.Event().wait()
        raise OSError(f"try {tries[-1]}")

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await step(run, Step("fetch", call, retry=Retry(3, backoff="1m", jitter=0)))
        except StepFailed as failed:
            return done(failed.message)
        return done("it went well")

    stage = Stage(store, work)
    await stage.run()
    clock.advance(60_000)
    for crash in (2, 3):
        execution = await stage.begin()
        await eventually(lambda crash=crash: tries[-1] == crash, "the step did not begin")
        await stage.crash(execution)
    assert (await stage.run()).status is Status.WORKING
    clock.advance(120_000)
    assert (await stage.run()).result == done("try 5").result
    assert [detail for kind, detail in await stage.events() if kind is EventKind.STEP_RETRY] == [
        "fetch: try 1 failed with OSError: try 1",
        "fetch: try 2 failed with OSError: try 4",
    ]


async def test_a_crash_during_a_short_wait_does_not_begin_the_next_try_early(store: Store, clock: VirtualClock) -> None:
    waiting = asyncio.Event()

    async def pause(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    call = Flaky(1)
    stage = Stage(store, retried(call, SHORT))
    stage.pause = pause
    execution = await stage.begin()
    await waiting.wait()
    await stage.crash(execution)
    clock.advance(99)
    assert (await stage.run()).status is Status.WORKING
    assert (call.tries, await stage.is_due()) == (1, False)
    clock.advance(1)
    assert await stage.result() == {"value": 2}


async def test_a_step_that_may_run_once_at_a_time_can_be_retried_after_failures_that_are_known(
    store: Store, clock: VirtualClock
) -> None:
    call = Flaky(2)
    stage = Stage(store, retried(call, LONG, at_most_once=True))
    while not (await stage.run()).status.terminal:
        clock.advance(600_000)
    assert ((await stage.now()).result, call.tries) == ({"value": 3}, 3)


# -- time --------------------------------------------------------------------------------------------------------------


def bounded(call: Callable[[], object], retry: Retry | None = None) -> Work:
    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await step(run, Step("fetch", call, timeout_ms=30, retry=retry or Retry(1)))  # pyright: ignore[reportArgumentType] - any call will do
        except StepFailed as failed:
            return Completed({"type": failed.type, "message": failed.message})
        return done("in time")

    return work


async def test_a_step_that_takes_too_long_is_cancelled_and_fails_with_a_message_that_names_it(store: Store) -> None:
    cleaned: list[str] = []

    async def call() -> JSON:
        try:
            return await asyncio.Future[JSON]()
        finally:
            cleaned.append("up")

    stage = Stage(store, bounded(call))
    assert await stage.result() == {"type": "TimeoutError", "message": "The step 'fetch' took longer than 0.03 s"}
    assert cleaned == ["up"]


async def test_a_timeout_of_the_steps_own_is_told_apart(store: Store) -> None:
    async def call() -> JSON:
        raise TimeoutError("the printer does not answer")

    assert await Stage(store, bounded(call)).result() == {
        "type": "TimeoutError",
        "message": "the printer does not answer",
    }


async def test_each_try_has_the_whole_time(store: Store) -> None:
    tries: list[int] = []

    async def call() -> JSON:
        tries.append(1)
        if len(tries) < 3:
            await asyncio.Event().wait()
        return None

    stage = Stage(store, bounded(call, SHORT))
    assert (await stage.run()).result == done("in time").result
    assert len(tries) == 3


# -- cancellation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", [Stop.CANCEL, Stop.SHUTDOWN, Stop.TIMEOUT])
async def test_a_cancellation_that_comes_while_a_result_is_being_recorded_does_not_forget_it(
    gated: Rigged, why: Stop
) -> None:
    """A slow store: the write waits in its queue, and the work is told to stop."""
    gate = gated.gate_before("record")
    kept: list[JSON] = []

    async def charge() -> JSON:
        return "receipt"

    async def work(run: Run, params: JSONObject) -> Outcome:
        kept.append(await step(run, Step("charge", charge)))
        return done()

    stage = Stage(gated, work)
    execution = await stage.begin()
    seeing = asyncio.create_task(execution.see_through())
    await gate.reached()
    if why is Stop.CANCEL:
        await gated.request_cancel(ADA, stage.task.id)
    execution.tell(why)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not seeing.done()
    gate.open()
    await seeing
    assert (await stage.entries())["0"].value == "receipt"
    if why is Stop.SHUTDOWN:
        assert (await stage.run()).status is Status.COMPLETED
    assert kept == (["receipt"] if why is Stop.SHUTDOWN else [])


async def test_a_store_that_never_answers_does_not_hold_a_cancelled_run_for_longer_than_its_cleanup(
    gated: Rigged,
) -> None:
    gate = gated.gate_before("record")

    async def charge() -> JSON:
        return "receipt"

    async def work(run: Run, params: JSONObject) -> Outcome:
        await step(run, Step("charge", charge))
        return done()

    stage = Stage(gated, work, cleanup=0.01)
    execution = await stage.begin()
    await gate.reached()
    await gated.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    assert await execution.see_through()
    await execution.gone()
    assert ((await stage.now()).status, (await stage.entries())) == (Status.CANCELLED, {})


async def test_a_step_that_is_running_when_the_task_is_cancelled_has_no_end_on_record(store: Store) -> None:
    started = asyncio.Event()

    async def call() -> JSON:
        started.set()
        return await asyncio.Future[JSON]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await step(run, Step("charge", call, at_most_once=True))
        return done()

    stage = Stage(store, work)
    execution = await stage.begin()
    await started.wait()
    await store.request_cancel(ADA, stage.task.id)
    execution.tell(Stop.CANCEL)
    await execution.see_through()
    assert (await stage.now()).status is Status.CANCELLED
    assert (await stage.entries())["0"].state is EntryState.STARTED
