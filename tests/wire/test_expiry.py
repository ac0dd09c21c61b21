"""Contract 9: a ttl counts from creation; past it the task is stopped, later deleted, and its owner remembers."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigurationError, InvalidDuration, TaskContext, Tasks
from tests.support import eventually
from tests.wire.support import Stage, replica, stage
from tests.wire.tools import FORM, Form, Tools

NOW = 1_800_000_000_000
MINUTE = 60_000
DAY = 86_400_000


class Hands:
    """A clock that is moved by hand. The janitor's own sweeps see the same time."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


class Short:
    """Tools with a ttl of one minute."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended = ""

    def declare(self, tasks: Tasks) -> None:
        tasks.tool(ttl="1m")(self.slow)
        tasks.tool(ttl="1m")(self.asks)
        tasks.tool(ttl="1m", keep_result="10m")(self.kept)
        tasks.tool(ttl="1h", keep_result="10m")(self.kept_long_anyway)
        tasks.tool()(self.forever)

    async def slow(self) -> None:
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended = "stopped"
            raise

    async def asks(self, task: TaskContext) -> None:
        await task.elicit("form", "All right?", Form)

    async def kept(self) -> str:
        self.entered.set()
        await self.gate.wait()
        return "kept"

    async def kept_long_anyway(self) -> str:
        return "kept"

    async def forever(self) -> None:
        await self.gate.wait()


async def swept(scene: Stage) -> None:
    """What the janitor does each second, now."""
    await scene.store.expire(100)
    await scene.store.purge(100, linger_ms=5 * MINUTE, tombstone_ms=DAY)


async def test_a_running_task_is_stopped_and_fails_when_its_ttl_has_run_out(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("slow")
        await tools.entered.wait()
        clock.now += MINUTE - 1
        await swept(up)
        assert (await up.client.get(task_id)).result["status"] == "working"
        clock.now += 1
        await swept(up)
        task = (await up.client.get(task_id)).result
        await eventually(lambda: tools.ended == "stopped", "the work was not told")
    assert (task["status"], task["error"]["code"], task["ttlMs"]) == ("failed", -32603, MINUTE)
    assert "expired" in task["error"]["message"]
    assert "ttl" in task["statusMessage"]


async def test_a_parked_task_fails_when_its_ttl_has_run_out(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("asks")
        await up.client.until(task_id, "input_required")
        clock.now += MINUTE
        await swept(up)
        task = (await up.client.get(task_id)).result
        await up.client.update(task_id, {"form": FORM})
        assert (await up.client.get(task_id)).result == task
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)


async def test_polling_does_not_prolong(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("asks")
        await up.client.until(task_id, "input_required")
        for _ in range(6):
            clock.now += 10_000
            assert (await up.client.get(task_id)).result["ttlMs"] == MINUTE
        await swept(up)
        assert (await up.client.get(task_id)).result["status"] == "failed"


async def test_a_deleted_task_leaves_its_owner_a_tombstone_and_then_nothing(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("asks")
        await up.client.until(task_id, "input_required")
        clock.now += MINUTE
        await swept(up)
        clock.now += 5 * MINUTE - 1
        await swept(up)
        assert (await up.client.get(task_id)).result["status"] == "failed"
        clock.now += 1
        await swept(up)
        for reply in (
            await up.client.get(task_id),
            await up.client.update(task_id, {"form": FORM}),
            await up.client.cancel(task_id),
        ):
            assert reply.error == {"code": -32602, "message": "Task has expired"}
        rows = dict(up.dump())
        assert (rows["task"], rows["run"], rows["input"]) == ([], [], [])
        clock.now += DAY
        await swept(up)
        assert (await up.client.get(task_id)).error == {"code": -32602, "message": "Task not found"}


async def test_a_kept_result_extends_the_ttl_and_clients_read_the_changed_value(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("kept")
        await tools.entered.wait()
        assert (await up.client.get(task_id)).result["ttlMs"] == MINUTE
        clock.now += 30_000
        tools.gate.set()
        task = await up.client.until(task_id)
        assert task["ttlMs"] == 30_000 + 10 * MINUTE
        clock.now += 10 * MINUTE + 5 * MINUTE - 1
        await swept(up)
        assert (await up.client.get(task_id)).result == task
        clock.now += 1
        await swept(up)
        assert (await up.client.get(task_id)).error["message"] == "Task has expired"


async def test_a_kept_result_never_shortens_the_ttl(tmp_path: Path) -> None:
    async with stage(tmp_path, Short().declare) as up:
        assert (await up.client.finish("kept_long_anyway"))["ttlMs"] == 60 * MINUTE


async def test_a_task_without_ttl_never_expires(tmp_path: Path) -> None:
    clock, tools = Hands(), Short()
    async with stage(tmp_path, tools.declare, clock=clock) as up:
        task_id = await up.client.start("forever")
        clock.now += 100 * 365 * DAY
        await swept(up)
        assert (await up.client.get(task_id)).result["status"] == "working"
        tools.gate.set()
        await up.client.until(task_id)
        clock.now += 100 * 365 * DAY
        await swept(up)
        assert (await up.client.get(task_id)).result["status"] == "completed"


async def test_the_server_keeps_house_by_itself(tmp_path: Path, tools: Tools) -> None:
    """In real time: nobody asks it to, and a replica without a worker does it too."""
    async with stage(tmp_path, tools.declare, worker=False, linger="1ms", tombstone="1d") as up:
        up.tasks.tool(ttl="1ms")(brief)
        task_id = await up.client.start("brief")
        async with replica(up):

            async def expired() -> bool:
                reply = await up.client.get(task_id)
                return "error" in reply.body and reply.error["message"] == "Task has expired"

            await eventually(expired, "nobody kept house")


async def brief() -> None:
    """Is never run: no worker is there."""


REFUSED: list[Any] = [
    *(0, -1, -0.5, 0.0001, True, float("nan"), float("inf"), timedelta(0), timedelta(seconds=-1)),
    *("0s", "0ms", "-5m", "", "soon", "5", "5 parsecs", "2000000d"),
]


@pytest.mark.parametrize("option", ["ttl", "keep_result", "poll_interval"])
@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_a_duration_that_is_not_positive_is_refused_at_declaration(tmp_path: Path, option: str, value: Any) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    options: dict[str, Any] = {"ttl": "1h", option: value}
    with pytest.raises(InvalidDuration, match=f"^{option}: "):
        tasks.tool(**options)(brief)
    assert not (tmp_path / "never.db").exists()


def test_keeping_a_result_longer_than_a_ttl_that_there_is_not_is_refused_at_declaration(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'never.db'}")
    with pytest.raises(ConfigurationError, match=r"^keep_result extends a ttl, and there is none"):
        tasks.tool(keep_result="1d")(brief)


async def test_durations_are_read_as_they_are_written(tmp_path: Path) -> None:
    written: dict[str, tuple[Any, int]] = {
        "text": ("1.5s", 1500),
        "number": (2, 2000),
        "fraction": (0.25, 250),
        "delta": (timedelta(hours=1), 3_600_000),
        "week": ("2w", 14 * DAY),
    }

    def declare(tasks: Tasks) -> None:
        for name, (duration, _) in written.items():
            tasks.tool(name, ttl=duration, poll_interval=duration)(brief)

    async with stage(tmp_path, declare, worker=False) as up:
        for name, (_, milliseconds) in written.items():
            made = (await up.client.call(name)).result
            assert (made["ttlMs"], made["pollIntervalMs"]) == (milliseconds, milliseconds)
