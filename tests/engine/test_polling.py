"""External work of a system that does not report by itself: looked at by a timer, with nothing held in memory."""

import asyncio
import logging

import pytest

from perdure.domain.errors import AlreadySettled, LeaseLost, StepFailed
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState, Verb
from perdure.domain.limits import Limits
from perdure.domain.model import Completed, JSONObject, Outcome, Status
from perdure.engine.external import External, Poll, Settlement, external
from perdure.engine.run import Run
from perdure.engine.steps import failure
from perdure.store.base import Store
from tests.engine.support import Stage, Work, value
from tests.store.support import ADA, VirtualClock

FULL = "The journal of a task takes at most 300 bytes as JSON"
FINISHED = Settlement(EntryState.DONE, "picture")
BROKEN = Settlement(EntryState.FAILED, failure("RenderError", "no such scene"))


class Oracle:
    """The other system: says nothing by itself. `answer` is what a look finds; an exception is raised."""

    def __init__(self) -> None:
        self.answer: Settlement | Exception | None = None
        self.looks = 0
        self.started: list[Handle] = []
        self.cancelled: list[Handle] = []

    async def start(self, handle: Handle) -> None:
        self.started.append(handle)

    async def cancel(self, handle: Handle) -> None:
        self.cancelled.append(handle)

    async def look(self, handle: Handle) -> Settlement | None:
        assert handle == self.started[0]
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def work(self, *, every_ms: int = 1000, timeout_ms: int | None = None, cancel: bool = False) -> Work:
        what = External(
            "render", self.start, self.cancel if cancel else None, Poll(self.look, every_ms), timeout_ms=timeout_ms
        )

        async def work(run: Run, params: JSONObject) -> Outcome:
            try:
                result = await external(run, what)
            except StepFailed as failed:
                result = f"{failed.type}: {failed.message}"
            return Completed({"result": result, "then": await value(run, "then", "done")})

        return work


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


