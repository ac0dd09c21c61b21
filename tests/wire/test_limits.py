"""Every limit, at its edge: what is just within goes through, and one more does not.

`EDGES` has an entry for each bound that a user can set, and a test that it has.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from perdure import Elicit, Limits, Owner, TaskContext, Tasks
from perdure.domain import ids
from perdure.engine.pace import Pace
from perdure.store.codec import encode
from tests.wire.envelopes import EVERYTHING, meta
from tests.wire.listening import listen_request, listening
from tests.wire.support import Reply, Stage, stage

# -- what is called ----------------------------------------------------------------------------------------------------


class Name(BaseModel):
    name: str


async def echo(text: str) -> str:
    return text


async def nested(value: Any) -> str:
    return "deep"


async def stepping(names: list[str], sizes: list[int], task: TaskContext) -> str:
    """Steps of these names, whose results take so many bytes as JSON."""
    for name, size in zip(names, sizes, strict=True):
        await task.step(name, lambda size=size: "x" * (size - 2))
    return "stepped"


async def asking(questions: int, message: str, task: TaskContext) -> str:
    await task.ask({f"q{number}": Elicit(message, Name) for number in range(questions)})
    return "answered"


async def asking_under(key: str, task: TaskContext) -> str:
    await task.elicit(key, "Who?", Name)
    return "answered"


async def telling(message: str, task: TaskContext) -> str:
    await task.report(message)
    await task.elicit("go", "Go on?", Name)
    return "told"


def declare(tasks: Tasks) -> None:
    for tool in (echo, nested, stepping, asking, asking_under, telling):
        tasks.tool()(tool)


# -- what comes of it --------------------------------------------------------------------------------------------------


def said(reply: Reply) -> str | None:
    """What a request was refused with; None if it was not."""
    return reply.body.get("error", {}).get("message")


async def ended(scene: Stage, tool: str, arguments: Any) -> str | None:
    """What the task's tool error says; None if there is none."""
    result = (await scene.client.finish(tool, arguments))["result"]
    return result["content"][0]["text"] if result.get("isError") else None


async def waits(scene: Stage, tool: str, arguments: Any) -> str | None:
    """The same of a tool that asks something if nothing is wrong."""
    task = await scene.client.until(await scene.client.start(tool, arguments), "input_required", "completed")
    return None if task["status"] == "input_required" else task["result"]["content"][0]["text"]


# -- the edges ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edge:
    """`go` goes to the edge, and `past` it by one: what it is refused with, or None. `words` belong to a refusal."""

    go: Callable[[Stage, int], Awaitable[str | None]]
    words: str
    limits: Limits | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])


async def arguments(scene: Stage, past: int) -> str | None:
    return said(await scene.client.call("echo", {"text": "x" * (100 - len('{"text":""}') + past)}))


async def step_name(scene: Stage, past: int) -> str | None:
    return await ended(scene, "stepping", {"names": ["x" * (5 + past)], "sizes": [10]})


async def entries(scene: Stage, past: int) -> str | None:
    return await ended(scene, "stepping", {"names": ["s"] * (3 + past), "sizes": [10] * (3 + past)})


async def step_result(scene: Stage, past: int) -> str | None:
    return await ended(scene, "stepping", {"names": ["s"], "sizes": [100 + past]})


async def journal(scene: Stage, past: int) -> str | None:
    return await ended(scene, "stepping", {"names": ["s"] * 3, "sizes": [100, 100, 100 + past]})


async def questions(scene: Stage, past: int) -> str | None:
    return await waits(scene, "asking", {"questions": 2 + past, "message": "Who?"})


async def question_key(scene: Stage, past: int) -> str | None:
    return await waits(scene, "asking_under", {"key": "😀" * (5 + past)})


QUESTION = len(encode(Elicit("", Name).request()))


async def question(scene: Stage, past: int) -> str | None:
    return await waits(scene, "asking", {"questions": 1, "message": "x" * (20 + past)})


ANSWER = len('{"action":"accept","content":{"name":""}}')


