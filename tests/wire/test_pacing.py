"""Whatever an owner asks of what is there already is paced: what could be asked again and again, and is looked up."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from perdure import Limits, Owner
from perdure.domain import ids
from perdure.engine.pace import Pace
from tests.wire.envelopes import EVERYTHING, INPUT, JSON, meta
from tests.wire.handshake import Old
from tests.wire.support import Reply, Stage, stage
from tests.wire.tools import FORM, Tools

KEY = "dev.perdure/idempotencyKey"

Ask = Callable[[Stage, Old, str], Awaitable[Reply]]


def somebody(_: object) -> Owner:
    return Owner("acme", "ada")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Stage]:
    """A server on which time stands still, and which answers ten of a kind."""
    limits = Limits(polls_per_second=1)
    async with stage(tmp_path, Tools().declare, legacy=True, limits=limits, identify=somebody) as up:
        runtime = up.tasks.assembly.runtime
        runtime.pace = Pace(lambda: runtime.options, clock=lambda: 0.0)
        yield up


@pytest.fixture
async def old(scene: Stage) -> Old:
    client = Old(scene, "2025-11-25", {})
    await client.shake_hands()
    return client


async def poll(scene: Stage, _: Old, task_id: str) -> Reply:
    return await scene.client.get(task_id)


async def update(scene: Stage, _: Old, task_id: str) -> Reply:
    return await scene.client.update(task_id, {})


async def cancel(scene: Stage, _: Old, task_id: str) -> Reply:
    return await scene.client.cancel(task_id)


async def call_again(scene: Stage, _: Old, task_id: str) -> Reply:
    params = {"_meta": {**meta(EVERYTHING), KEY: "mine"}}
    return await scene.client.call("hello", {"name": "you"}, params=params)


def of_old(method: str) -> Ask:
    async def ask(_: Stage, old: Old, task_id: str) -> Reply:
        return await old.request(method, {"taskId": task_id})

    return ask


async def call_again_as_of_old(_: Stage, old: Old, task_id: str) -> Reply:
    call: JSON = {"name": "hello", "arguments": {"name": "you"}, "task": {}, "_meta": {KEY: "mine"}}
    return await old.request("tools/call", call)


PACED: dict[str, Ask] = {
    "tasks/get": poll,
    "tasks/update": update,
    "tasks/cancel": cancel,
    "a call under a known key": call_again,
    "tasks/get of 2025-11-25": of_old("tasks/get"),
    "tasks/list of 2025-11-25": of_old("tasks/list"),
    "tasks/result of 2025-11-25": of_old("tasks/result"),
    "tasks/cancel of 2025-11-25": of_old("tasks/cancel"),
    "a call of 2025-11-25 under a known key": call_again_as_of_old,
}


def is_refused(reply: Reply) -> bool:
    error = reply.body.get("error", {})
    return error.get("code") == -32000 and error["data"]["retryAfterMs"] > 0


@pytest.mark.parametrize("what", PACED)
async def test_what_is_asked_far_too_often_is_refused_for_a_while(scene: Stage, old: Old, what: str) -> None:
    """Whether there is such a task or not."""
    task_id = ids.mint(secrets.token_bytes)
    asked = [is_refused(await PACED[what](scene, old, task_id)) for _ in range(12)]
    assert asked == [False] * 10 + [True] * 2


async def test_a_retry_with_answers_is_paced_as_well(scene: Stage) -> None:
    first = await scene.client.call("ask", capabilities=INPUT)
    params = {"requestState": first.result["requestState"], "inputResponses": {"form": FORM}}
    asked = [is_refused(await scene.client.call("ask", params=params, capabilities=INPUT)) for _ in range(12)]
    assert asked == [False] * 10 + [True] * 2


async def test_who_polls_far_too_often_can_still_answer_and_cancel(scene: Stage) -> None:
    task_id = await scene.client.start("ask")
    while not is_refused(await scene.client.get(task_id)):
        pass
    assert not is_refused(await scene.client.update(task_id, {"form": FORM}))
    assert not is_refused(await scene.client.cancel(task_id))


async def test_calls_that_are_new_are_not_paced(scene: Stage) -> None:
    for number in range(20):
        for params in ({}, {"_meta": {**meta(EVERYTHING), KEY: f"{number}"}}):
            assert not is_refused(await scene.client.call("hello", {"name": "you"}, params=params))
