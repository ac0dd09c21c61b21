"""What a wait comes to, over a real server: results, answers, and each of the ways to have no result."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, ErrorData

from perdure.client import InputDeclined, TaskCancelled, TaskFailed, TaskLost, Tasks, TaskTimedOut
from tests.client.support import YES, Person, connected, text
from tests.support import PATIENCE, eventually
from tests.wire.support import Stage
from tests.wire.tools import Tools

pytestmark = pytest.mark.usefixtures("scene")


@pytest.fixture(params=["listening", "polling"])
def tasks(request: pytest.FixtureRequest) -> Tasks:
    return Tasks(listen=request.param == "listening")


def watchers(running: set[asyncio.Task[Any]]) -> list[str]:
    return [task.get_name() for task in running if "watcher" in task.get_name()]


async def test_call_tool_just_returns_the_result(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        assert text(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"
        result = await client.call_tool("report", {"size": "large"})
    assert result.structured_content == {"size": "large", "pages": 7}


async def test_a_server_in_the_same_process_serves_as_well(scene: Stage, tasks: Tasks) -> None:
    async with Client(scene.mcp, extensions=[tasks]) as client:
        assert text(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"


async def test_a_question_goes_to_the_clients_own_callback(scene: Stage, tasks: Tasks) -> None:
    person = Person()
    async with connected(scene.client.url, tasks, person) as client:
        assert text(await client.call_tool("ask")) == "accept True"
        assert text(await client.call_tool("ask_twice")) == "accept, accept"
    assert person.asked == ["All right?", "All right?", "Who?"]


async def test_two_questions_at_once_are_asked_at_once(scene: Stage, tasks: Tasks) -> None:
    person = Person()
    person.gate.clear()
    async with connected(scene.client.url, tasks, person) as client, anyio.create_task_group() as group:

        async def both() -> None:
            async with asyncio.timeout(PATIENCE):
                while len(person.asked) < 2:
                    person.opened.clear()
                    await person.opened.wait()
            person.gate.set()

        group.start_soon(both)
        assert text(await client.call_tool("ask_two")) == "form=accept, entry=accept"
    assert sorted(person.asked) == ["All right?", "Who?"]


async def test_a_question_may_be_declined(scene: Stage, tasks: Tasks) -> None:
    person = Person(**{"All right?": ElicitResult(action="decline")})
    async with connected(scene.client.url, tasks, person) as client:
        assert text(await client.call_tool("ask")) == "decline None"


async def test_a_callback_without_an_answer_ends_the_wait_and_the_task_waits_on(scene: Stage, tasks: Tasks) -> None:
    person = Person(**{"All right?": ErrorData(code=-1, message="nobody is here")})
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        with pytest.raises(InputDeclined, match="nobody is here") as declined:
            await handle.result()
        assert (declined.value.key, declined.value.task_id) == ("form", handle.id)
        assert (await handle.status()).status == "input_required"
        person.answers["All right?"] = YES
        assert text(await handle.result()) == "accept True"


async def test_what_a_callback_raises_is_what_the_caller_hears(scene: Stage, tasks: Tasks) -> None:
    async def broken(*_: object) -> ElicitResult:
        raise ZeroDivisionError

    async with connected(scene.client.url, tasks, broken) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("ask")


async def test_a_failed_task_carries_the_servers_error(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        with pytest.raises(TaskFailed, match="out of paper") as failed:
            await client.call_tool("broken", {"code": -32050, "message": "out of paper"})
    error = failed.value.error
    assert (error.code, error.message, error.data) == (-32050, "out of paper", {"hint": "none"})


async def test_an_error_of_the_tools_own_is_a_result(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        result = await client.call_tool("refuse", {"reason": "no"})
    assert result.is_error
    assert "no" in text(result)


async def test_a_task_that_is_cancelled_says_so(scene: Stage, tasks: Tasks, tools: Tools) -> None:
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.start(client, "gated")
        await tools.entered.wait()
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result(PATIENCE)
        await handle.cancel()


async def test_a_task_that_the_server_does_not_know_is_lost(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.resume(client, "tsk_" + "a" * 32)
        for wait in (handle.result, handle.status, handle.cancel):
            with pytest.raises(TaskLost, match="token"):
                await wait()
        there = await tasks.resume_all(client)
        assert (there.handles, [each.id for each in there.lost]) == ((), [handle.id])
        assert [record.status for record in tasks.journal.records()] == ["lost"]


async def test_a_call_that_the_server_answers_at_once_is_a_handle_that_is_settled(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.start(client, "sized", {"n": 1})
        assert not handle.is_task
        assert text(await handle.result()) == "1"
        assert (await handle.status()).status == "completed"
        assert [snapshot.status async for snapshot in handle.updates()] == ["completed"]
        await handle.cancel()
        await handle.answer({})
        assert not tasks.journal.records()


async def test_a_call_that_is_refused_leaves_no_record(scene: Stage, tasks: Tasks) -> None:
    async with connected(scene.client.url, tasks) as client:
        with pytest.raises(MCPError):
            await tasks.start(client, "hello", {"name": "you"}, idempotency_key="k" * 201)
    assert not tasks.journal.records()


async def test_a_wait_that_is_too_long_leaves_the_task_and_gives_the_handle(
    scene: Stage, tasks: Tasks, tools: Tools
) -> None:
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.start(client, "gated")
        with pytest.raises(TimeoutError) as late:
            await handle.result(0.3)
        assert isinstance(late.value, TaskTimedOut)
        tools.gate.set()
        assert text(await late.value.handle.result(PATIENCE)) == "through"


async def test_the_wait_of_call_tool_has_a_bound_too_and_its_handle_is_not_lost(scene: Stage, tools: Tools) -> None:
    tasks = Tasks(timeout=0.3)
    async with connected(scene.client.url, tasks) as client:
        with pytest.raises(TaskTimedOut) as late:
            await client.call_tool("gated")
        tools.gate.set()
        assert text(await late.value.handle.result(PATIENCE)) == "through"


async def test_updates_go_from_where_the_task_is_to_its_end(scene: Stage, tasks: Tasks, tools: Tools) -> None:
    seen: list[tuple[str, str | None]] = []
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.start(client, "say", {"words": ["one"]})
        async for snapshot in handle.updates():
            seen.append((snapshot.status, snapshot.message))
            if snapshot.message == "one":
                tools.gate.set()
    assert seen[-1][0] == "completed"
    assert ("working", "one") in seen
    assert {status for status, _ in seen[:-1]} == {"working"}


async def test_questions_are_answered_by_hand_one_after_the_other(scene: Stage, tasks: Tasks) -> None:
    person = Person()
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask_two")
        async for snapshot in handle.updates():
            if "form" in snapshot.questions:
                await handle.answer({"form": YES})
                await handle.answer({"form": ElicitResult(action="decline")})  # the first answer counts
                break
        assert text(await handle.result(PATIENCE)) == "form=accept, entry=accept"
    assert person.asked == ["Who?"]


async def test_several_may_wait_for_one_task_and_its_question_is_asked_once(scene: Stage, tasks: Tasks) -> None:
    person = Person()
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        again = await tasks.resume(client, handle.id)
        results = await asyncio.gather(*(each.result(PATIENCE) for each in (handle, again, handle)))
    assert {text(result) for result in results} == {"accept True"}
    assert person.asked == ["All right?"]


@pytest.mark.parametrize("on_cancel", ["leave", "cancel"])
async def test_a_caller_that_is_cancelled_leaves_its_task_or_cancels_it(
    scene: Stage, tools: Tools, on_cancel: str
) -> None:
    tasks = Tasks(on_cancel="cancel" if on_cancel == "cancel" else "leave")
    async with connected(scene.client.url, tasks) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "gated")
                await tools.entered.wait()
                scope.cancel()
        (record,) = tasks.journal.records()
        assert record.task_id is not None
        handle = await tasks.resume(client, record.task_id)
        if on_cancel == "leave":
            tools.gate.set()
            assert text(await handle.result(PATIENCE)) == "through"
        else:
            with pytest.raises(TaskCancelled):
                await handle.result(PATIENCE)


async def test_nothing_runs_once_nobody_waits(scene: Stage, tasks: Tasks, tools: Tools) -> None:
    async with connected(scene.client.url, tasks) as client:
        before = asyncio.all_tasks()
        waits = [asyncio.create_task(client.call_tool("gated")) for _ in range(3)]
        await tools.entered.wait()
        await eventually(lambda: len(watchers(asyncio.all_tasks() - before)) == 1, "one watches for all")
        tools.gate.set()
        await asyncio.gather(*waits)
        assert not watchers(asyncio.all_tasks() - before)


async def test_an_answer_by_hand_goes_before_one_that_the_user_is_still_thinking_of(scene: Stage, tasks: Tasks) -> None:
    person = Person()
    person.gate.clear()
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await person.opened.wait()
        await handle.answer({"form": ElicitResult(action="decline")})
        person.gate.set()
        assert text(await wait) == "decline None"
