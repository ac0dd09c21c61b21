"""Tasks that the server does not know, for now or for good: what is kept of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from perdure.client import TaskExpired, TaskHandle, TaskLost, Tasks, Unavailable, Unsure, server_of
from tests.client.spy import Spy, always
from tests.client.support import YES, Person, connected, text
from tests.client.test_manners import UPDATE, asks
from tests.client.test_repeating import without_tools
from tests.support import PATIENCE, eventually
from tests.wire.support import stage
from tests.wire.tools import Tools


async def test_a_task_that_was_lost_to_a_wrong_token_is_found_again_and_its_answer_is_sent(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.handle._PATIENCE", 1.0)
    spy, tasks, person = Spy(refuse={UPDATE: always(-32000, "full")}), Tasks(tmp_path / "journal.db"), Person()
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:
        async with connected(up.client.url, tasks, person) as client:
            handle = await tasks.start(client, "ask", idempotency_key="mine")
            await eventually(lambda: asks(handle), "it asks")
            with pytest.raises(Unavailable):
                await handle.answer({"form": YES})
            spy.refuse = {name: always(-32602, "Task not found") for name in ("tasks/get", UPDATE, "tasks/cancel")}
            with pytest.raises(TaskLost):
                await handle.result(PATIENCE)
            assert [each.id for each in (await tasks.resume_all(client)).lost] == [handle.id]
        tasks.journal.close()
        spy.refuse.clear()
        tasks = Tasks(tmp_path / "journal.db")
        async with connected(up.client.url, tasks, person) as client:
            (again,) = (await tasks.resume_all(client)).handles
            assert [record.status for record in tasks.journal.records()] == [None]
            assert text(await again.result(PATIENCE)) == "accept True"
    assert person.asked == []
    tasks.journal.close()


@pytest.mark.parametrize("marked", [True, False])
async def test_a_key_whose_task_is_no_more_is_free_again_where_the_server_honours_it(
    tmp_path: Path, tools: Tools, marked: bool
) -> None:
    spy, tasks = Spy(), Tasks()
    if not marked:
        spy.change["tools/list"] = without_tools
    async with (
        stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        first = await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        await first.result(PATIENCE)
        # As after a purge. What the server makes of the key is the server's: here it gives the first task again.
        spy.refuse["tasks/get"] = always(-32602, "Task not found")
        with pytest.raises(TaskLost):
            await first.status()
        again = await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        assert spy.came["tools/call"] == (2 if marked else 1)
        spy.refuse.clear()
        assert text(await again.result(PATIENCE)) == "Hello, you!"


# -- a key whose task has expired --------------------------------------------------------------------------------------


@dataclass
class Stall:
    """A middleware that keeps the requests of one method until `gate` is open. `came` are how many there are."""

    method: str = ""
    came: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == self.method:
            self.came += 1
            await self.gate.wait()
        return await call_next(ctx)


@asynccontextmanager
async def expired(
    tmp_path: Path, tools: Tools, tasks: Tasks, *middleware: Any
) -> AsyncGenerator[tuple[Client, TaskHandle]]:
    """A client, and the handle of a task that its server has deleted, as the journal knows."""
    async with (
        stage(tmp_path, tools.declare, server={"middleware": [*middleware]}) as up,
        connected(up.client.url, tasks) as client,
    ):
        handle = await begun(tasks, client)
        await handle.result(PATIENCE)
        await up.store.discard([handle.id], tombstone_ms=60_000)
        with pytest.raises(TaskExpired):
            await handle.status()
        yield client, handle


async def begun(tasks: Tasks, client: Client, within: float | None = None) -> TaskHandle:
    return await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine", timeout=within)


async def test_a_call_under_a_key_that_is_free_again_is_unsure_where_its_answer_does_not_come_in_time(
    tmp_path: Path, tools: Tools
) -> None:
    stall, tasks = Stall(), Tasks()
    async with expired(tmp_path, tools, tasks, stall) as (client, dead):
        stall.method = "tools/call"
        while not stall.came:  # on a busy machine the time may be over before the call, of which nothing is left then
            with pytest.raises(Unsure):
                await begun(tasks, client, 1.0)
        with pytest.raises(TaskExpired):
            await dead.status()
        (record,) = tasks.journal.records()
        assert (record.key, record.task_id, record.status) == ("mine", None, None)
        stall.gate.set()
        again = await tasks.resume(client, "mine")
        assert text(await again.result(PATIENCE)) == "Hello, you!"
    assert tools.ran == ["hello", "hello"]


async def test_a_start_that_can_not_find_out_in_time_whether_its_key_is_free_hands_out_no_dead_task(
    tmp_path: Path, tools: Tools
) -> None:
    stall, tasks = Stall(), Tasks()
    async with expired(tmp_path, tools, tasks, stall) as (client, _):
        stall.method = "tools/list"
        with pytest.raises(Unsure):
            await begun(tasks, client, 0.2)
        stall.gate.set()
        assert text(await (await begun(tasks, client)).result(PATIENCE)) == "Hello, you!"


@pytest.mark.parametrize("together", [True, False])
async def test_of_two_that_start_under_a_key_that_is_free_again_both_have_the_new_task(
    tmp_path: Path, tools: Tools, together: bool
) -> None:
    """Together: in one process, with one journal."""
    stall, spy, path = Stall(), Spy(), tmp_path / "journal.db"
    first = Tasks(path)
    second = first if together else Tasks(path)
    async with (
        expired(tmp_path, tools, first, stall, spy) as (client, dead),
        connected(server_of(client), second) as other,
    ):
        stall.method = "tools/list"
        both = [asyncio.create_task(begun(tasks, each)) for tasks, each in ((first, client), (second, other))]
        await eventually(lambda: stall.came == 2, "both ask whether the key is free")
        stall.gate.set()
        one, two = await asyncio.gather(*both)
        assert one.id == two.id != dead.id
        with pytest.raises(TaskExpired):
            await dead.status()
        assert [record.status for record in first.journal.records()] == [None]
        assert text(await two.result(PATIENCE)) == "Hello, you!"
    assert spy.came["tools/call"] == 2
    for tasks in (first, second):
        tasks.journal.close()
