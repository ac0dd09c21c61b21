"""A task that its backend has forgotten: the route is over when that is sure, and not before."""

from typing import Any

import pytest

from perdure.wire.identity import ANONYMOUS
from tests.gateway.raw_backend import liar, response
from tests.gateway.support import fronting
from tests.gateway.test_lies import HANDLE, Bad, ask, said

UNKNOWN: Any = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "Task not found"}}
BROKEN: Any = {"jsonrpc": "2.0", "error": {"code": -32603, "message": "Internal error"}}
SNAPSHOT: Any = said({**HANDLE, "resultType": "complete"})


async def polled(*answers: Any) -> tuple[Any, bool, list[Any]]:
    """A task polled once, whose backend says these: the client's answer, whether the route is over, what was asked."""
    backend = Bad(said(HANDLE), *answers)
    async with liar(backend.answer) as up, fronting({"bad": up.url}) as front:
        task_id = (await ask(front)).result["taskId"]
        reply = await ask(front, "tasks/get", {"taskId": task_id, "wrong": True})
        return reply, (await front.routes.find(ANONYMOUS, task_id)).ended, backend.asked[1:]


async def test_a_route_ends_when_its_backend_says_twice_that_there_is_no_such_task() -> None:
    reply, ended, asked = await polled(UNKNOWN, UNKNOWN)
    assert reply.error == UNKNOWN["error"]
    assert ended
    assert [message["method"] for message in asked] == ["tasks/get", "tasks/get"]
    assert "wrong" not in asked[1]["params"]
    assert asked[1]["params"]["taskId"] == "theirs-0001"


@pytest.mark.parametrize(
    "second",
    [SNAPSHOT, BROKEN, response(b"", "503 Service Unavailable", "text/plain"), response(b"[]")],
    ids=["it is there", "an error of another kind", "away", "nonsense"],
)
async def test_a_route_stays_while_anything_else_is_said_to_the_gateway(second: Any) -> None:
    reply, ended, _ = await polled(UNKNOWN, *[second] * 3)
    assert reply.code == -32602
    assert not ended


async def test_another_error_is_no_reason_to_ask_again() -> None:
    _, ended, asked = await polled(BROKEN)
    assert not ended
    assert len(asked) == 1


async def test_what_is_known_to_be_over_is_not_asked_about_again() -> None:
    backend = Bad(said(HANDLE), UNKNOWN, UNKNOWN, UNKNOWN)
    async with liar(backend.answer) as up, fronting({"bad": up.url}) as front:
        task_id = (await ask(front)).result["taskId"]
        for _ in range(2):
            assert (await ask(front, "tasks/get", {"taskId": task_id})).code == -32602
    assert len(backend.asked) == 4
