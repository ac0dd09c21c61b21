"""Contract 5: cancellation is an intent. It is acknowledged at once, and the work decides."""

import asyncio
import threading
from pathlib import Path

import pytest

from perdure import SyncTaskContext
from perdure.domain.model import Demand
from tests.support import eventually
from tests.wire.envelopes import envelope, headers
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Tools

UNKNOWN = "tsk_" + "a" * 32


async def test_a_running_task_is_told_and_ends_as_cancelled(scene: Stage, tools: Tools) -> None:
    task_id = await scene.client.start("gated")
    await tools.entered.wait()
    reply = await scene.client.cancel(task_id)
    assert {name for name in reply.result if name != "_meta"} == {"resultType"}
    assert (await scene.client.until(task_id))["status"] == "cancelled"
    assert tools.ended == ["cancelled"]


async def test_a_parked_task_is_cancelled_at_once(scene: Stage, tools: Tools) -> None:
    task_id = await scene.client.start("ask")
    await scene.client.until(task_id, "input_required")
    await scene.client.cancel(task_id)
    assert (await scene.client.get(task_id)).result["status"] == "cancelled"
    await scene.client.update(task_id, {"form": FORM})
    assert (await scene.client.get(task_id)).result["status"] == "cancelled"
    assert tools.ran == ["ask"]


async def test_a_task_that_nobody_runs_is_cancelled_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path, Tools().declare, worker=False) as up:
        task_id = await up.client.start("hello", {"name": "you"})
        await up.client.cancel(task_id)
        assert (await up.client.get(task_id)).result["status"] == "cancelled"


async def test_the_acknowledgement_does_not_wait_for_the_work_which_may_finish_all_the_same(
    scene: Stage, tools: Tools
) -> None:
    task_id = await scene.client.start("stubborn")
    await tools.entered.wait()
    for _ in range(3):
        await scene.client.cancel(task_id)
    assert (await scene.client.get(task_id)).result["status"] == "working"
    tools.gate.set()
    task = await scene.client.until(task_id)
    assert (task["status"], task["result"]["content"][0]["text"]) == ("completed", "finished all the same")


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("hello", {"name": "you"}, "completed"),
        ("refuse", {"reason": "no"}, "completed"),
        ("broken", {"code": 1, "message": "no"}, "failed"),
    ],
)
async def test_a_terminal_task_is_acknowledged_and_stays_as_it_is(
    scene: Stage, name: str, arguments: dict[str, object], status: str
) -> None:
    task = await scene.client.finish(name, arguments)
    before = scene.dump()
    await scene.client.cancel(task["taskId"])
    await scene.client.cancel(task["taskId"])
    assert scene.dump() == before
    assert (await scene.client.get(task["taskId"])).result["status"] == status


async def test_a_cancelled_task_can_be_cancelled_again(scene: Stage) -> None:
    task_id = await scene.client.start("gated")
    await scene.client.cancel(task_id)
    task = await scene.client.until(task_id)
    await scene.client.cancel(task_id)
    assert (await scene.client.get(task_id)).result == task


async def test_the_intent_is_stored_before_it_is_acknowledged(tmp_path: Path) -> None:
    """A worker that dies right after does not make it undone."""
    async with stage(tmp_path, Tools().declare, worker=False) as up:
        task_id = await up.client.start("gated")
        session = await up.store.open_session(60_000, {})
        assert await up.store.claim(session.id, [Demand("tools/call:gated", 1)], 1)
        await up.client.cancel(task_id)
        assert (await up.client.get(task_id)).result["status"] == "working"
        await up.store.take_over([session.id])
        assert (await up.client.get(task_id)).result["status"] == "cancelled"


async def test_a_cancelled_notification_cancels_no_task(scene: Stage, tools: Tools) -> None:
    call = envelope("tools/call", {"name": "gated", "arguments": {}}, id="the call")
    task_id = scene.client.judge(call, await scene.client.exchange(call)).result["taskId"]
    await tools.entered.wait()
    for request_id in ("the call", task_id):
        note = envelope("notifications/cancelled", {"requestId": request_id, "reason": "no more"})
        del note["id"]
        assert (await scene.client.exchange(note)).status == 202
    tools.gate.set()
    assert (await scene.client.until(task_id))["status"] == "completed"
    assert tools.ended == ["returned"]


async def test_a_client_that_hangs_up_cancels_no_task(scene: Stage, tools: Tools) -> None:
    call = envelope("tools/call", {"name": "gated", "arguments": {}})
    async with scene.http.stream("POST", scene.client.url, json=call, headers=headers(call)) as response:
        assert response.status_code == 200
    await tools.entered.wait()
    await asyncio.sleep(0)
    tools.gate.set()
    await eventually(lambda: tools.ended == ["returned"], "the work ended otherwise")


async def test_an_unknown_task_can_not_be_cancelled(scene: Stage) -> None:
    reply = await scene.client.cancel(UNKNOWN)
    assert (reply.code, reply.error["message"]) == (-32602, "Task not found")


@pytest.mark.parametrize("raises", [True, False])
async def test_a_plain_function_sees_that_it_was_cancelled_and_decides(scene: Stage, raises: bool) -> None:
    entered = threading.Event()

    @scene.tasks.tool()
    def patient(task: SyncTaskContext) -> str:
        entered.set()
        wait = threading.Event()
        while not task.cancelled:
            wait.wait(0.01)
        if raises:
            raise asyncio.CancelledError
        return "stopped early"

    task_id = await scene.client.start("patient")
    await eventually(entered.is_set, "it never started")
    await scene.client.cancel(task_id)
    task = await scene.client.until(task_id)
    assert task["status"] == ("cancelled" if raises else "completed")
