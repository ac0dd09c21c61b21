"""`_meta["dev.perdure/idempotencyKey"]`: a call that is made again finds the task that it made."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client import Client as SDKClient
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolRequestParams, ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from perdure import Limits, Owner, TaskContext, Tasks
from perdure.store.sqlite import SQLiteStore
from perdure.wire import idempotency
from tests.store.support import VirtualClock
from tests.support import eventually
from tests.wire.envelopes import EVERYTHING, INPUT, JSON, NOTHING, TASKS, envelope, headers, meta
from tests.wire.support import Client, Reply, Stage, replica, stage, tasks_on
from tests.wire.tools import FORM, Form, Tools

KEY = "dev.perdure/idempotencyKey"


def keyed(key: JSON = "mine", capabilities: JSON = EVERYTHING, **params: JSON) -> dict[str, Any]:
    """The options of a call with a key."""
    return {"params": {"_meta": {**meta(capabilities), KEY: key}, **params}, "capabilities": capabilities}


def stored(scene: Stage) -> list[str]:
    """The statuses of all tasks that there are."""
    return [row[7] for row in dict(scene.dump())["task"]]


async def test_the_same_call_again_is_the_same_task(scene: Stage, tools: Tools) -> None:
    first = await scene.client.start("gated", **keyed())
    assert await scene.client.start("gated", **keyed()) == first
    assert await scene.client.start("gated", {}, **keyed()) == first
    await tools.entered.wait()
    assert (stored(scene), tools.ran) == (["working"], ["gated"])


async def test_the_handle_says_what_has_become_of_it_whatever_that_is(scene: Stage, tools: Tools) -> None:
    async def again(name: str) -> str:
        return (await scene.client.call(name, **keyed(name))).result["status"]

    for name in ("ask", "gated"):
        await scene.client.start(name, **keyed(name))
    asking = await scene.client.start("ask", **keyed("ask"))
    await scene.client.until(asking, "input_required")
    assert await again("ask") == "input_required"
    await scene.client.update(asking, {"form": FORM})
    await scene.client.until(asking)
    assert await again("ask") == "completed"
    gated = await scene.client.start("gated", **keyed("gated"))
    await scene.client.cancel(gated)
    await scene.client.until(gated, "cancelled")
    assert await again("gated") == "cancelled"
    broken: JSON = {"code": -32050, "message": "out of paper"}
    await scene.client.until(await scene.client.start("broken", broken, **keyed("broken")), "failed")
    assert (await scene.client.call("broken", broken, **keyed("broken"))).result["status"] == "failed"


@pytest.mark.parametrize(
    ("name", "arguments"), [("hello", {"name": "Ada"}), ("hello", {}), ("report", {"size": "large"}), ("gated", None)]
)
async def test_another_call_under_the_same_key_is_refused_and_stores_nothing(
    scene: Stage, name: str, arguments: JSON
) -> None:
    await scene.client.finish("hello", {"name": "you"}, **keyed())
    before = scene.dump()
    for capabilities in (EVERYTHING, NOTHING):
        refused = await scene.client.call(name, arguments, **keyed(capabilities=capabilities))
        assert refused.error == {"code": -32602, "message": "The idempotency key was used before, for another call"}
    assert scene.dump() == before


async def test_arguments_are_equal_as_json_is(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def take(a: Any, b: Any = None) -> str:
            return "taken"

    async with stage(tmp_path, declare) as up:
        first = await up.client.start("take", {"a": {"x": 1, "y": [1, 2]}, "b": None}, **keyed())
        assert await up.client.start("take", {"b": None, "a": {"y": [1, 2], "x": 1}}, **keyed()) == first
        different: list[JSON] = [
            {"a": {"x": 1, "y": [2, 1]}, "b": None},
            {"a": {"x": 1, "y": [1, 2]}},
            {"a": {"x": True, "y": [1, 2]}, "b": None},
            {"a": {"x": "1", "y": [1, 2]}, "b": None},
        ]
        for arguments in different:
            assert (await up.client.call("take", arguments, **keyed())).code == -32602


async def test_two_calls_at_once_are_one_task_whatever_replica_they_reach(scene: Stage, tools: Tools) -> None:
    async with replica(scene) as other:
        # The other replica has no such tool; it is the store that both share.
        calls = [scene.client.start("hello", {"name": "you"}, **keyed()) for _ in range(8)]
        started = await asyncio.gather(*calls)
        assert len(set(started)) == 1
        assert (await other.until(started[0]))["status"] == "completed"
    assert tools.ran == ["hello"]


async def test_a_key_is_its_owners(tmp_path: Path, tools: Tools) -> None:
    owners = iter([Owner("acme", "ada"), Owner("acme", "bob"), Owner("other", "ada"), Owner("acme", "ada")])

    def identify(_: object) -> Owner:
        return next(owners)

    async with stage(tmp_path, tools.declare, identify=identify) as up:
        first, second, third, again = [(await up.client.start("gated", **keyed())) for _ in range(4)]
    assert len({first, second, third}) == 3
    assert again == first


@pytest.mark.parametrize("key", [None, "", 5, True, ["mine"], {"key": "mine"}, "k" * 201])
async def test_what_is_no_key_is_refused_and_the_reason_said(scene: Stage, key: JSON) -> None:
    before = scene.dump()
    refused = await scene.client.call("hello", {"name": "you"}, **keyed(key))
    assert refused.error == {
        "code": -32602,
        "message": f"{KEY} must be a string of 1 to 200 characters (idempotency_key)",
    }
    assert scene.dump() == before


@pytest.mark.parametrize("key", ["k" * 200, " ", "😀" * 200, "a\tb", "'; DROP TABLE task --"])
async def test_any_other_text_is_one(scene: Stage, key: str) -> None:
    first = await scene.client.start("hello", {"name": "you"}, **keyed(key))
    assert await scene.client.start("hello", {"name": "you"}, **keyed(key)) == first
    assert await scene.client.start("hello", {"name": "you"}, **keyed(key[:-1] + "!")) != first


async def test_how_long_it_may_be_is_a_limit(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare, limits=Limits(idempotency_key=3)) as up:
        await up.client.start("hello", {"name": "you"}, **keyed("abc"))
        refused = await up.client.call("hello", {"name": "you"}, **keyed("abcd"))
        assert refused.error["message"].endswith("1 to 3 characters (idempotency_key)")


@pytest.mark.parametrize("key", ["\ud800", "\0"], ids=["surrogate", "null"])
def test_a_key_that_no_store_takes_is_refused(key: str) -> None:
    """The middleware sees to the first where a request is of the modern era; this is for the others."""
    params = CallToolRequestParams.model_validate({"name": "hello", "_meta": {KEY: key}})
    with pytest.raises(Exception, match="can't be stored"):
        idempotency.read(params, Limits())


async def test_nothing_else_of_the_request_meta_is_stored_and_none_of_it_makes_a_difference(scene: Stage) -> None:
    options = keyed("mine")
    options["params"]["_meta"] |= {"com.example/secret": "sesame", "progressToken": "open"}
    first = await scene.client.start("hello", {"name": "you"}, **options)
    assert await scene.client.start("hello", {"name": "you"}, **keyed("mine")) == first
    assert "sesame" not in json.dumps(scene.dump())


async def test_a_tool_that_must_be_a_task_is_refused_to_who_knows_none_also_if_there_is_one(scene: Stage) -> None:
    await scene.client.finish("must", **keyed())
    assert (await scene.client.call("must", **keyed(capabilities=INPUT))).required == TASKS


async def test_a_key_is_free_again_once_its_task_is_purged(tmp_path: Path, tools: Tools) -> None:
    def declare(tasks: Tasks) -> None:
        tasks.tool(ttl="10s")(tools.hello)

    clock = VirtualClock()
    async with stage(tmp_path, declare, clock=clock, worker=False, linger="1s") as up:
        first = await up.client.start("hello", {"name": "you"}, **keyed())
        clock.advance(10_000)
        await up.store.expire(10)
        assert (await up.client.call("hello", {"name": "you"}, **keyed())).result["status"] == "failed"
        clock.advance(1_000)
        assert await up.store.purge(10, linger_ms=1_000, tombstone_ms=60_000) == 1
        assert await up.client.start("hello", {"name": "you"}, **keyed()) != first


# -- before there is a task --------------------------------------------------------------------------------------------


def prepared(tools: Tools) -> Callable[[Tasks], None]:
    """A tool whose `prepare` asks something."""
    question = ElicitRequest(params=ElicitRequestFormParams(message="Sure?", requested_schema=Form.model_json_schema()))

    async def prepare(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        tools.ran.append("prepare")
        if ctx.input_responses:
            return "sure"
        return InputRequiredResult(input_requests={"sure": question}, request_state="asked")

    async def tool(task: TaskContext) -> str:
        return task.prepared

    return lambda tasks: tasks.tool(prepare=prepare)(tool) and None


async def test_all_rounds_of_a_call_carry_its_key_and_once_there_is_a_task_nothing_is_asked_again(
    tmp_path: Path, tools: Tools
) -> None:
    async with stage(tmp_path, prepared(tools)) as up:
        asked = (await up.client.call("tool", **keyed())).result
        assert asked["resultType"] == "input_required"
        retry = keyed(requestState=asked["requestState"], inputResponses={"sure": FORM})
        first = await up.client.start("tool", **retry)
        assert tools.ran == ["prepare", "prepare"]
        assert await up.client.start("tool", **retry) == first
        assert await up.client.start("tool", **keyed()) == first
        assert tools.ran == ["prepare", "prepare"]


# -- a client that knows no tasks --------------------------------------------------------------------------------------


async def inline(client: Client, name: str, **params: JSON) -> Reply:
    return await client.call(name, **keyed(capabilities=INPUT, **params))


async def hang_up(scene: Stage, name: str, until: Callable[[], Awaitable[object]]) -> None:
    params: JSON = {"name": name, "arguments": {}, "_meta": {**meta(INPUT), KEY: "mine"}}
    body = envelope("tools/call", params, capabilities=INPUT)
    call = asyncio.create_task(scene.http.post(scene.client.url, json=body, headers=headers(body)))
    await until()
    call.cancel()
    await asyncio.wait([call])


async def test_the_same_call_again_waits_for_the_same_task(scene: Stage, tools: Tools) -> None:
    calls = [asyncio.create_task(inline(scene.client, "gated")) for _ in range(3)]
    await tools.entered.wait()
    tools.gate.set()
    assert [(await call).text for call in calls] == ["through"] * 3
    assert (await inline(scene.client, "gated")).text == "through"
    assert (stored(scene), tools.ran) == (["completed"], ["gated"])


async def test_work_with_a_key_goes_on_when_its_client_hangs_up_and_is_there_when_it_comes_back(
    scene: Stage, tools: Tools
) -> None:
    await hang_up(scene, "gated", tools.entered.wait)
    tools.gate.set()
    assert (await inline(scene.client, "gated")).text == "through"
    assert (tools.ran, tools.ended) == (["gated"], ["returned"])


async def test_past_the_deadline_it_goes_on_as_well_and_the_client_hears_how_to_wait_on(
    tmp_path: Path, tools: Tools
) -> None:
    async with stage(tmp_path, tools.declare, inline_timeout="300ms") as up:
        for _ in range(2):
            late = await inline(up.client, "gated")
            assert late.required == TASKS
            assert late.error["message"].endswith("make the same call again, with the same idempotency key")
        tools.gate.set()
        await eventually(lambda: stored(up) == ["completed"], "it was stopped")
        assert (await inline(up.client, "gated")).text == "through"
        assert tools.ran == ["gated"]


async def test_a_question_is_asked_again_and_its_state_is_good_without_the_key(scene: Stage, tools: Tools) -> None:
    first = (await inline(scene.client, "ask")).result
    again = (await inline(scene.client, "ask")).result
    assert list(first["inputRequests"]) == list(again["inputRequests"]) == ["form"]
    params: JSON = {"requestState": again["requestState"], "inputResponses": {"form": FORM}}
    assert (await scene.client.call("ask", params=params, capabilities=INPUT)).text == "accept True"
    assert (await inline(scene.client, "ask")).text == "accept True"
    assert (stored(scene), tools.ran) == (["completed"], ["ask", "ask"])


async def test_a_retry_without_the_key_does_not_end_the_work_either(tmp_path: Path, tools: Tools) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def ask_and_wait(task: TaskContext) -> str:
            await task.elicit("form", "All right?", Form)
            return await tools.gated()

    async with stage(tmp_path, declare, inline_timeout="500ms") as up:
        # On a busy machine it may take longer than that to come to its question, so the first answer does not matter.
        await inline(up.client, "ask_and_wait")
        await eventually(lambda: stored(up) == ["input_required"], "it asks nothing")
        first = (await inline(up.client, "ask_and_wait")).result
        params: JSON = {"requestState": first["requestState"], "inputResponses": {"form": FORM}}
        late = await up.client.call("ask_and_wait", params=params, capabilities=INPUT)
        assert late.required == TASKS
        tools.gate.set()
        await eventually(lambda: stored(up) == ["completed"], "it was stopped")
        assert (await inline(up.client, "ask_and_wait")).text == "through"
        assert tools.ended == ["returned"]


async def test_a_task_that_ended_badly_is_what_the_next_call_hears_too(scene: Stage) -> None:
    gated = await scene.client.start("gated", **keyed("gone"))
    await scene.client.cancel(gated)
    await scene.client.until(gated, "cancelled")
    for _ in range(2):
        refused = await scene.client.call("gated", **keyed("gone", NOTHING))
        assert (refused.code, refused.error["message"]) == (-32603, "The call was cancelled")


async def test_a_client_that_learned_of_tasks_meanwhile_gets_the_handle(scene: Stage, tools: Tools) -> None:
    await hang_up(scene, "gated", tools.entered.wait)
    handle = (await scene.client.call("gated", **keyed())).result
    assert (handle["resultType"], handle["status"], handle["ttlMs"]) == ("task", "working", 3_600_000)
    tools.gate.set()
    await scene.client.until(handle["taskId"], "completed")


async def test_without_a_key_everything_is_as_it_was(scene: Stage, tools: Tools) -> None:
    body = envelope("tools/call", {"name": "gated", "arguments": {}}, capabilities=NOTHING)
    call = asyncio.create_task(scene.http.post(scene.client.url, json=body, headers=headers(body)))
    await tools.entered.wait()
    call.cancel()
    await asyncio.wait([call])
    await eventually(lambda: stored(scene) == ["cancelled"], "the work went on")


# -- a full house ------------------------------------------------------------------------------------------------------


def full(message: str) -> JSON:
    return {"code": -32000, "message": message, "data": {"retryAfterMs": 5000}}


FULL: Final = "Too many tasks are waiting already: {} is the limit for all (backlog)"
FULL_TENANT: Final = "Too many tasks of this tenant are waiting already: 1 is the limit (tenant_backlog)"


@pytest.mark.parametrize("capabilities", [EVERYTHING, NOTHING])
async def test_past_the_backlog_a_call_is_refused_before_anything_is_stored(
    tmp_path: Path, tools: Tools, capabilities: JSON
) -> None:
    async with stage(tmp_path, tools.declare, worker=False, backlog=2) as up:
        for _ in range(2):
            await up.client.start("gated")
        before = up.dump()
        assert (await up.client.call("gated", capabilities=capabilities)).error == full(FULL.format(2))
        assert up.dump() == before
        # What was wrong with a call is said all the same.
        assert (await up.client.call("hello", {}, capabilities=capabilities)).result["isError"] is True


async def test_a_task_that_there_is_is_found_also_then(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare, worker=False, backlog=1) as up:
        first = await up.client.start("gated", **keyed())
        assert (await up.client.call("gated")).error == full(FULL.format(1))
        assert await up.client.start("gated", **keyed()) == first


async def test_one_tenant_does_not_take_the_room_of_another(tmp_path: Path, tools: Tools) -> None:
    tenants = iter(["acme", "acme", "other"])

    def identify(_: object) -> Owner:
        return Owner(next(tenants), "ada")

    async with stage(tmp_path, tools.declare, worker=False, tenant_backlog=1, identify=identify) as up:
        await up.client.start("gated")
        assert (await up.client.call("gated")).error == full(FULL_TENANT)
        await up.client.start("gated")


# -- what is said of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [EVERYTHING, NOTHING])
async def test_discovery_says_that_keys_are_honoured_beside_the_tasks_extension(
    scene: Stage, capabilities: JSON
) -> None:
    found = (await scene.client.request("server/discover", capabilities=capabilities)).result
    assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}, "dev.perdure/idempotency": {}}


async def test_an_sdk_client_reads_it(scene: Stage) -> None:
    async with SDKClient(scene.client.url) as over_http, SDKClient(scene.mcp) as in_process:
        for client in (over_http, in_process):
            assert (client.server_capabilities.extensions or {})["dev.perdure/idempotency"] == {}


async def test_each_task_tool_is_listed_as_honouring_keys_beside_what_its_author_says_of_it(tmp_path: Path) -> None:
    """Not so an ordinary tool of the same server, which knows no keys. Both ways to put a server together."""

    def declare(tasks: Tasks) -> None:
        @tasks.tool(meta={"com.example/price": 1})
        async def priced() -> str:
            return ""

        @tasks.tool()
        async def free() -> str:
            return ""

    made = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    by_hand = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'others.db'}"))
    for tasks in (made, by_hand):
        declare(tasks)
    wired: MCPServer[Any] = MCPServer("by hand", extensions=[by_hand], middleware=[by_hand.middleware])
    for mcp in (made.server("made"), wired):
        mcp.tool(name="plain")(lambda: "")
        listed = {tool.name: tool.meta for tool in await mcp.list_tools()}
        mark: JSON = {"dev.perdure/idempotency": {}}
        assert listed == {"priced": {"com.example/price": 1, **mark}, "free": mark, "plain": None}