async def answer(scene: Stage, past: int) -> str | None:
    task_id = await scene.client.start("asking", {"questions": 1, "message": "Who?"})
    await scene.client.until(task_id, "input_required")
    response = {"action": "accept", "content": {"name": "x" * (20 + past)}}
    return said(await scene.client.update(task_id, {"q0": response}))


async def answer_values(scene: Stage, past: int) -> str | None:
    """The response, its two members, those of its content: five, and perhaps another."""
    task_id = await scene.client.start("asking", {"questions": 1, "message": "Who?"})
    await scene.client.until(task_id, "input_required")
    content = {"name": "x"} | {f"more{number}": 1 for number in range(1 + past)}
    return said(await scene.client.update(task_id, {"q0": {"action": "accept", "content": content}}))


async def message(scene: Stage, past: int) -> str | None:
    task_id = await scene.client.start("telling", {"message": "x" * (10 + past)})
    shown = (await scene.client.until(task_id, "input_required"))["statusMessage"]
    assert len(shown) == 10
    return None if shown == "x" * 10 else shown


RESULT = len(
    CallToolResult(content=[TextContent(text="")], structured_content={"result": ""}).model_dump_json(
        by_alias=True, exclude_none=True
    )
)


async def result(scene: Stage, past: int) -> str | None:
    # It is there twice, as text and as structured content.
    return await ended(scene, "echo", {"text": "x" * (20 + past)})


async def idempotency_key(scene: Stage, past: int) -> str | None:
    declared = {**meta(EVERYTHING), "dev.perdure/idempotencyKey": "k" * (5 + past)}
    return said(await scene.client.call("echo", {"text": "x"}, params={"_meta": declared}))


async def depth(scene: Stage, past: int) -> str | None:
    value: Any = 0
    for _ in range(10 - 2 + past):  # within the parameters, and the arguments in those
        value = [value]
    return said(await scene.client.call("nested", {"value": value}))


def held(value: Any) -> int:
    """The members and items of a value, at all levels."""
    if not isinstance(value, (dict, list)):
        return 0
    within: list[Any] = [*value.values()] if isinstance(value, dict) else [*value]
    return len(within) + sum(map(held, within))


async def values(scene: Stage, past: int) -> str | None:
    params: dict[str, Any] = {"name": "nested", "arguments": {"value": []}}
    there = held(params | {"_meta": meta(EVERYTHING)})
    return said(await scene.client.call("nested", {"value": [0] * (100 - there + past)}))


async def tasks_per_subscription(scene: Stage, past: int) -> str | None:
    tasks = [await scene.client.start("asking", {"questions": 1, "message": "Who?"}) for _ in range(2 + past)]
    return await listens(scene, tasks)


async def listens(scene: Stage, tasks: list[str]) -> str | None:
    """What one more stream for these is refused with."""
    async with AsyncExitStack() as stack:
        reply = await stack.enter_async_context(scene.client.streaming(listen_request(tasks)))
        if "json" in reply.headers["content-type"]:
            await reply.aread()
            return reply.json()["error"]["message"]
    return None


async def request_body(scene: Stage, past: int) -> str | None:
    padding = 2000 + past
    reply = await scene.client.post(b" " * padding, [("content-type", "application/json")])
    return reply.raw.decode() if reply.status == 413 else None


async def polls_per_second(scene: Stage, past: int) -> str | None:
    runtime = scene.tasks.assembly.runtime
    runtime.pace = Pace(lambda: runtime.options, clock=lambda: 0.0)
    task_id = await scene.client.start("asking", {"questions": 1, "message": "Who?"})
    for _ in range(10 + past - 1):
        assert said(await scene.client.get(task_id)) is None
    return said(await scene.client.get(task_id))


async def owner_polls(scene: Stage, past: int) -> str | None:
    """So many at once, each of another id."""
    runtime = scene.tasks.assembly.runtime
    runtime.pace = Pace(lambda: runtime.options, clock=lambda: 0.0)
    for _ in range(10 + past - 1):
        assert said(await scene.client.get(ids.mint(secrets.token_bytes))) == "Task not found"
    found = said(await scene.client.get(ids.mint(secrets.token_bytes)))
    return None if found == "Task not found" else found


