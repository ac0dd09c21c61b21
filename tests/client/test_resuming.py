"""Coming back: to a task, to a call whose answer was lost, to a server that was restarted. Nothing is called twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData

from perdure import Tasks as ServerTasks
from perdure.client import HTTP, InputDeclined, Journal, TaskHandle, Tasks, Unsure, server_of
from tests.acceptance.support import CRASH_SERVER, attended, start
from tests.client.spy import Spy
from tests.client.support import YES, Person, connected, text
from tests.relay import Relay
from tests.support import PATIENCE
from tests.wire.support import Stage, stage
from tests.wire.test_idempotency import prepared
from tests.wire.tools import Tools

CALL = "tools/call"


def without_keys(answer: dict[str, Any]) -> dict[str, Any]:
    capabilities = answer["capabilities"]
    extensions = {"io.modelcontextprotocol/tasks": capabilities["extensions"]["io.modelcontextprotocol/tasks"]}
    return {**answer, "capabilities": {**capabilities, "extensions": extensions}}


@asynccontextmanager
async def spied_on(tmp_path: Path, tools: Tools, spy: Spy) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, tools.declare, server={"middleware": [spy]}) as up:
        yield up


def lost(times: int) -> Any:
    """Answers of a call that its server gave, and that never arrived."""
    left = [times]

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        left[0] -= 1
        if left[0] >= 0:
            raise MCPError(-32001, "Request 'tools/call' timed out")
        return answer

    return change


def after(times: int, error: Callable[[], MCPError]) -> Any:
    """One call is refused, once there were so many."""
    left = [times]

    def refuse(_: dict[str, Any]) -> MCPError | None:
        left[0] -= 1
        return error() if left[0] == -1 else None

    return refuse


async def test_a_task_is_waited_for_again_and_not_called_again(tmp_path: Path, tools: Tools) -> None:
    spy, path = Spy(), tmp_path / "journal.db"
    async with spied_on(tmp_path, tools, spy) as up:
        before = Tasks(path)
        async with connected(up.client.url, before) as client:
            handle = await before.start(client, "gated", idempotency_key="mine")
        before.journal.close()
        tools.gate.set()
        tasks = Tasks(path)
        async with connected(up.client.url, tasks) as client:
            resumed = await tasks.resume_all(client)
            assert ([each.id for each in resumed.handles], resumed.unsure) == ([handle.id], ())
            assert text(await resumed.handles[0].result(PATIENCE)) == "through"
            assert (await tasks.resume_all(client)).handles == ()
            for known in (handle.id, "mine"):
                again = await tasks.resume(client, known)
                assert (again.tool, text(await again.result(PATIENCE))) == ("gated", "through")
            assert (await tasks.start(client, "gated", idempotency_key="mine")).id == handle.id
        tasks.journal.close()
    assert spy.came[CALL] == 1


async def test_a_task_of_call_tool_is_on_record_too(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks(tmp_path / "journal.db", timeout=0.2)
    async with spied_on(tmp_path, tools, Spy()) as up, connected(up.client.url, tasks) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("gated")
        (record,) = tasks.journal.records()
        tools.gate.set()
        assert record.task_id is not None
        handle = await tasks.resume(client, record.task_id)
        assert (handle.tool, text(await handle.result(PATIENCE))) == ("gated", "through")
    tasks.journal.close()


async def test_a_call_whose_answer_was_lost_is_made_again_where_the_server_honours_its_key(
    tmp_path: Path, tools: Tools
) -> None:
    spy = Spy(change={CALL: lost(2)})
    tasks = Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        handle = await tasks.start(client, "hello", {"name": "you"})
        assert text(await handle.result(PATIENCE)) == "Hello, you!"
        assert len(dict(up.dump())["task"]) == 1
    assert (spy.came[CALL], tools.ran) == (3, ["hello"])


async def test_a_server_that_is_full_when_a_lost_call_is_made_again_is_waited_for_and_the_key_stays(
    tmp_path: Path, tools: Tools
) -> None:
    """Another key would be another task."""
    full = after(1, lambda: MCPError(-32000, "full", {"retryAfterMs": 10}))
    spy, tasks = Spy(change={CALL: lost(1)}, refuse={CALL: full}), Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        handle = await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        assert text(await handle.result(PATIENCE)) == "Hello, you!"
        assert len(dict(up.dump())["task"]) == 1
    assert (spy.came[CALL], tools.ran) == (3, ["hello"])


@pytest.mark.parametrize("resumed", [True, False])
async def test_a_refusal_of_the_second_try_says_nothing_of_the_first_one(
    tmp_path: Path, tools: Tools, resumed: bool
) -> None:
    refused = after(1, lambda: MCPError(-32603, "Internal error"))
    keys = "server/discover" if resumed else "none"
    spy, tasks = Spy(change={CALL: lost(1), keys: without_keys}, refuse={CALL: refused}), Tasks()
    async with spied_on(tmp_path, tools, spy) as up:
        if resumed:
            async with connected(up.client.url, tasks) as client:
                with pytest.raises(Unsure):
                    await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
            spy.change.clear()
        async with connected(up.client.url, tasks) as client:
            with pytest.raises(Unsure, match="Internal error"):
                await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
            (record,) = tasks.journal.records()
            assert (record.key, record.task_id) == ("mine", None)
            assert text(await (await tasks.resume(client, "mine")).result(PATIENCE)) == "Hello, you!"
    assert tools.ran == ["hello"]


async def test_an_answer_that_is_none_of_the_protocol_says_nothing_of_the_call(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(change={CALL: lambda _: {"resultType": "task"}}), Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        with pytest.raises(Unsure, match="a task that is none"):
            await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        spy.change.clear()
        assert text(await (await tasks.resume(client, "mine")).result(PATIENCE)) == "Hello, you!"
    assert tools.ran == ["hello"]


async def test_elsewhere_nobody_knows_and_nothing_is_called_again(tmp_path: Path, tools: Tools) -> None:
    spy = Spy(change={CALL: lost(1), "server/discover": without_keys})
    tasks = Tasks()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        with pytest.raises(Unsure, match="hello") as unsure:
            await tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        record = unsure.value.record
        assert (record.tool, record.key, record.arguments) == ("hello", "mine", {"name": "you"})
        once_more = tasks.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        for again in (tasks.resume(client, "mine"), once_more):
            with pytest.raises(Unsure):
                await again
        resumed = await tasks.resume_all(client)
        assert ([each.record.key for each in resumed.unsure], resumed.handles) == (["mine"], ())
        assert tasks.journal.forget(record)
        assert await tasks.resume_all(client) == type(resumed)((), ())
    assert spy.came[CALL] == 1


async def test_a_call_that_another_process_is_just_making_is_left_to_it(tmp_path: Path, tools: Tools) -> None:
    path = tmp_path / "journal.db"
    tasks, other = Tasks(path), Journal(path)
    async with spied_on(tmp_path, tools, Spy()) as up, connected(up.client.url, tasks) as client:
        other.intend(server_of(client), "hello", "theirs", {"name": "you"})
        assert (await tasks.resume_all(client)).handles == ()
        other.close()
        (handle,) = (await tasks.resume_all(client)).handles
        assert text(await handle.result(PATIENCE)) == "Hello, you!"
    tasks.journal.close()


@pytest.mark.parametrize("how", ["by its key", "by a start", "in this process"])
async def test_who_comes_to_a_call_that_is_just_being_made_gets_what_comes_of_it(
    tmp_path: Path, tools: Tools, how: str
) -> None:
    spy, path = Spy(), tmp_path / "journal.db"
    stalled, come = anyio.Event(), anyio.Event()

    async def stall(ctx: Any, call_next: Any) -> Any:
        answer = await spy(ctx, call_next)
        if ctx.method == CALL:
            come.set()
            await stalled.wait()
        return answer

    first = Tasks(path)
    second = Tasks(first.journal if how == "in this process" else path)
    async with (
        stage(tmp_path, tools.declare, server={"middleware": [stall]}) as up,
        connected(up.client.url, first) as client,
        connected(up.client.url, second) as other,
    ):
        making = asyncio.create_task(first.start(client, "hello", {"name": "you"}, idempotency_key="mine"))
        await come.wait()

        async def again(seconds: float) -> TaskHandle:
            if how == "by a start":
                return await second.start(other, "hello", {"name": "you"}, idempotency_key="mine", timeout=seconds)
            return await second.resume(other, "mine", timeout=seconds)

        with pytest.raises(Unsure):
            await again(0.1)
        stalled.set()
        assert (await again(PATIENCE)).id == (await making).id
    assert spy.came[CALL] == 1
    for tasks in (first, second):
        tasks.journal.close()


async def test_a_call_that_was_given_up_is_free_for_others_though_its_process_lives(
    tmp_path: Path, tools: Tools
) -> None:
    spy, path = Spy(change={CALL: lost(1), "server/discover": without_keys}), tmp_path / "journal.db"
    first, second = Tasks(path), Tasks(path)
    async with spied_on(tmp_path, tools, spy) as up:
        async with connected(up.client.url, first) as client:
            with pytest.raises(Unsure):
                await first.start(client, "hello", {"name": "you"}, idempotency_key="mine")
        spy.change.clear()
        async with connected(up.client.url, second) as client:
            handle = await second.resume(client, "mine", timeout=PATIENCE)
            assert text(await handle.result(PATIENCE)) == "Hello, you!"
    for tasks in (first, second):
        tasks.journal.close()


async def test_a_call_that_stalls_or_fails_keeps_nobody_from_the_tasks_that_are_known(
    tmp_path: Path, tools: Tools
) -> None:
    spy, tasks = Spy(), Tasks()
    person = Person(**{"Sure?": ErrorData(code=-1, message="nobody is here")})

    def declare(server: ServerTasks) -> None:
        tools.declare(server)
        prepared(tools)(server)

    async with (
        stage(tmp_path, declare, server={"middleware": [spy]}) as up,
        connected(up.client.url, tasks, person) as client,
    ):
        for tool, key in (("hello", "stalls"), ("tool", "declines")):
            tasks.journal.let_go(tasks.journal.intend(server_of(client), tool, key, {"name": "you"})[0])
        handle = await tasks.start(client, "gated")
        spy.refuse[CALL] = lambda params: (
            MCPError(-32001, "Request 'tools/call' timed out") if params["name"] == "hello" else None
        )
        for seconds in (1.0, 5.0):
            there = await tasks.resume_all(client, timeout=seconds)
            if there.refused:  # else the machine was too busy to get so far beside the one that stalls
                break
    assert [each.id for each in there.handles] == [handle.id]
    assert [each.record.key for each in there.unsure] == ["stalls"]
    ((record, error),) = there.refused
    assert (record.key, isinstance(error, InputDeclined)) == ("declines", True)


async def test_tasks_of_call_tool_alone_are_found_by_resume_all(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks(timeout=0.2)
    async with spied_on(tmp_path, tools, Spy()) as up:
        async with connected(up.client.url, tasks) as client:
            with pytest.raises(TimeoutError):
                await client.call_tool("gated")
        tools.gate.set()
        async with connected(up.client.url, tasks) as client:
            (handle,) = (await tasks.resume_all(client)).handles
            assert text(await handle.result(PATIENCE)) == "through"


async def test_a_result_that_has_come_is_not_lost_to_a_full_disk(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks(tmp_path / "journal.db")
    db = vars(tasks.journal)["_db"]

    def full(answer: dict[str, Any]) -> dict[str, Any]:
        db.execute("PRAGMA query_only = ON")
        return answer

    spy = Spy(change={CALL: full})
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        handle = await tasks.start(client, "sized", {"n": 1})
        assert text(await handle.result()) == "1"
        db.execute("PRAGMA query_only = OFF")

        def refuse(_: dict[str, Any]) -> MCPError:
            full({})
            return MCPError(-32602, "no")

        spy.refuse[CALL] = refuse
        with pytest.raises(MCPError, match="no"):
            await tasks.start(client, "sized", {"n": 1})
    tasks.journal.close()


async def test_a_server_that_stalls_does_not_hold_up_a_start_for_longer_than_its_time(
    tmp_path: Path, tools: Tools
) -> None:
    tasks = Tasks(request_timeout=0.2)
    async with spied_on(tmp_path, tools, Spy()) as up:
        port = int(up.client.url.split(":")[2].split("/")[0])
        async with Relay("127.0.0.1", port) as relay, connected(f"http://127.0.0.1:{relay.port}/mcp", tasks) as client:
            relay.hold()
            with pytest.raises(Unsure):
                await tasks.start(client, "hello", {"name": "you"}, timeout=0.5, idempotency_key="mine")
    (record,) = tasks.journal.records()
    assert (record.key, record.task_id) == ("mine", None)


@pytest.mark.parametrize("by_call", [True, False])
async def test_a_handle_that_the_journal_does_not_take_is_not_thrown_away(
    tmp_path: Path, tools: Tools, by_call: bool
) -> None:
    """The disk may be full just when the answer comes."""
    tasks = Tasks(tmp_path / "journal.db")

    def full(answer: dict[str, Any]) -> dict[str, Any]:
        vars(tasks.journal)["_db"].execute("PRAGMA query_only = ON")
        return answer

    async with (
        spied_on(tmp_path, tools, Spy(change={CALL: full})) as up,
        connected(up.client.url, tasks, Person()) as client,
    ):
        if by_call:
            assert text(await client.call_tool("ask")) == "accept True"
        else:
            handle = await tasks.start(client, "ask", idempotency_key="mine")
            assert text(await handle.result(PATIENCE)) == "accept True"
            vars(tasks.journal)["_db"].execute("PRAGMA query_only = OFF")
            assert (await tasks.resume(client, "mine")).id == handle.id
    tasks.journal.close()


# -- questions before there is a task ----------------------------------------------------------------------------------


async def test_a_question_before_there_is_a_task_goes_to_the_callback_and_is_not_asked_again_after_a_crash(
    tmp_path: Path, tools: Tools
) -> None:
    stalled, reached, gate = [True], list[bool](), anyio.Event()

    async def stall(ctx: Any, call_next: Any) -> Any:
        if ctx.method == CALL and "requestState" in ctx.params and stalled[0]:
            reached.append(True)
            await gate.wait()
        return await call_next(ctx)

    person, tasks = Person(**{"Sure?": YES}), Tasks()
    async with (
        stage(tmp_path, prepared(tools), server={"middleware": [stall]}) as up,
        connected(up.client.url, tasks, person) as client,
    ):
        for seconds in (0.5, 5.0):
            with pytest.raises(Unsure):
                await tasks.start(client, "tool", idempotency_key="mine", timeout=seconds)
            if reached:  # else the machine was too busy to get so far
                break
        assert person.asked == ["Sure?"]
        stalled[0] = False
        handle = await tasks.resume(client, "mine")
        assert text(await handle.result(PATIENCE)) == "sure"
        assert person.asked == ["Sure?"]
        gate.set()


async def test_a_question_before_there_is_a_task_may_stay_without_an_answer(tmp_path: Path, tools: Tools) -> None:
    person, tasks = Person(**{"Sure?": ErrorData(code=-1, message="nobody is here")}), Tasks()
    async with stage(tmp_path, prepared(tools)) as up, connected(up.client.url, tasks, person) as client:
        with pytest.raises(InputDeclined, match="nobody is here"):
            await tasks.start(client, "tool")
    assert tasks.journal.records() == []


# -- servers that come and go ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("listen", [True, False])
async def test_a_wait_outlives_a_server_that_is_killed_and_comes_back(tmp_path: Path, listen: bool) -> None:
    tasks, gate = Tasks(listen=listen), tmp_path / "gate"
    server = await start(CRASH_SERVER, tmp_path)
    await server.listening()
    async with connected(f"http://127.0.0.1:{server.port}/mcp", tasks) as client:
        handle = await tasks.start(client, "waiting", {"label": "wait", "gate": str(gate)})
        wait = asyncio.create_task(handle.result(PATIENCE))
        assert (await handle.status()).status == "working"
        await server.kill()
        await anyio.Path(gate).touch()
        async with attended(await start(CRASH_SERVER, tmp_path, port=server.port)):
            result = await wait
    assert result.structured_content is not None
    assert len(result.structured_content["token"]) == 16


async def test_a_server_is_known_by_its_url_without_secrets_or_by_its_command_or_by_its_name(
    scene: Stage,
) -> None:
    for server, name in (
        ("https://ada:secret@example.com/mcp?key=sesame#y", "https://example.com/mcp"),
        ("https://example.com?key=a/b@c", "https://example.com"),
        (HTTP("http://127.0.0.1:8000/mcp"), "http://127.0.0.1:8000/mcp"),
        (StdioServerParameters(command="python", args=["my server.py"]), "stdio:python 'my server.py'"),
    ):
        assert server_of(Client(server)) == name
    async with Client(scene.mcp, extensions=[Tasks()]) as client:
        assert server_of(client) == "name:wire"
