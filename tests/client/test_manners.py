"""What a server sees of a client, and what a client makes of a server that does not behave."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import ElicitResult
from pydantic import ValidationError

from perdure import Tasks as ServerTasks
from perdure.client import (
    AnswerRefused,
    Disconnected,
    Malformed,
    Snapshot,
    TaskHandle,
    Tasks,
    TaskTimedOut,
    Unavailable,
)
from perdure.client.asking import Asker
from tests.client.spy import Spy, always
from tests.client.support import YES, Person, connected, text
from tests.support import PATIENCE, eventually
from tests.wire.support import stage
from tests.wire.tools import Tools

GET, UPDATE, LISTEN = "tasks/get", "tasks/update", "subscriptions/listen"


@asynccontextmanager
async def served(
    tmp_path: Path, tools: Tools, spy: Spy, tasks: Tasks, person: Person | None = None
) -> AsyncGenerator[Client]:
    def declare(server: ServerTasks) -> None:
        for function in (tools.gated, tools.ask, tools.hello):
            server.tool(poll_interval="100ms")(function)

    async with (
        stage(tmp_path, declare, server={"middleware": [spy]}) as up,
        connected(up.client.url, tasks, person or Person()) as client,
    ):
        yield client


async def asks(handle: TaskHandle) -> bool:
    return bool((await handle.status()).questions)


async def test_every_request_names_its_method_and_its_task_in_the_headers(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(), Tasks()
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "ask")
        await handle.result(PATIENCE)
        await handle.status()
        await handle.cancel()
    methods = {"tools/call", GET, UPDATE, "tasks/cancel", LISTEN}
    assert methods <= {one.method for one in spy.asked}
    for one in spy.asked:
        assert one.headers["mcp-method"] == one.method
        if one.method.startswith("tasks/"):
            assert one.headers["mcp-name"] == handle.id


async def test_polls_follow_an_interval_that_changes(tmp_path: Path, tools: Tools) -> None:
    intervals = iter([100, 100, 600])

    def changing(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "pollIntervalMs": next(intervals, 600)}

    spy, tasks = Spy(change={GET: changing}), Tasks(listen=False)
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "gated")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await eventually(lambda: len(spy.gaps(GET)) >= 4, "it is polled")
        tools.gate.set()
        await wait
    first, second, *later = spy.gaps(GET)
    assert min(first, second) >= 0.1
    assert min(later) >= 0.6


async def test_a_question_that_the_server_repeats_is_not_asked_again(tmp_path: Path, tools: Tools) -> None:
    said: list[dict[str, Any]] = []
    tell = [True]

    def stubborn(answer: dict[str, Any]) -> dict[str, Any]:
        if answer["status"] == "input_required":
            said.append(answer)
        repeats = said and tell[0]
        return said[-1] if repeats else answer

    spy, tasks, person = Spy(change={GET: stubborn}), Tasks(listen=False), Person()
    async with served(tmp_path, tools, spy, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await eventually(lambda: spy.came[UPDATE] == 1, "it is answered")
        polled = spy.came[GET]
        await eventually(lambda: spy.came[GET] >= polled + 3, "it is polled")
        with pytest.raises(TaskTimedOut):
            await (await tasks.resume(client, handle.id)).result(0.5)
        tell[0] = False
        assert text(await wait) == "accept True"
    assert person.asked == ["All right?"]
    assert spy.came[UPDATE] == 1


async def test_a_task_in_answer_to_anything_but_a_tool_call_is_no_valid_answer(tmp_path: Path, tools: Tools) -> None:
    task = {"resultType": "task", "taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "x"}
    spy = Spy(change={"tools/list": lambda _: {**task, "ttlMs": None}})
    async with served(tmp_path, tools, spy, Tasks()) as client:
        with pytest.raises(ValidationError):
            await client.list_tools()


async def test_an_answer_that_does_not_fit_is_refused_and_can_be_given_again(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks()
    async with served(tmp_path, tools, Spy(), tasks) as client:
        handle = await tasks.start(client, "ask")
        async for snapshot in handle.updates():
            if snapshot.questions:
                break
        with pytest.raises(AnswerRefused) as refused:
            await handle.answer({"form": ElicitResult(action="accept", content={"ok": "perhaps"})})
        assert refused.value.keys == ("form",)
        await handle.answer({"form": {"action": "accept", "content": {"ok": False}}})
        assert text(await handle.result(PATIENCE)) == "accept False"


async def test_an_answer_that_does_not_come_through_is_sent_by_the_next_wait(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 1.0)
    spy, tasks, person = Spy(refuse={UPDATE: always(-32000, "full")}), Tasks(), Person()
    async with served(tmp_path, tools, spy, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        async for snapshot in handle.updates():
            if snapshot.questions:
                break
        with pytest.raises(Unavailable, match=r"^The server did not answer in time \(full\); the task goes on$"):
            await handle.answer({"form": YES})
        spy.refuse.clear()
        assert text(await handle.result(PATIENCE)) == "accept True"
    assert person.asked == []


async def test_an_answer_on_record_is_also_sent_by_a_wait_that_asks_nothing(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 1.0)
    spy, tasks = Spy(refuse={UPDATE: always(-32000, "full")}), Tasks()
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "ask")
        await eventually(lambda: asks(handle), "it asks")
        with pytest.raises(Unavailable):
            await handle.answer({"form": YES})
        spy.refuse.clear()
        assert text(await handle.result(PATIENCE, ask=False)) == "accept True"


async def test_whether_an_answer_was_refused_is_asked_for_within_its_bound(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 0.5)
    spy, tasks = Spy(), Tasks()
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "ask")
        await eventually(lambda: asks(handle), "it asks")
        spy.refuse[GET] = lambda _: MCPError(-32000, "full") if spy.came[UPDATE] else None
        with anyio.fail_after(PATIENCE), pytest.raises(Unavailable):
            await handle.answer({"form": {"action": "accept", "content": {"ok": "perhaps"}}})


async def test_a_question_that_goes_and_comes_back_is_asked_no_more_once_it_has_gone_again(
    tmp_path: Path, tools: Tools
) -> None:
    tasks, person = Tasks(), Person()
    person.gate.clear()
    async with served(tmp_path, tools, Spy(), tasks, person) as client:
        handle = await tasks.start(client, "ask")
        await eventually(lambda: asks(handle), "it asks")
        (record,) = tasks.journal.records()
        asked, gone = await handle.status(), Snapshot(handle.id, "working")
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                asker = Asker(vars(handle)["_link"], record, handle.id, group)
                for snapshot in (asked, gone, asked):
                    asker.look(snapshot, ask=True)
                await person.opened.wait()
                await anyio.sleep(0.1)
                for snapshot in (asked, gone):
                    asker.look(snapshot, ask=True)


async def test_a_caller_that_is_cancelled_hears_of_that_and_not_of_a_task_that_could_not_be_stopped(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(refuse={"tasks/cancel": always(-32602, "Task not found")}), Tasks(on_cancel="cancel")
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "gated")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(handle.result)
                await tools.entered.wait()
                scope.cancel()
        assert scope.cancelled_caught
    assert spy.came["tasks/cancel"] == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": None}, "no taskId or no status"),
        ({"taskId": "another"}, "another task"),
        ({"status": "completed"}, "not one of a tool"),
        ({"status": "completed", "result": {"content": 5}}, "not one of a tool"),
        ({"status": "input_required", "inputRequests": {"k": {"method": "no/such"}}}, "of no kind"),
    ],
)
async def test_what_is_no_task_and_no_result_says_so(
    tmp_path: Path, tools: Tools, change: dict[str, Any], why: str
) -> None:
    spy, tasks = Spy(change={GET: lambda answer: {**answer, **change}}), Tasks(listen=False)
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "gated")
        with pytest.raises(Malformed, match=why):
            await handle.result(PATIENCE)


async def test_a_wait_that_outlives_its_session_ends_and_the_task_can_be_resumed(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks()

    def declare(server: ServerTasks) -> None:
        server.tool(poll_interval="100ms")(tools.gated)

    async with stage(tmp_path, declare) as up:
        async with connected(up.client.url, tasks) as client:
            handle = await tasks.start(client, "gated")
            wait = asyncio.create_task(handle.result(PATIENCE))
            await tools.entered.wait()
            await handle.status()
        with pytest.raises(Disconnected):
            await wait
        tools.gate.set()
        async with connected(up.client.url, tasks) as client:
            assert text(await (await tasks.resume(client, handle.id)).result(PATIENCE)) == "through"


async def test_one_of_these_serves_two_sessions_at_once(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks()

    def declare(server: ServerTasks) -> None:
        server.tool(poll_interval="100ms")(tools.gated)

    async with (
        stage(tmp_path, declare) as up,
        connected(up.client.url, tasks) as one,
        connected(up.client.url, tasks) as other,
    ):
        handles: list[TaskHandle] = [await tasks.start(client, "gated") for client in (one, other)]
        waits = [asyncio.create_task(handle.result(PATIENCE)) for handle in handles]
        await tools.entered.wait()
        tools.gate.set()
        assert [text(await wait) for wait in waits] == ["through"] * 2


def forged(client: Client, task_id: str, subscription: object) -> Any:
    """What a server says of somebody's task, as it comes to what `client` has given its session to hear by."""
    (binding,) = vars(client)["_folded_extensions"].bindings
    said: dict[str, Any] = {"taskId": task_id, "status": "completed", "result": {"content": []}}
    return binding.handler(
        binding.params_type.model_validate({**said, "_meta": {SUBSCRIPTION_ID_META_KEY: subscription}})
    )