async def calls(scene: Stage, past: int) -> str | None:
    """Two calls, and perhaps another."""
    replies = [await scene.client.call("echo", {"text": "x"}) for _ in range(2 + past)]
    assert [said(reply) for reply in replies[:2]] == [None, None]
    return said(replies[-1])


async def streams(scene: Stage, past: int) -> str | None:
    """Two streams, and perhaps another."""
    task_id = await scene.client.start("echo", {"text": "x"})
    async with AsyncExitStack() as stack:
        for number in range(1 + past):
            stream = await stack.enter_async_context(listening(scene.client, task_id, id=number))
            await stream.begun()
        return await listens(scene, [task_id])


async def polls(scene: Stage, past: int) -> str | None:
    """So many in one second; then a client is told to come back later than the tool says."""
    runtime, time = scene.tasks.assembly.runtime, [0.0]
    runtime.pace = Pace(lambda: runtime.options, clock=lambda: time[0])
    tasks = [await scene.client.start("echo", {"text": "x"}) for _ in range(4 + past)]
    for task_id in tasks[1:]:
        await scene.client.get(task_id)
    time[0] = 1.0
    told = (await scene.client.get(tasks[0])).result["pollIntervalMs"]
    return None if told == 1000 else f"{told} ms"


UNNAMED = {"message", "request_body", "polls"}
"""Of these nobody reads a refusal of ours: the first is cut, the second is the SDK's, and past the last nobody is."""


def somebody(_: object) -> Owner:
    return Owner("acme", "ada")


def idle(**options: Any) -> dict[str, Any]:
    """Nobody works, so that what was created stays as it is; each client is somebody, and may have all there is."""
    return {"worker": False, "identify": somebody, **dict.fromkeys(SHARES), **options}


SHARES = ("tenant_backlog", "owner_tasks", "owner_subscriptions", "owner_subscribed_tasks")


EDGES: dict[str, Edge] = {
    "arguments": Edge(
        arguments, "The whole of the arguments takes 101 bytes as JSON, and 100 is", Limits(arguments=100)
    ),
    "step_name": Edge(step_name, "has 6 characters, and 5 is the limit", Limits(step_name=5)),
    "entries": Edge(entries, "has at most 3 entries", Limits(entries=3)),
    "step_result": Edge(step_result, "'s' takes 101 bytes as JSON, and 100 is the limit", Limits(step_result=100)),
    "journal": Edge(journal, "takes at most 300 bytes as JSON, and 101 more", Limits(journal=300)),
    "questions": Edge(questions, "may ask 2 questions at most", Limits(questions=2)),
    "question_key": Edge(question_key, "has 6 characters, and 5 is the limit", Limits(question_key=5)),
    "question": Edge(question, f"'q0' takes {QUESTION + 21} bytes", Limits(question=QUESTION + 20)),
    "answer": Edge(answer, f"'q0' takes {ANSWER + 21} bytes", Limits(answer=ANSWER + 20)),
    "answer_values": Edge(answer_values, "hold more than 5 values", Limits(answer_values=5)),
    "message": Edge(message, "xxxxxxxxx…", Limits(message=10)),
    "result": Edge(result, f"its result takes {RESULT + 42} bytes", Limits(result=RESULT + 40)),
    "idempotency_key": Edge(idempotency_key, "1 to 5 characters", Limits(idempotency_key=5)),
    "depth": Edge(depth, "nest deeper than 10 levels", Limits(depth=10)),
    "values": Edge(values, "hold more than 100 values", Limits(values=100)),
    "tasks_per_subscription": Edge(tasks_per_subscription, "2 tasks at most", Limits(tasks_per_subscription=2)),
    "request_body": Edge(request_body, "too large", Limits(request_body=2000)),
    "polls_per_second": Edge(polls_per_second, "asked for too often: 1 polls", Limits(polls_per_second=1)),
    "backlog": Edge(calls, "Too many tasks are waiting already: 2 is the limit for all", options=idle(backlog=2)),
    "tenant_backlog": Edge(calls, "tasks of this tenant are waiting already: 2 is", options=idle(tenant_backlog=2)),
    "owner_tasks": Edge(calls, "tasks of this owner are unfinished already: 2 is", options=idle(owner_tasks=2)),
    "subscriptions": Edge(streams, "Too many subscriptions are open already: 2 is", options=idle(subscriptions=2)),
    "owner_subscriptions": Edge(
        streams, "subscriptions of this owner are open already: 2", options=idle(owner_subscriptions=2)
    ),
    "subscribed_tasks": Edge(streams, "Too many tasks are listened to already: 2 is", options=idle(subscribed_tasks=2)),
    "owner_subscribed_tasks": Edge(
        streams, "tasks of this owner are listened to already: 2 is", options=idle(owner_subscribed_tasks=2)
    ),
    "owner_polls": Edge(owner_polls, "This owner asks for tasks too often: 1 polls", options=idle(owner_polls=1)),
    "polls": Edge(polls, "1250 ms", options=idle(polls=4)),
}


