"""Workers that go silent, hang and block, each in a process of its own: who is taken over, and who is not."""

import os
import signal
import time
from pathlib import Path
from typing import Final

from tests.acceptance.support import Effect, Server, effect, effects, rows
from tests.acceptance.workers import accepting, crew, just_renewed, sessions, working
from tests.support import eventually

LEASE: Final = {"LEASE": "4s"}
"""A worker that nobody stops may be kept from the processor for the two thirds of it that are left at a renewal."""
TAKEN_OVER: Final = 5.0
"""Seconds within which a worker whose lease is 4 s is taken over on a quiet machine: the lease and a second."""
BUSY: Final = 6.0
"""Seconds that a busy machine may add."""


async def test_a_worker_that_was_stopped_past_its_lease_writes_nothing_and_goes_on_as_another(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with (
        accepting(tmp_path) as client,
        crew(tmp_path, env=LEASE) as (a, b),
    ):
        task_id = await client.start("waiting", {"label": "asleep", "gate": str(gate)})
        before = await effect(tmp_path, task_id, "start")
        sleeper, other = (a, b) if before.pid == a.pid else (b, a)
        lease = await just_renewed(tmp_path, sleeper)
        after, seconds = await stopped(tmp_path, sleeper, other, task_id, gate)
        print(f"taken over {seconds:.2f} s after the stop")
        assert seconds < TAKEN_OVER + BUSY
        assert (before.attempt, after.attempt) == (1, 2)
        # It wakes up with its work done, and wants to write the result before it can hear what happened.
        late = await effect(tmp_path, task_id, "end", pid=sleeper.pid)
        await eventually(lambda: bool(set(sessions(tmp_path, sleeper)) - lease), "it takes out a lease again")
        assert (await client.get(task_id)).result["status"] == "working", "the late result counts for nothing"
        gate.touch()
        done = await client.until(task_id, "completed")
        assert done["result"]["structuredContent"]["token"] == after.token != late.token
        ends = [one for one in effects(tmp_path, task_id, "end") if one.token == after.token]
        assert len(ends) == 1
        await other.stop()
        gate.unlink()
        again = await client.start("waiting", {"label": "awake", "gate": str(gate)})
        await effect(tmp_path, again, "start", pid=sleeper.pid)
        gate.touch()
        await client.until(again, "completed")


async def stopped(folder: Path, sleeper: Server, other: Server, task_id: str, gate: Path) -> tuple[Effect, float]:
    """Stop a worker until another one runs its task: that run, and the seconds it took to begin."""
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        after = await effect(folder, task_id, "start", pid=other.pid)
        seconds = time.monotonic() - started
        gate.with_name(f"gate.{sleeper.pid}").touch()
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    return after, seconds


async def test_a_plain_tool_that_blocks_for_longer_than_the_lease_is_left_alone(tmp_path: Path) -> None:
    async with accepting(tmp_path) as client, crew(tmp_path, env=LEASE) as (a, b):
        held = sessions(tmp_path, a).keys() | sessions(tmp_path, b).keys()
        done = await client.finish("threaded", {"label": "blocks", "seconds": 4.5})
        (start,) = effects(tmp_path, done["taskId"], "start")
        assert start.attempt == 1
        assert sessions(tmp_path, a).keys() | sessions(tmp_path, b).keys() == held, "nobody began anew"


async def test_a_tool_that_hangs_is_ended_by_its_timeout_while_its_worker_lives(tmp_path: Path) -> None:
    """Also one that does not stop when it is told to."""
    async with accepting(tmp_path) as client, working(tmp_path, env={"CLEANUP": "200ms"}) as worker:
        task_id = await client.start("hung", {"label": "hangs", "gate": str(gate := tmp_path / "gate")})
        done = await client.until(task_id, "completed")
        assert done["result"]["isError"] is True
        assert not effects(tmp_path, task_id, "end"), "it still hangs"
        gate.touch()
        await effect(tmp_path, task_id, "end", pid=worker.pid)
        assert (await client.get(task_id)).result["result"] == done["result"], "what it came to later is dropped"
        assert (await client.finish("short", {"label": "after"}))["status"] == "completed"
        assert rows(tmp_path, "SELECT count(*) FROM run") == [(0,)]


async def test_a_cancel_reaches_a_tool_in_another_process_within_a_heartbeat(tmp_path: Path) -> None:
    heartbeat = 1.0
    async with accepting(tmp_path) as client, working(tmp_path, env={"LEASE": f"{3 * heartbeat}s"}) as worker:
        task_id = await client.start("cancellable", {"label": "stop"})
        await effect(tmp_path, task_id, "start", pid=worker.pid)
        started = time.monotonic()
        await client.cancel(task_id)
        await effect(tmp_path, task_id, "told to stop", pid=worker.pid)
        seconds = time.monotonic() - started
        print(f"told {seconds:.2f} s after the cancel")
        assert seconds < heartbeat + BUSY
        assert (await client.until(task_id))["status"] == "cancelled"