async def test_a_session_by_which_no_task_was_ever_begun_does_not_speak_for_the_task_of_another(
    tmp_path: Path, tools: Tools
) -> None:
    """Whatever stream it names."""
    (tmp_path / "other").mkdir()
    spy, tasks = Spy(), Tasks()
    async with (
        served(tmp_path, tools, spy, tasks) as client,
        stage(tmp_path / "other", lambda server: server.tool()(tools.hello) and None) as there,
        connected(there.client.url, tasks) as other,
    ):
        handle = await tasks.start(client, "gated")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await eventually(lambda: spy.open[LISTEN] > 0, "it is listened to")
        for subscription in (None, *range(20)):
            await forged(other, handle.id, subscription)
        await handle.status()
        tools.gate.set()
        assert text(await wait) == "through"


async def test_what_is_said_of_a_task_by_no_stream_of_ours_is_only_a_reason_to_poll(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(), Tasks(listen=False)
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "gated")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await eventually(lambda: spy.came[GET] > 0, "it is polled")
        await forged(client, handle.id, None)
        await handle.status()
        tools.gate.set()
        assert text(await wait) == "through"


async def test_who_stops_to_follow_leaves_nothing_running(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks()
    async with served(tmp_path, tools, Spy(), tasks) as client:
        handle = await tasks.start(client, "gated")

        def watches() -> bool:
            return any("watcher" in task.get_name() for task in asyncio.all_tasks())

        async for _ in handle.updates():
            assert watches()
            break
        await eventually(lambda: not watches(), "the watcher ends")
