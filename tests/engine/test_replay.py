"""Replay: the code has to be the code that began the task, and a crash costs one step at most."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.handles import Handle
from perdure.domain.model import JSON, JSONObject, Outcome, Status
from perdure.engine.external import External, external
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import Stage, Tool, answer, ask, done, question, value
from tests.store.support import VirtualClock

NAME = question("Your name?")

Verbs = Callable[[Run], Awaitable[object]]


def does(*verbs: Verbs) -> Tool:
    """A tool that uses these verbs, one after the other."""

    async def work(run: Run, params: JSONObject) -> Outcome:
        for verb in verbs:
            await verb(run)
        return done()

    return Tool(work)


def a(run: Run) -> Awaitable[object]:
    return value(run, "a")


def b(run: Run) -> Awaitable[object]:
    return value(run, "b")


def asks(run: Run) -> Awaitable[object]:
    return ask(run, name=NAME)


def asks_more(run: Run) -> Awaitable[object]:
    return ask(run, name=NAME, age=question("Your age?"))


def asks_else(run: Run) -> Awaitable[object]:
    return ask(run, age=question("Your age?"))


def sleeps(run: Run) -> Awaitable[object]:
    return run.sleep(1)


def side_by_side(run: Run) -> Awaitable[object]:
    return run.gather([a(run), b(run)])


def crossed(run: Run) -> Awaitable[object]:
    return run.gather([b(run), a(run)])


async def _start(handle: Handle) -> None:
    pass


def away(run: Run) -> Awaitable[object]:
    return external(run, External("a", _start))


async def _mismatch(store: Store, clock: VirtualClock, before: Tool, after: Tool) -> str:
    """What is said of a task that the code `before` began and that the code `after` goes on with."""
    stage = Stage(store, before)
    await stage.run()
    await answer(store, stage.task, name="Ada", age=36)
    clock.advance(10)
    stage.handler = after
    return await stage.error()


@pytest.mark.parametrize(
    ("before", "after", "place", "recorded", "found"),
    [
        ([a, b, asks], [b, a, asks], "0", "has step 'a'", "comes there with step 'b'"),
        ([a, asks], [b, asks], "0", "has step 'a'", "comes there with step 'b'"),
        ([a, b, asks], [a, asks], "1", "has step 'b'", "comes there with ask 'name'"),
        ([a, asks], [asks], "0", "has step 'a'", "comes there with ask 'name'"),
        ([a, asks], [a, b, asks], "1", "has ask 'name'", "comes there with step 'b'"),
        ([a, asks], [a, sleeps], "1", "has ask 'name'", "comes there with sleep"),
        ([a, sleeps], [a, asks], "1", "has sleep", "comes there with ask 'name'"),
        ([a, asks], [sleeps, asks], "0", "has step 'a'", "comes there with sleep"),
        ([a, asks], [away, asks], "0", "has step 'a'", "comes there with external 'a'"),
        ([a, asks], [side_by_side, asks], "0", "has step 'a'", "comes there with gather"),
        ([side_by_side, asks], [a, asks], "0", "has gather", "comes there with step 'a'"),
        ([side_by_side, asks], [crossed, asks], "0.0/0", "has step 'a'", "comes there with step 'b'"),
        ([asks_more], [asks_else], "0", "has ask 'age, name'", "comes there with ask 'age'"),
        ([a, b, asks], [a, b], "2", "has ask 'name'", "ended without coming there"),
        ([a, asks], [], "0", "has step 'a'", "ended without coming there"),
        ([side_by_side, asks], [], "0", "has gather", "ended without coming there"),
    ],
)
@pytest.mark.parametrize("swallowed", [False, True], ids=["", "swallowed"])
async def test_code_that_does_something_else_fails_the_task_and_names_both_sides(
    store: Store,
    clock: VirtualClock,
    before: list[Verbs],
    after: list[Verbs],
    place: str,
    recorded: str,
    found: str,
    swallowed: bool,
) -> None:
    async def swallowing(run: Run, params: JSONObject) -> Outcome:
        try:
            await does(*after)(run, params)
        except Exception:  # noqa: BLE001 - the mistake that this is about
            return done("never mind")
        return done()

    message = await _mismatch(store, clock, does(*before), Tool(swallowing) if swallowed else does(*after))
    assert f"at place {place} the journal {recorded}, and the code {found}" in message


async def test_code_that_only_goes_further_is_welcome(store: Store) -> None:
    stage = Stage(store, does(a, asks))
    await stage.run()
    await answer(store, stage.task, name="Ada")
    stage.handler = does(a, asks, b, side_by_side)
    assert (await stage.run()).status is Status.COMPLETED


async def test_a_question_more_beside_the_old_ones_is_welcome(store: Store) -> None:
    stage = Stage(store, does(asks))
    await stage.run()
    await answer(store, stage.task, name="Ada")
    stage.handler = does(asks_more)
    assert [entry.key for entry in (await stage.run()).inputs] == ["age"]


async def test_a_sleep_of_another_length_is_no_mismatch_and_what_was_recorded_holds(
    store: Store, clock: VirtualClock
) -> None:
    def longer(run: Run) -> Awaitable[object]:
        return run.sleep(1_000_000)

    stage = Stage(store, does(sleeps, asks))
    await stage.run()
    clock.advance(1)
    stage.handler = does(longer, asks)
    assert (await stage.run()).status is Status.INPUT_REQUIRED


async def test_the_journal_is_read_once_a_run(rigged: Rigged) -> None:

    stage = Stage(rigged, does(a, b, side_by_side, asks))
    await stage.run()
    assert rigged.calls.count("journal") == 1
    await answer(rigged, stage.task, name="Ada")
    await stage.run()
    assert rigged.calls.count("journal") == 2


class Hundred:
    """A tool of a hundred steps; counts which ran."""

    def __init__(self) -> None:
        self.ran: Counter[int] = Counter()

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        total = 0
        for number in range(100):
            total += _number(await step(run, Step(f"step {number % 7}", lambda number=number: self._one(number))))
        return done(str(total))

    async def _one(self, number: int) -> JSON:
        self.ran[number] += 1
        return number


def _number(result: JSON) -> int:
    assert isinstance(result, int)
    return result


async def test_a_tool_of_a_hundred_steps_whose_worker_dies_after_each_in_turn_runs_each_once(gated: Rigged) -> None:
    tool = Hundred()
    stage = Stage(gated, tool)
    await stage.create(max_attempts=1000)
    for _ in range(100):
        gate = gated.gate_after("record")
        execution = await stage.begin()
        await gate.reached()
        await stage.crash(execution)
        gate.open()
        await execution.gone()
    assert (await stage.run()).result == done(str(sum(range(100)))).result
    assert (stage.claim.deaths, set(tool.ran.values()), len(tool.ran)) == (100, {1}, 100)


async def test_a_worker_that_dies_before_the_record_has_to_run_that_step_again_and_no_other(gated: Rigged) -> None:
    tool = Hundred()
    stage = Stage(gated, tool)
    gated.before["record"].extend([_pass] * 50)
    gate = gated.gate_before("record")
    execution = await stage.begin()
    await gate.reached()
    await stage.crash(execution)
    gate.open()
    await execution.gone()
    await stage.run()
    assert {number for number, times in tool.ran.items() if times > 1} == {50}


async def _pass() -> None:
    await asyncio.sleep(0)