@pytest.mark.parametrize("name", EDGES)
async def test_what_is_just_within_a_limit_goes_through_and_one_more_does_not(tmp_path: Path, name: str) -> None:
    edge = EDGES[name]
    for past in (0, 1):
        folder = tmp_path / str(past)
        folder.mkdir()
        async with stage(folder, declare, limits=edge.limits, **edge.options) as up:
            refused_with = await edge.go(up, past)
        if past:
            assert refused_with is not None
            assert edge.words in refused_with
            assert f"({name})" in refused_with or name in UNNAMED
        else:
            assert refused_with is None


def test_every_limit_has_its_edge() -> None:
    bounded = {"backlog", "tenant_backlog", "owner_tasks", "owner_polls", "subscriptions", "owner_subscriptions"}
    assert bounded < set(signature(Tasks).parameters)
    listened = {"subscribed_tasks", "owner_subscribed_tasks"}
    assert set(EDGES) == {each.name for each in fields(Limits)} | bounded | listened | {"polls"}


# -- what one leaves to others -----------------------------------------------------------------------------------------


@dataclass
class Somebody:
    """Whose every request is just now."""

    owner: Owner

    def __call__(self, _: object) -> Owner:
        return self.owner


async def test_an_owner_and_a_tenant_that_create_without_end_leave_room_for_others(tmp_path: Path) -> None:
    who = Somebody(Owner("acme", "ada"))
    async with stage(tmp_path, declare, worker=False, backlog=10, identify=who) as up:

        async def fill(owner: Owner) -> int:
            who.owner = owner
            replies = [await up.client.call("echo", {"text": "x"}) for _ in range(12)]
            return sum(said(reply) is None for reply in replies)

        assert await fill(Owner("acme", "ada")) == 1
        assert sum([await fill(Owner("acme", f"ada's client {number}")) for number in range(6)]) == 4
        assert await fill(Owner("globex", "bob")) == 1


async def test_where_all_are_one_owner_it_may_have_what_there_is(tmp_path: Path) -> None:
    async with stage(tmp_path, declare, worker=False, backlog=10) as up:
        for _ in range(10):
            assert said(await up.client.call("echo", {"text": "x"})) is None
        assert said(await up.client.call("echo", {"text": "x"})) is not None


async def test_an_owner_that_listens_to_all_it_may_leaves_room_for_others(tmp_path: Path) -> None:
    who = Somebody(Owner("acme", "ada"))
    async with stage(tmp_path, declare, worker=False, subscribed_tasks=20, identify=who) as up:
        hers = await up.client.start("echo", {"text": "x"})
        async with AsyncExitStack() as stack:
            for number in range(2):
                stream = await stack.enter_async_context(listening(up.client, hers, id=number))
                await stream.begun()
            full = "Too many tasks of this owner are listened to already: 2 is the limit (owner_subscribed_tasks)"
            assert await listens(up, [hers]) == full
            who.owner = Owner("acme", "bob")
            assert await listens(up, [await up.client.start("echo", {"text": "x"})]) is None
