"""Steps: what ran is not run again, what came of it is the same then and now, and what can't be kept says so."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from perdure.domain.errors import ConfigurationError, LimitExceeded, NotStorable, StepFailed, StepInterrupted
from perdure.domain.journal import EntryState
from perdure.domain.limits import Limits
from perdure.domain.model import JSON, Completed, JSONObject, Outcome, Status
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, answer, ask, done, question, value
from tests.support import eventually

NAME = question("Your name?")


async def test_a_step_that_ran_is_not_run_again_after_a_wait(store: Store) -> None:
    ran: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def charge() -> JSON:
            ran.append("charge")
            return "receipt 1"

        receipt = await step(run, Step("charge", charge))
        return Completed({"receipt": receipt} | await ask(run, name=NAME))

    stage = Stage(store, work)
    assert (await stage.run()).status is Status.INPUT_REQUIRED
    await answer(store, stage.task, name="Ada")
    assert await stage.result() == {"receipt": "receipt 1", "name": "Ada"}
    assert ran == ["charge"]


async def test_steps_of_one_name_are_told_apart_by_their_places(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        values = [await value(run, "next", number) for number in range(3)]
        return Completed({"values": values, **await ask(run, name=NAME)})

    stage = Stage(store, work)
    await stage.run()
    assert {place: entry.value for place, entry in (await stage.entries()).items()} == {"0": 0, "1": 1, "2": 2}
    await answer(store, stage.task, name="Ada")
    assert await stage.result() == {"values": [0, 1, 2], "name": "Ada"}


async def test_a_step_in_flight_when_its_worker_dies_is_run_again(store: Store) -> None:
    ran: list[int] = []
    stage: Stage

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(run.claim.attempt)
            if run.claim.attempt == 1:
                await asyncio.Event().wait()
            return run.claim.attempt

        return Completed({"attempt": await step(run, Step("charge", call))})

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(lambda: ran == [1], "the step did not begin")
    await stage.crash(execution)
    assert await stage.result() == {"attempt": 2}
    assert ran == [1, 2]


async def test_a_run_knows_what_its_work_came_to_while_it_handled_an_error(store: Store) -> None:
    """Clean-up, which a next attempt does not begin with."""
    away = OSError("away")
    seen: list[tuple[str, ...]] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        await value(run, "charge", 1)
        try:
            raise away
        except OSError:
            await value(run, "refund", 2)
        seen.extend(run.come_to_since([error]) for error in (away, OSError("another")))
        return done()

    await Stage(store, work).run()
    assert seen == [("1",), ()]


class _Text(str):
    """What JSON knows as a string."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("returned", "read"),
    [
        (None, None),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"pair": (1, 2)}, {"pair": [1, 2]}),
        (_Text("text"), "text"),
        ({1: "one"}, {"1": "one"}),
        ([True, 1.5, "é\u0000"], [True, 1.5, "é\u0000"]),
        (2**70, 2**70),
    ],
    ids=repr,
)
async def test_a_result_is_the_same_live_and_after_a_replay_in_the_form_that_json_gives_it(
    store: Store, returned: object, read: JSON
) -> None:
    seen: list[JSON] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        seen.append(await value(run, "make", cast("JSON", returned)))
        await ask(run, name=NAME)
        return done()

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.COMPLETED
    assert seen == [read, read]
    assert {type(one) for one in seen} == {type(read)}


async def test_a_result_is_nobodys_but_the_runs(store: Store) -> None:
    """What the step keeps a hold of, and changes later, changes nothing; nor does what the tool does to what it got."""
    kept: list[JSON] = [1]

    async def work(run: Run, params: JSONObject) -> Outcome:
        got = cast("list[JSON]", await value(run, "make", kept))
        kept.append(2)
        got.append(3)
        await ask(run, name=NAME)
        return Completed({"got": got})

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    assert await stage.result() == {"got": [1, 3]}


async def _error_of(store: Store, what: Callable[[Run], Any], limits: Limits | None = None) -> tuple[Stage, Exception]:
    """What `what` raised, in a run that went on after it."""
    raised: list[Exception] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        try:
            await what(run)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            raised.append(error)
        return done()

    stage = Stage(store, work, limits=limits)
    await stage.run()
    assert len(raised) == 1
    return stage, raised[0]


@pytest.mark.parametrize(
    "returned", [float("nan"), object(), "\ud800", {"a": {b"b"}}], ids=["nan", "object", "surrogate", "bytes"]
)
async def test_a_result_that_can_not_be_stored_raises_at_once_names_the_step_and_leaves_nothing(
    store: Store, returned: object
) -> None:
    stage, error = await _error_of(store, lambda run: value(run, "charge", cast("JSON", returned)))
    assert isinstance(error, NotStorable)
    assert "'charge'" in str(error)
    assert await stage.entries() == {}


async def test_a_result_may_be_as_large_as_the_limit_and_no_larger(store: Store) -> None:
    limits = Limits(step_result=10)

    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"text": await value(run, "make", "12345678")})

    assert await Stage(store, work, limits=limits).result() == {"text": "12345678"}
    stage, error = await _error_of(store, lambda run: value(run, "make", "123456789"), limits)
    assert isinstance(error, LimitExceeded)
    assert "'make' takes 11 bytes" in str(error)
    assert "10 is the limit" in str(error)
    assert await stage.entries() == {}


async def test_bytes_are_counted_and_not_characters(store: Store) -> None:
    _, error = await _error_of(store, lambda run: value(run, "make", "ééééé"), Limits(step_result=11))
    assert "takes 12 bytes" in str(error)