async def test_the_first_look_is_an_interval_after_the_start(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    oracle.answer = FINISHED
    stage = Stage(store, oracle.work())
    assert (await stage.run()).status is Status.WORKING
    clock.advance(999)
    assert not await stage.is_due()
    assert oracle.looks == 0
    clock.advance(1)
    assert await stage.result() == {"result": "picture", "then": "done"}
    assert (oracle.looks, len(oracle.started)) == (1, 1)


async def test_the_intervals_grow_and_all_looks_are_one_entry(
    store: Store, clock: VirtualClock, oracle: Oracle
) -> None:
    stage = Stage(store, oracle.work())
    await stage.run()
    for interval in (1000, 1500, 2250, 3375):
        clock.advance(interval - 1)
        assert not await stage.is_due()
        clock.advance(1)
        await stage.run()
    assert oracle.looks == 4
    entries = await stage.entries()
    assert [(entry.verb, entry.name) for entry in entries.values()] == [
        (Verb.EXTERNAL, "render"),
        (Verb.STEP, "start render"),
        (Verb.SLEEP, "poll"),
    ]


@pytest.mark.parametrize(("every_ms", "longest"), [(200_000, 300_000), (600_000, 600_000)])
async def test_they_grow_to_five_minutes_or_stay_if_they_are_longer(
    store: Store, clock: VirtualClock, oracle: Oracle, every_ms: int, longest: int
) -> None:
    stage = Stage(store, oracle.work(every_ms=every_ms))
    await stage.run()
    for interval in (every_ms, longest, longest):
        clock.advance(interval - 1)
        assert not await stage.is_due()
        clock.advance(1)
        await stage.run()


async def test_a_failure_that_a_look_finds_is_the_works(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    oracle.answer = BROKEN
    stage = Stage(store, oracle.work())
    await stage.run()
    clock.advance(1000)
    assert await stage.result() == {"result": "RenderError: no such scene", "then": "done"}


async def test_a_report_comes_first_and_nobody_looks_any_more(store: Store, oracle: Oracle) -> None:
    stage = Stage(store, oracle.work())
    await stage.run()
    (handle,) = oracle.started
    await store.settle(handle.task_id, handle.place, handle.token, EntryState.DONE, "reported")
    assert await stage.result() == {"result": "reported", "then": "done"}
    assert oracle.looks == 0


async def test_a_report_that_comes_while_somebody_looks_counts(
    store: Store, clock: VirtualClock, oracle: Oracle
) -> None:
    async def look(handle: Handle) -> Settlement | None:
        await store.settle(handle.task_id, handle.place, handle.token, EntryState.DONE, "reported")
        return FINISHED

    oracle.look = look
    stage = Stage(store, oracle.work())
    await stage.run()
    clock.advance(1000)
    assert await stage.result() == {"result": "reported", "then": "done"}


async def test_the_work_is_looked_at_once_more_before_it_is_given_up(
    store: Store, clock: VirtualClock, oracle: Oracle
) -> None:
    """No server ran when it was over: it was in time all the same."""
    oracle.answer = FINISHED
    stage = Stage(store, oracle.work(every_ms=60_000, timeout_ms=10_000, cancel=True))
    await stage.run()
    clock.advance(10_000)
    assert await stage.result() == {"result": "picture", "then": "done"}
    assert oracle.cancelled == []


async def test_work_that_is_given_up_is_told_so(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    stage = Stage(store, oracle.work(every_ms=60_000, timeout_ms=10_000, cancel=True))
    await stage.run()
    clock.advance(10_000)
    assert await stage.result() == {"result": "TimeoutError: 'render' did not report in time", "then": "done"}
    assert oracle.cancelled == oracle.started
    (handle,) = oracle.started
    with pytest.raises(AlreadySettled):
        await store.settle(handle.task_id, handle.place, handle.token, EntryState.DONE, "too late")


async def test_a_run_that_another_wait_woke_does_not_look_before_its_time(
    store: Store, clock: VirtualClock, oracle: Oracle
) -> None:
    what = External("render", oracle.start, poll=Poll(oracle.look, 10_000))

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.gather([external(run, what), run.sleep(1000)])
        raise AssertionError

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    await stage.run()
    assert oracle.looks == 0
    clock.advance(9000)
    await stage.run()
    assert oracle.looks == 1


async def test_a_look_that_fails_is_made_again_and_only_ten_in_a_row_fail_the_work(
    store: Store, clock: VirtualClock, oracle: Oracle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)  # the tests' own processes can't tell each other of a lone surrogate in a log
    stage = Stage(store, oracle.work())

    async def look(answer: Settlement | Exception | None) -> None:
        oracle.answer = answer
        await stage.run()
        clock.advance(300_000)

    await look(None)
    for _ in range(9):
        await look(ConnectionError("no route"))
    await look(None)
    for _ in range(9):
        await look(ConnectionError("no route \ud800"))
    assert (await stage.now()).status is Status.WORKING
    assert await stage.result() == {"result": "ConnectionError: no route ?", "then": "done"}


async def test_a_lost_lease_is_no_failure_of_the_look(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    stage = Stage(store, oracle.work())
    await stage.run()
    clock.advance(1000)
    oracle.answer = LeaseLost()
    execution = await stage.begin()
    await execution.gone()
    await stage.crash(execution)
    assert (await stage.entries())["2"].value == {"looks": 0, "errors": 0}


async def test_no_durable_verb_can_be_used_in_a_look(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        async def look(handle: Handle) -> Settlement | None:
            await run.sleep(1)
            return FINISHED

        return Completed({"result": await external(run, External("render", oracle.start, poll=Poll(look, 1000)))})

    stage = Stage(store, work)
    await stage.run()
    clock.advance(1000)
    assert "'render' uses sleep" in await stage.error()


async def test_a_cancelled_task_does_not_look_any_more(store: Store, clock: VirtualClock, oracle: Oracle) -> None:
    stage = Stage(store, oracle.work(cancel=True))
    await stage.run()
    clock.advance(1000)
    await store.request_cancel(ADA, stage.task.id)
    assert (await stage.run()).status is Status.CANCELLED
    assert oracle.looks == 0
    assert oracle.cancelled == oracle.started


@pytest.mark.parametrize("last", [False, True], ids=["in time", "a last one"])
async def test_a_look_that_hangs_is_given_up_with_the_work(store: Store, clock: VirtualClock, last: bool) -> None:
    oracle = Oracle()

    async def look(handle: Handle) -> Settlement | None:
        return await asyncio.Future[Settlement | None]()

    what = External("render", oracle.start, oracle.cancel, Poll(look, 10), timeout_ms=30, cancel_ms=30)

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await external(run, what)
        except StepFailed as failed:
            return Completed({"result": f"{failed.type}: {failed.message}"})
        raise AssertionError

    stage = Stage(store, work)
    await stage.run()
    clock.advance(30 if last else 10)
    assert await stage.result() == {"result": "TimeoutError: 'render' did not report in time"}
    assert oracle.cancelled == oracle.started


async def test_what_a_look_finds_counts_in_the_journal_and_too_much_is_a_failure_for_good(
    store: Store, clock: VirtualClock, oracle: Oracle
) -> None:
    oracle.answer = Settlement(EntryState.DONE, "x" * 300)
    stage = Stage(store, oracle.work(), limits=Limits(journal=300))
    await stage.run()
    clock.advance(1000)
    result = await stage.result()
    assert isinstance(result, dict)
    assert str(result["result"]).startswith(f"LimitExceeded: {FULL}")
    assert result["then"] == "done"
