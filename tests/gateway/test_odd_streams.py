"""What a backend says on a stream and should not: it is its own trouble, and nobody else's stream or request."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.gateway.steady import steadily
from tests.gateway.odd import HANDLE, Odd, beside, is_well
from tests.gateway.raw_backend import Asked
from tests.gateway.support import Front
from tests.support import eventually
from tests.wire.envelopes import envelope
from tests.wire.listening import ACKNOWLEDGED, SNAPSHOT, listening
from tests.wire.support import Stage, stage
from tests.wire.tools import Tools

WATCHED: Any = {"tools": {"listChanged": True}, "extensions": {"io.modelcontextprotocol/tasks": {}}}

SHOWN: Any = {name: value for name, value in HANDLE.items() if name != "resultType"}


@pytest.fixture
async def good(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, Tools().declare) as up:
        yield up


async def odd_task(front: Front) -> str:
    reply = await front.client.exchange(envelope("tools/call", {"name": "odd_thing", "arguments": {}}))
    return reply.result["taskId"]


def note(method: Any, params: Any) -> Any:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def acknowledged(asked: Asked, **others: Any) -> Any:
    return note(ACKNOWLEDGED, {"notifications": asked.message["params"]["notifications"] | others})


@pytest.mark.parametrize("params", [[1], "text", None], ids=str)
@pytest.mark.parametrize("method", [SNAPSHOT, "notifications/tools/list_changed", ["no text"]], ids=str)
async def test_a_notification_whose_parameters_are_no_object_does_not_end_the_gateway(
    good: Stage, method: Any, params: Any
) -> None:
    odd = Odd(capabilities=WATCHED, said=lambda asked: [acknowledged(asked), note(method, params)])
    async with beside(good, odd) as front:
        await eventually(lambda: odd.asked.count("subscriptions/listen") >= 2, "it was not listened to again")
        await is_well(front)


@pytest.mark.parametrize(
    "params",
    [[1], "text", {"notifications": [1]}, {"notifications": {"toolsListChanged": [1], "resourceSubscriptions": 5}}],
    ids=str,
)
async def test_an_acknowledgement_that_is_none_does_not_end_the_gateway(good: Stage, params: Any) -> None:
    odd = Odd(capabilities=WATCHED, said=lambda _: [note(ACKNOWLEDGED, params)])
    async with beside(good, odd) as front:
        await eventually(lambda: "subscriptions/listen" in odd.asked, "it was not listened to")
        await anyio.wait_all_tasks_blocked()
        await is_well(front)


@pytest.mark.parametrize(
    "wrong",
    [[1], {"status": []}, {"status": {}}, {"status": "fine"}, {"taskId": []}],
    ids=lambda wrong: str(wrong)[:25],
)
async def test_a_snapshot_that_is_none_ends_no_stream_over_other_backends_tasks(good: Stage, wrong: Any) -> None:
    snapshot: Any = SHOWN | wrong if isinstance(wrong, dict) else wrong
    odd = Odd(said=lambda asked: [acknowledged(asked), note(SNAPSHOT, snapshot)])
    async with beside(good, odd) as front:
        theirs, mine = await odd_task(front), await front.client.start("good_hello", {"name": "Ada"})
        async with listening(front.client, theirs, mine) as heard:
            assert await heard.begun() == [theirs, mine]
            assert (await heard.reaches("completed"))["taskId"] == mine


@pytest.mark.parametrize("status", [[], {}, "fine", None], ids=str)
async def test_a_polled_snapshot_that_is_none_ends_no_stream(good: Stage, status: Any) -> None:
    odd = Odd(snapshot=HANDLE | {"status": status})
    async with beside(good, odd) as front:
        theirs, mine = await odd_task(front), await front.client.start("good_hello", {"name": "Ada"})
        async with listening(front.client, theirs, mine) as heard:
            assert await heard.begun() == [theirs, mine]
            await heard.reaches("completed")
            polls = odd.asked.count("tasks/get")
            await eventually(lambda: odd.asked.count("tasks/get") > polls + 1, "it is not polled any more")


@pytest.mark.parametrize("status", [[], {}], ids=str)
async def test_a_status_that_is_no_text_is_none(good: Stage, status: Any) -> None:
    odd = Odd(handle=HANDLE | {"status": status})
    async with beside(good, odd) as front:
        refused = await front.client.exchange(envelope("tools/call", {"name": "odd_thing", "arguments": {}}))
        assert refused.error["data"] == {"gateway": True, "backend": "odd"}
        await eventually(lambda: "tasks/cancel" in odd.asked, "the task was not cancelled")


async def test_what_fails_beside_the_requests_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    times = 0

    async def job() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise AttributeError("nobody saw this coming")
        await anyio.sleep_forever()

    with caplog.at_level(logging.ERROR, "perdure.gateway.steady"):
        async with anyio.create_task_group() as group:
            group.start_soon(steadily, job, 0.001)
            await eventually(lambda: times == 3, "it was not begun anew")
            group.cancel_scope.cancel()
    assert len(caplog.records) == 2
