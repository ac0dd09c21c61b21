"""The harness: time, answers and deaths, one run after the other."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from perdure import Retry, TaskContext, Tasks
from perdure.domain.model import Status
from perdure.domain.policy import milliseconds
from perdure.store.base import Store
from perdure.store.clock import Clock
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing import Harness, crash_everywhere
from perdure.testing.clock import START
from tests.store.support import new_task


class Approval(BaseModel):
    approved: bool


class Shop:
    """Tools that leave traces."""

    def __init__(self, url: str) -> None:
        self.tasks = Tasks(url)
        self.done: list[str] = []
        self.tasks.tool(retry=Retry(3, backoff="10s", jitter=0))(self.order)
        self.tasks.tool()(self.wait)

    async def order(self, item: str, task: TaskContext) -> str:
        price = await task.step("price", self._do, "price", 7)
        answer = await task.elicit("approve", f"Pay {price} for {item}?", Approval, timeout="1d")
        if answer.timed_out:
            return "nobody answered"
        if answer.data is None or not answer.data.approved:
            task.decline("Not approved")
        await task.step("charge", self._do, "charge", None, at_most_once=True)
        await task.sleep("2 days")
        return await task.step("ship", self._do, "ship", f"{item} for {price}")

    async def wait(self, days: int, task: TaskContext) -> int:
        for _ in range(days):
            await task.sleep("1 day")
        return days

    def _do(self, name: str, value: Any) -> Any:
        self.done.append(name)
        return value


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path / 'unused.db'}")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tasks.db'}"


async def test_a_task_is_called_answered_and_slept_through(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("order", {"item": "lamp"})
        assert task.status is Status.INPUT_REQUIRED
        assert list(task.questions) == ["approve"]
        task = await harness.answer(task, {"approve": {"approved": True}})
        assert task.status is Status.WORKING
        assert shop.done == ["price", "charge"]
        await harness.advance("2 days")
        task = await harness.look(task)
    assert (task.status, task.value) == (Status.COMPLETED, "lamp for 7")
    assert shop.done == ["price", "charge", "ship"]


async def test_time_goes_from_timer_to_timer(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("wait", {"days": 3})
        await harness.advance("71h")
        assert (await harness.look(task)).status is Status.WORKING
        await harness.advance("1h")
        assert (await harness.look(task)).value == 3


async def test_timers_of_tasks_that_another_harness_began_are_come_by_as_its_own_are(shop: Shop, store: str) -> None:
    async with Harness(shop.tasks, store=store) as harness:
        task = await harness.call("wait", {"days": 3})
    async with Harness(shop.tasks, store=store) as harness:
        await harness.advance("71h")
        assert (await harness.look(task)).status is Status.WORKING
        await harness.advance("1h")
        assert (await harness.look(task)).value == 3


async def test_time_goes_on_where_it_stood_for_the_harness_before(shop: Shop, store: str) -> None:
    """Whether anything happened then or not, and however many there were."""
    async with Harness(shop.tasks, store=store) as harness:
        task = await harness.call("wait", {"days": 2})
        await harness.advance("1 day")
    for _ in range(2):
        async with Harness(shop.tasks, store=store) as harness:
            await harness.advance("11h")
            assert (await harness.look(task)).status is Status.WORKING
    async with Harness(shop.tasks, store=store) as harness:
        assert harness.clock.now == START + milliseconds("46h")
        await harness.advance("2h")
        assert (await harness.look(task)).value == 2


async def test_time_begins_after_whatever_others_have_done_in_the_store(shop: Shop, store: str) -> None:
    later = START + milliseconds("365d")
    other = SQLiteStore(store, lambda: later)
    await other.open()
    for _ in range(3):
        await other.create(new_task())
    await other.close()
    async with Harness(shop.tasks, store=store) as harness:
        assert harness.clock.now == later


async def test_a_timer_of_a_task_that_none_of_the_tools_can_run_holds_nothing_up(shop: Shop, store: str) -> None:
    async with Harness(shop.tasks, store=store) as harness:
        task = await harness.call("wait", {"days": 1})
    async with Harness(Tasks(store), store=store) as harness:
        await harness.advance("2 days")
        assert (await harness.look(task)).status is Status.WORKING


async def test_a_question_times_out(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("order", {"item": "lamp"})
        await harness.advance("1d")
        assert (await harness.look(task)).value == "nobody answered"


async def test_a_cancelled_task_is_cancelled_at_once(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("wait", {"days": 3})
        assert (await harness.cancel(task)).status is Status.CANCELLED


async def test_arguments_are_checked_as_in_a_call(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        with pytest.raises(ToolError, match="days"):
            await harness.call("wait", {"days": "many"})


async def test_a_tool_that_there_is_not_is_named_with_those_that_there_are(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        with pytest.raises(KeyError, match="no task tool 'ordre'; there are: 'order', 'wait'"):
            await harness.call("ordre")


async def test_a_harness_that_is_not_open_says_how_to_open_it(shop: Shop) -> None:
    harness = Harness(shop.tasks)
    for _ in ("before", "after"):
        with pytest.raises(RuntimeError, match="`async with Harness"):
            await harness.call("wait", {"days": 1})
        with pytest.raises(RuntimeError, match="`async with Harness"):
            await harness.advance("1d")
        async with harness:
            pass


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        (
            {"approve": {"approved": "perhaps"}},
            "^The response to 'approve' does not fit its request: content.approved: ",
        ),
        ({"approve": {"action": "agree"}}, "^The response to 'approve' does not fit its request: action: "),
        ({"aprove": {"approved": True}}, "^The task asks 'approve', not 'aprove'$"),
    ],
)
async def test_what_a_server_would_refuse_or_ignore_is_no_answer(
    shop: Shop, responses: dict[str, Any], words: str
) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("order", {"item": "lamp"})
        with pytest.raises(AssertionError, match=words):
            await harness.answer(task, responses)
        assert (await harness.look(task)).status is Status.INPUT_REQUIRED


async def test_a_late_answer_is_ignored_if_the_test_wants_to_see_that(shop: Shop) -> None:
    answers: Any = {"approve": {"approved": True}}
    async with Harness(shop.tasks) as harness:
        task = await harness.call("order", {"item": "lamp"})
        await harness.advance("1d")
        with pytest.raises(AssertionError, match=r"is completed and asks nothing, not 'approve': .*late=True"):
            await harness.answer(task, answers)
        assert (await harness.answer(task, answers, late=True)).value == "nobody answered"


async def test_what_a_tool_raised_is_there_although_no_client_hears_of_it(shop: Shop) -> None:
    @shop.tasks.tool()
    async def broken() -> None:
        raise ZeroDivisionError("secret")

    async with Harness(shop.tasks) as harness:
        task = await harness.call("broken")
        fine = await harness.call("wait", {"days": 1})
    assert task.value == "Error executing tool broken"
    assert [repr(error) for error in task.raised] == ["ZeroDivisionError('secret')"]
    assert fine.raised == ()


async def test_the_result_of_a_task_that_is_not_completed_is_an_error_that_says_so(shop: Shop) -> None:
    async with Harness(shop.tasks) as harness:
        task = await harness.call("wait", {"days": 1})
        with pytest.raises(AssertionError, match=r"is working, so there is no result.*harness\.look"):
            _ = task.result
        task = await harness.call("order", {"item": "lamp"})
        with pytest.raises(AssertionError, match="is input_required and asks 'approve', so"):
            _ = task.result

        @shop.tasks.tool()
        async def refused() -> None:
            raise MCPError(-32000, "no money")

        task = await harness.call("refused")
        with pytest.raises(AssertionError, match=r"is failed \(no money\), so"):
            _ = task.result


def _stores(tmp_path: Path) -> list[Callable[[Clock], Store]]:
    numbers = iter(range(1000))
    return [MemoryStore, lambda clock: SQLiteStore(f"sqlite:///{tmp_path / f'{next(numbers)}.db'}", clock)]


@pytest.mark.parametrize("backend", [0, 1], ids=["memory", "sqlite"])
async def test_a_scenario_is_played_with_a_death_at_each_side_of_each_write(tmp_path: Path, backend: int) -> None:
    store = _stores(tmp_path)[backend]
    shops: list[Shop] = []

    def make(crash_at: int | None = None, crash_after: bool = False) -> Harness:
        shops.append(Shop(f"sqlite:///{tmp_path / 'unused.db'}"))
        return Harness(shops[-1].tasks, store=store, crash_at=crash_at, crash_after=crash_after)

    outcomes: set[str] = set()

    async def scenario(harness: Harness) -> None:
        task = await harness.call("order", {"item": "lamp"})
        await harness.answer(task, {"approve": {"approved": True}})
        await harness.advance("2 days")
        done = await harness.look(task)
        assert done.status is Status.COMPLETED
        outcomes.add(str(done.value))
        assert shops[-1].done.count("charge") <= 1

    crashes = await crash_everywhere(make, scenario)
    assert crashes >= 2 * 6
    assert any("charge" in outcome and "at most once" in outcome for outcome in outcomes)
    assert "lamp for 7" in outcomes


async def test_a_write_that_the_scenario_does_not_come_to_again_is_an_error(shop: Shop) -> None:
    plays = 0

    async def scenario(harness: Harness) -> None:
        nonlocal plays
        plays += 1
        if plays == 1:
            await harness.call("wait", {"days": 1})

    with pytest.raises(AssertionError, match="write number 1") as raised:
        await crash_everywhere(partial(Harness, shop.tasks), scenario)
    assert raised.value.__notes__ == [
        "crash 1 of 2: the worker was to die just before its write number 1; play it again with "
        "Harness(tasks, crash_at=1)"
    ]


@pytest.mark.parametrize(
    ("promise", "note"),
    [
        (
            "prices once",
            "crash 1 of 14: the worker died just before its write number 1 (record of step 'price'); play it again "
            "with Harness(tasks, crash_at=1)",
        ),
        (
            "ships",
            "crash 6 of 14: the worker died just after its write number 3 (record of step 'charge', begun); play it "
            "again with Harness(tasks, crash_at=3, crash_after=True)",
        ),
    ],
)
async def test_a_scenario_that_breaks_says_at_which_crash(shop: Shop, promise: str, note: str) -> None:
    async def scenario(harness: Harness) -> None:
        shop.done.clear()
        task = await harness.call("order", {"item": "lamp"})
        await harness.answer(task, {"approve": {"approved": True}})
        await harness.advance("2 days")
        value = (await harness.look(task)).value
        assert shop.done.count("price") == 1 if promise == "prices once" else value == "lamp for 7"

    with pytest.raises(AssertionError) as raised:
        await crash_everywhere(partial(Harness, shop.tasks), scenario)
    assert raised.value.__notes__ == [note]
