"""Waiting for a time, for people who may not answer, and for several things at once."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from perdure import (
    Answer,
    Elicit,
    ElicitUrl,
    ListRoots,
    Retry,
    Sample,
    StepFailed,
    SyncTaskContext,
    TaskContext,
    Tasks,
)
from perdure.domain.journal import Journal
from perdure.domain.model import Claim
from perdure.domain.timeline import EventKind
from perdure.store.sqlite import SQLiteStore
from tests.support import eventually
from tests.wire.envelopes import JSON
from tests.wire.support import Client, Stage, serving, stage, tasks_on
from tests.wire.tools import FORM, Form

DAY = 86_400_000


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def only(fn: Callable[..., Any], **options: Any) -> Callable[[Tasks], None]:
    return lambda tasks: tasks.tool("tool", **options)(fn) and None


def text(task: JSON) -> str:
    return task["result"]["content"][0]["text"]


async def parked(up: Stage, task_id: str, wakes: int) -> None:
    """Wait until the task sleeps until that time."""

    async def holds() -> bool:
        run = (await up.store.inspect(task_id)).run
        return run is not None and run.session is None and run.due_at == wakes

    await eventually(holds, f"the task sleeps until {wakes}")


# -- sleep -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_task_sleeps_for_days_and_holds_nothing_meanwhile(tmp_path: Path, plain: bool) -> None:
    ran: list[str] = []

    async def coroutine(task: TaskContext) -> str:
        ran.append("run")
        await task.step("before", lambda: ran.append("before"))
        await task.sleep("3 days")
        await task.step("after", lambda: ran.append("after"))
        return "rested"

    def function(task: SyncTaskContext) -> str:
        ran.append("run")
        task.step("before", lambda: ran.append("before"))
        task.sleep("3 days")
        task.step("after", lambda: ran.append("after"))
        return "rested"

    clock = Hands()
    async with stage(tmp_path, only(function if plain else coroutine), clock=clock) as up:
        task_id = await up.client.start("tool")
        await parked(up, task_id, clock.now + 3 * DAY)
        clock.now += 3 * DAY - 1
        assert (await up.client.get(task_id)).result["status"] == "working"
        assert ran == ["run", "before"]
        clock.now += 1
        assert text(await up.client.until(task_id)) == "rested"
        assert ran == ["run", "before", "run", "after"]


# -- questions whose time runs out -------------------------------------------------------------------------------------


async def all_kinds(task: TaskContext) -> list[Any]:
    """One after the other; each is given up after a minute."""
    form = await task.elicit("form", "All right?", Form, timeout="1 minute")
    url = await task.elicit_url("url", "Go there", "https://example.org", timeout="1m")
    poem = await task.sample("poem", ["A poem"], timeout=60)
    roots = await task.list_roots(timeout="60s")
    both = await task.ask({"more": Elicit("More?", Form), "roots too": ListRoots()}, timeout="1m")
    assert form.timed_out
    assert not form.accepted
    return [form.action, form.data, url.action, poem, roots, both["more"].action, both["roots too"]]


def some_plain(task: SyncTaskContext) -> list[Any]:
    roots = task.list_roots(timeout="1 minute")
    both = task.ask({"more": Elicit("More?", Form), "roots too": ListRoots()}, timeout="1m")
    return [roots, both["more"].action, both["roots too"]]


ONE_BY_ONE = ["form", "url", "poem", "roots", "more,roots too"]


@pytest.mark.parametrize(
    ("fn", "asked", "result"),
    [
        (all_kinds, ONE_BY_ONE, ["timeout", None, "timeout", None, None, "timeout", None]),
        (some_plain, ONE_BY_ONE[3:], [None, "timeout", None]),
    ],
    ids=["async", "plain"],
)
async def test_a_tool_goes_on_without_the_answer_once_its_time_is_over(
    tmp_path: Path, fn: Callable[..., Any], asked: list[str], result: list[Any]
) -> None:
    clock = Hands()
    seen: list[str] = []
    async with stage(tmp_path, only(fn), clock=clock) as up:
        task_id = await up.client.start("tool")

        async def is_over() -> bool:
            task = (await up.client.get(task_id)).result
            shown = ",".join(task.get("inputRequests", ["working"]))
            if shown != "working" and shown not in seen:
                clock.now += 60_000
            seen.append(shown)
            return task["status"] == "completed"

        await eventually(is_over, "nobody answers, and the tool comes to its end")
        task = (await up.client.get(task_id)).result
        assert task["result"]["structuredContent"]["result"] == result
        events = [event.kind for event in (await up.store.inspect(task_id)).events]
        assert events == [EventKind.UNANSWERED] * (len(asked) + 1)
    assert list(dict.fromkeys(shown for shown in seen if shown != "working")) == asked


async def test_an_answer_is_kept_that_comes_while_something_else_has_the_tool_running(tmp_path: Path) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await gate.wait()

    async def sleeps(task: TaskContext) -> None:
        await task.sleep("1m")
        await task.step("hold", hold)

    async def asks(task: TaskContext) -> str:
        return (await task.elicit("ok", "All right?", Form)).action

    async def tool(task: TaskContext) -> list[str | None]:
        return list(await task.gather(sleeps(task), asks(task)))

    clock = Hands()
    async with stage(tmp_path, only(tool), clock=clock) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        clock.now += 60_000
        await asyncio.wait_for(reached.wait(), 20)
        assert (await up.client.get(task_id)).result["status"] == "working"
        await up.client.update(task_id, {"ok": FORM})
        gate.set()
        task = await up.client.until(task_id)
        assert task["result"]["structuredContent"]["result"] == [None, "accept"]


async def test_an_answer_in_time_counts_and_one_that_comes_later_is_ignored(tmp_path: Path) -> None:
    async def tool(task: TaskContext) -> list[str]:
        answers = await task.ask({"one": Elicit("One?", Form), "two": Elicit("Two?", Form)}, timeout="1m")
        last = await task.elicit("three", "Three?", Form, timeout="1m")
        again = await task.elicit("two", "Two?", Form)
        return [answers["one"].action, answers["two"].action, last.action, again.action]

    clock = Hands()
    async with stage(tmp_path, only(tool), clock=clock) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"one": FORM})
        clock.now += 60_000

        async def asks_the_last() -> bool:
            return list((await up.client.get(task_id)).result.get("inputRequests", {})) == ["three"]

        await eventually(asks_the_last, "it goes on")
        await up.client.update(task_id, {"two": FORM, "three": FORM})
        task = await up.client.until(task_id)
        assert task["result"]["structuredContent"]["result"] == ["accept", "timeout", "accept", "timeout"]


def test_what_no_one_answered_is_the_questions_to_say() -> None:
    questions: list[Any] = [Elicit("?", Form), ElicitUrl("?", "https://example.org"), Sample(["?"]), ListRoots()]
    timeout: Answer[BaseModel] = Answer("timeout")
    assert [question.unanswered() for question in questions] == [timeout, timeout, None, None]
    assert timeout.timed_out
    assert not timeout.accepted
    assert not Answer("cancel").timed_out


# -- side by side ------------------------------------------------------------------------------------------------------


async def test_branches_run_side_by_side_and_each_keeps_what_it_did(tmp_path: Path) -> None:
    ran: list[str] = []
    meeting = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        ran.append(name)
        await meeting.wait()
        return name

    async def branch(task: TaskContext, name: str) -> str:
        first = await task.step("meet", meet, name)
        answer = await task.elicit(name, f"{name}?", Form)
        second = await task.step("then", lambda: ran.append(f"{name} again"))
        return f"{first} {answer.action} {second}"

    async def tool(task: TaskContext) -> list[str]:
        nobody: list[Coroutine[Any, Any, str]] = []
        one, two, three = await task.gather(branch(task, "a"), branch(task, "b"), task.step("c", lambda: "c"))
        nested = await task.gather(task.gather(task.step("d", lambda: "d")), task.gather(*nobody))
        return [one, two, three, str(nested)]

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        for key in ("b", "a"):
            await up.client.until(task_id, "input_required")
            await up.client.update(task_id, {key: FORM})
        task = await up.client.until(task_id)
        assert task["result"]["structuredContent"]["result"] == [
            "a accept None",
            "b accept None",
            "c",
            "[['d'], []]",
        ]
    assert sorted(ran) == ["a", "a again", "b", "b again"]


async def test_plain_tools_gather_functions(tmp_path: Path) -> None:
    ran: list[str] = []
    meeting = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        ran.append(name)
        await meeting.wait()
        return name

    def tool(task: SyncTaskContext) -> list[str]:
        def branch(name: str) -> str:
            met = task.step("meet", meet, name)
            answer = task.elicit(name, f"{name}?", Form)
            return f"{met} {answer.action}"

        def inner() -> list[str]:
            return task.gather(*[lambda letter=letter: task.step("letter", letter.upper) for letter in "xyz"])

        async def coroutine() -> str:
            return "coroutine"

        one, two, three, four = task.gather(lambda: branch("a"), lambda: branch("b"), inner, coroutine)
        return [one, two, *three, str(four)]

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        await up.client.update(task_id, {"a": FORM, "b": FORM})
        task = await up.client.until(task_id)
        assert task["result"]["structuredContent"]["result"] == ["a accept", "b accept", "X", "Y", "Z", "coroutine"]
    assert sorted(ran) == ["a", "b"]


async def test_an_error_of_a_branch_is_the_gathers(tmp_path: Path) -> None:
    async def no_paper() -> None:
        raise MCPError(-32050, "no paper")

    async def refuse() -> None:
        raise ToolError("no ink")

    async def tool(task: TaskContext) -> str:
        with pytest.raises(StepFailed, match="no ink") as failed:
            await task.gather(task.step("fine", lambda: 1), task.step("refuse", refuse), task.step("paper", no_paper))
        assert failed.value.places == ("0.1/0", "0.2/0")
        await task.gather(task.step("paper", no_paper), task.step("refuse", refuse))
        return "never"

    async with stage(tmp_path, only(tool)) as up:
        task = await up.client.finish("tool")
        assert task["error"] == {"code": -32050, "message": "no paper"}


async def test_a_gather_where_the_journal_has_something_else_leaves_no_branch_behind(tmp_path: Path) -> None:
    deployed = False

    async def tool(task: TaskContext) -> None:
        if deployed:
            await task.gather(task.step("a", lambda: 1), task.step("b", lambda: 1))
        await task.step("first", lambda: 1)
        await task.elicit("form", "Go on?", Form)

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        await up.client.until(task_id, "input_required")
        deployed = True
        await up.client.update(task_id, {"form": FORM})
        task = await up.client.until(task_id)
        assert "has step 'first', and the code comes there with gather" in task["error"]["message"]


# -- being told to stop ------------------------------------------------------------------------------------------------


async def test_a_shielded_block_is_seen_through_and_the_cancellation_comes_where_it_ends(tmp_path: Path) -> None:
    inside, going_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def tool(task: TaskContext) -> str:
        try:
            async with task.shield():
                inside.set()
                await going_on.wait()
                await task.step("pay", lambda: done.append("paid"))
                assert task.cancelled
            done.append("never")
        finally:
            done.append("cleaned up")
        return "never"

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        await inside.wait()
        await up.client.cancel(task_id)
        assert (await up.client.get(task_id)).result["status"] == "working"
        going_on.set()
        assert (await up.client.until(task_id))["status"] == "cancelled"
    assert done == ["paid", "cleaned up"]


async def test_a_shield_that_nothing_came_against_is_nothing(tmp_path: Path) -> None:
    async def tool(task: TaskContext) -> str:
        async with task.shield(), task.shield():
            return await task.step("pay", lambda: "paid", returns=str)

    async with stage(tmp_path, only(tool)) as up:
        assert text(await up.client.finish("tool")) == "paid"


async def test_a_plain_tool_is_not_stopped_at_a_checkpoint_in_a_shield(tmp_path: Path) -> None:
    inside, going_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def wait() -> None:
        inside.set()
        await going_on.wait()

    def tool(task: SyncTaskContext) -> str:
        with task.shield():
            task.step("wait", wait)
            task.checkpoint()
            done.append(f"cancelled: {task.cancelled}")
        task.checkpoint()
        return "never"

    async with stage(tmp_path, only(tool)) as up:
        task_id = await up.client.start("tool")
        await inside.wait()
        await up.client.cancel(task_id)
        going_on.set()
        assert (await up.client.until(task_id))["status"] == "cancelled"
    assert done == ["cancelled: True"]


async def test_a_tool_that_ends_by_itself_when_it_is_told_to_stop_need_not_come_by_all_that_it_did(
    tmp_path: Path,
) -> None:
    hanging = asyncio.Event()
    attempts: list[int] = []

    async def tool(task: TaskContext) -> str:
        attempts.append(task.attempt)
        await task.step("first", lambda: 1)
        try:
            if len(attempts) > 1:
                hanging.set()
                await asyncio.Event().wait()
            await task.step("second", lambda: 2)
            raise OSError
        except asyncio.CancelledError:
            return "stopped early"

    async with stage(tmp_path, only(tool, retry=Retry(backoff="1ms"))) as up:
        task_id = await up.client.start("tool")
        await hanging.wait()
        await up.client.cancel(task_id)
        assert text(await up.client.until(task_id)) == "stopped early"
    assert attempts == [1, 2]


class Reading(SQLiteStore):
    """A store where nobody gets to read a journal."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()

    async def journal(self, claim: Claim) -> Journal:
        self.asked.set()
        await asyncio.Event().wait()
        return await super().journal(claim)


async def test_who_asks_a_tool_to_stop_that_has_returned_already_comes_too_late(tmp_path: Path) -> None:
    async def tool() -> str:
        return "done"

    store = Reading(f"sqlite:///{tmp_path / 'tasks.db'}")
    tasks = tasks_on(store)
    only(tool)(tasks)
    async with serving(tasks.server("wire")) as (http, url):
        client = Client(http, url)
        task_id = await client.start("tool")
        await store.asked.wait()
        await client.cancel(task_id)
        assert text(await client.until(task_id)) == "done"