async def test_a_name_that_is_too_long_is_refused_and_shown_in_part(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"value": await value(run, "n" * 200, 1)})

    assert await Stage(store, work).result() == {"value": 1}
    stage, error = await _error_of(store, lambda run: value(run, "n" * 1_000_000))
    assert isinstance(error, LimitExceeded)
    assert "1000000 characters, and 200 is the limit" in str(error)
    assert len(str(error)) < 200
    assert await stage.entries() == {}


async def test_a_journal_that_is_full_takes_no_more_and_keeps_what_it_has(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        for number in range(2):
            await value(run, "fill", number)
        await ask(run, name=NAME)
        try:
            await value(run, "one more")
        except LimitExceeded as error:
            return done(str(error))
        return done("no limit")

    stage = Stage(store, work, limits=Limits(entries=2))
    await stage.run()
    await answer(store, stage.task, name="Ada")
    over = await stage.run()
    assert over.result == done("The journal of a task has at most 2 entries (entries), and this one is full").result
    assert len(await stage.entries()) == 2


async def test_what_steps_failed_with_counts_in_the_journal_and_is_not_kept_past_its_limit(store: Store) -> None:
    tried: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            raise ValueError("x" * 200)

        for _ in range(3):
            try:
                await step(run, Step("fail", call))
            except (StepFailed, LimitExceeded) as error:
                tried.append(type(error).__name__)
        return done()

    stage = Stage(store, work, limits=Limits(journal=600))
    await stage.run()
    assert tried == ["StepFailed", "StepFailed", "LimitExceeded"]
    assert len(await stage.entries()) == 2


async def test_a_step_that_fails_is_recorded_and_fails_the_same_way_live_and_after_a_replay(store: Store) -> None:
    ran: list[int] = []
    failures: list[StepFailed] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(1)
            raise ValueError("no paper")

        try:
            await step(run, Step("print", call, describe=lambda error: {"text": str(error).upper()}))
        except StepFailed as failed:
            failures.append(failed)
        await ask(run, name=NAME)
        return done()

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).status is Status.COMPLETED
    assert (len(ran), (await stage.entries())["0"].state) == (1, EntryState.FAILED)
    live, replayed = failures
    for failed in failures:
        assert (failed.name, failed.type, failed.message) == ("print", "ValueError", "no paper")
        assert (failed.detail, failed.places) == ({"text": "NO PAPER"}, ("0",))
    assert isinstance(live.__cause__, ValueError)
    assert replayed.__cause__ is None
    assert str(live) == str(replayed) == "The step 'print' failed: ValueError: no paper"


async def test_an_errors_text_is_kept_in_part_and_as_valid_unicode(store: Store) -> None:
    async def call() -> JSON:
        raise ValueError("\ud800\0" + "x" * 1_000_000)

    _, error = await _error_of(store, lambda run: step(run, Step("print", call)))
    assert isinstance(error, StepFailed)
    assert error.message == "??" + "x" * 9_998


async def _at_most_once(run: Run, call: Callable[[], Any]) -> JSON:
    return await step(run, Step("charge", call, at_most_once=True))


async def test_a_step_that_may_run_once_is_not_run_again_after_a_crash_and_the_tool_is_told(store: Store) -> None:
    ran: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(run.claim.attempt)
            return await asyncio.Future[JSON]()

        try:
            await _at_most_once(run, call)
        except StepInterrupted as interrupted:
            return done(interrupted.name)
        return done("again")

    stage = Stage(store, work)
    execution = await stage.begin()
    await eventually(lambda: ran == [1], "the step did not begin")
    await stage.crash(execution)
    assert (await stage.run()).result == done("charge").result
    assert ran == [1]


async def test_a_step_that_may_run_once_and_ran_is_a_step_like_any_other(store: Store) -> None:
    ran: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(1)
            return "receipt"

        receipt = await _at_most_once(run, call)
        await ask(run, name=NAME)
        return done(str(receipt))

    stage = Stage(store, work)
    await stage.run()
    await answer(store, stage.task, name="Ada")
    assert (await stage.run()).result == done("receipt").result
    assert ran == [1]


async def test_nothing_begins_before_the_intent_is_stored(rigged: Rigged) -> None:
    ran: list[int] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            ran.append(run.claim.attempt)
            return None

        await _at_most_once(run, call)
        return done()

    gate = rigged.gate_before("record")
    stage = Stage(rigged, work)
    execution = await stage.begin()
    await gate.reached()
    assert ran == []
    await stage.crash(execution)
    gate.open()
    await execution.gone()
    # Nothing had been stored, so nothing had begun: this is the first time.
    assert (await stage.run()).status is Status.COMPLETED
    assert ran == [2]


async def _sleeps(run: Run) -> JSON:
    return await run.sleep(1000)


async def _asks(run: Run) -> JSON:
    return cast("JSON", await ask(run, name=NAME))


async def _steps(run: Run) -> JSON:
    return await value(run, "inner")


async def _gathers(run: Run) -> JSON:
    return await run.gather([value(run, "inner")])


@pytest.mark.parametrize("verb", [_sleeps, _asks, _steps, _gathers])
@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_durable_verb_inside_a_step_fails_the_task_and_names_both(
    store: Store, verb: Callable[[Run], Any], swallowed: bool
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            try:
                return await verb(run)
            except ConfigurationError:
                if swallowed:
                    return None
                raise

        await step(run, Step("outer", call))
        return done()

    stage = Stage(store, work)
    message = await stage.error()
    assert "'outer'" in message
    assert f" {verb.__name__.strip('_').removesuffix('s')}:" in message


async def test_reports_are_welcome_inside_a_step(store: Store) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        async def call() -> JSON:
            await run.report("printing")
            return None

        await step(run, Step("print", call))
        await ask(run, name=NAME)
        return done()

    assert (await Stage(store, work).run()).message == "printing"
