"""Two server processes on one SQLite file: each resolves the other's handles, and each outlives the other.

A heartbeat, at a third of the lease, is where a worker hears of what another process did, so a short lease makes these
tests quick. Where a process is gone the lease is an hour: whoever waited for its end would come too late.
"""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.acceptance.support import CRASH_SERVER, Server, attended, effect, effects, rows, start
from tests.support import eventually
from tests.wire.support import Client

SHORT: Final = "4s"
Pair = tuple[tuple[Server, Client], tuple[Server, Client]]


@asynccontextmanager
async def two(folder: Path, *options: str, lease: str = "30s") -> AsyncGenerator[Pair]:
    """Server A, and server B with `options`."""
    started = [await start(CRASH_SERVER, folder, *each, env={"LEASE": lease}) for each in ((), options)]
    async with attended(started[0]) as a, attended(started[1]) as b:
        yield a, b


def sessions(folder: Path, server: Server) -> set[str]:
    """The leases that a server holds."""
    return {id_ for id_, info in rows(folder, "SELECT id, info FROM session") if json.loads(info)["pid"] == server.pid}


async def test_the_handle_of_one_server_resolves_on_the_other_at_once(tmp_path: Path) -> None:
    async with two(tmp_path) as ((_, a), (_, b)):
        for number in range(20):
            task_id = await a.start("short", {"label": str(number)})
            assert (await b.get(task_id)).result["taskId"] == task_id
            done = await b.until(task_id, "completed")
            assert (await a.get(task_id)).result["result"] == done["result"]


async def test_an_answer_to_one_server_wakes_the_worker_of_the_other(tmp_path: Path) -> None:
    async with two(tmp_path, "--no-worker") as ((worker, a), (_, b)):
        task_id = await a.start("three_questions", {"label": "far"})
        for _ in range(2):
            asked = (await b.until(task_id, "input_required"))["inputRequests"]
            answers = {key: {"action": "accept", "content": {"text": f"my {key}"}} for key in asked}
            await b.update(task_id, answers)
            assert not set(asked) & set((await b.get(task_id)).result.get("inputRequests", {}))
        done = await b.until(task_id, "completed")
        expected = {"left": "my left", "right": "my right", "last": "my last"}
        assert done["result"]["structuredContent"]["answers"] == expected
        assert {one.pid for one in effects(tmp_path)} == {worker.pid}


async def test_the_first_of_two_answers_wins_whichever_server_they_go_to(tmp_path: Path) -> None:
    async with two(tmp_path) as ((_, a), (_, b)):
        task_id = await a.start("three_questions", {"label": "contested"})
        await b.until(task_id, "input_required")
        await b.update(task_id, {"left": {"action": "accept", "content": {"text": "first"}}})
        await a.update(task_id, {"left": {"action": "accept", "content": {"text": "second"}}})
        await a.update(task_id, {"right": {"action": "accept", "content": {"text": "first"}}})
        asked = (await b.until(task_id, "input_required"))["inputRequests"]
        assert "after first and first" in asked["last"]["params"]["message"]


async def test_a_cancel_through_one_server_reaches_the_run_on_the_other(tmp_path: Path) -> None:
    async with two(tmp_path, "--no-worker", lease=SHORT) as ((worker, a), (_, b)):
        task_id = await a.start("cancellable", {"label": "stop", "seconds": 3600, "stubborn": False})
        await effect(tmp_path, task_id, "start", pid=worker.pid)
        await b.cancel(task_id)
        assert (await b.until(task_id)).get("status") == "cancelled"
        events = [one.event for one in effects(tmp_path, task_id)]
        assert events == ["start", "told to stop"], "the tool could clean up"


async def test_the_tasks_of_a_killed_server_are_finished_by_the_other_at_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with two(tmp_path, lease="1h") as (a, b):
        parked = await a[1].start("one_question", {"label": "parked"})
        await b[1].until(parked, "input_required")
        started = [await a[1].start("waiting", {"label": str(n), "gate": str(gate)}) for n in range(5)]
        ran = {task_id: await effect(tmp_path, task_id, "start") for task_id in started}
        victim, other, client = who_ran(ran[started[0]].pid, a, b)
        await victim.kill()
        for task_id, before in ran.items():
            after = await effect(tmp_path, task_id, "start", pid=other.pid)
            assert after.attempt == (2 if before.pid == victim.pid else 1)
        gate.touch()
        for task_id in started:
            done = await client.until(task_id, "completed")
            (end,) = effects(tmp_path, task_id, "end")
            assert (end.pid, end.token) == (other.pid, done["result"]["structuredContent"]["token"])
        await client.update(parked, {"name": {"action": "accept", "content": {"text": "Ada"}}})
        done = await client.until(parked, "completed")
        assert done["result"]["structuredContent"]["answers"] == {"name": "Ada"}
        assert not sessions(tmp_path, victim)


async def test_a_server_that_slept_past_its_lease_writes_nothing_and_goes_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with two(tmp_path, lease=SHORT) as (a, b):
        task_id = await a[1].start("waiting", {"label": "asleep", "gate": str(gate)})
        before = await effect(tmp_path, task_id, "start")
        sleeper, other, client = who_ran(before.pid, a, b)
        lease = await just_renewed(tmp_path, sleeper)
        os.kill(sleeper.pid, signal.SIGSTOP)
        try:
            after = await effect(tmp_path, task_id, "start", pid=other.pid)
            assert (before.attempt, after.attempt) == (1, 2)
            gate.with_name(f"gate.{sleeper.pid}").touch()
        finally:
            os.kill(sleeper.pid, signal.SIGCONT)
        # It wakes up with its work done, and writes the result before its heartbeat can tell it what happened.
        late = await effect(tmp_path, task_id, "end", pid=sleeper.pid)
        await eventually(lambda: bool(sessions(tmp_path, sleeper) - lease), "it takes out a lease again")
        assert (await client.get(task_id)).result["status"] == "working", "the late result counts for nothing"
        gate.touch()
        done = await client.until(task_id, "completed")
        assert done["result"]["structuredContent"]["token"] == after.token != late.token
        await it_still_works(tmp_path, sleeper, other, a[1] if sleeper is a[0] else b[1])


def who_ran(pid: int, a: tuple[Server, Client], b: tuple[Server, Client]) -> tuple[Server, Server, Client]:
    """The server with that process, the other one, and a client of the other one."""
    return (a[0], *b) if a[0].pid == pid else (b[0], *a)


async def just_renewed(folder: Path, server: Server) -> set[str]:
    """Wait until the server has renewed its lease, so that it has nothing to write for a while; the lease.

    A process that is stopped within a transaction keeps the file locked for all others, and nothing can help them.
    """

    def expiry() -> set[int]:
        held = sessions(folder, server)
        return {expires for id_, expires in rows(folder, "SELECT id, expires_at FROM session") if id_ in held}

    first = expiry()
    await eventually(lambda: expiry() != first, "the lease is renewed")
    return sessions(folder, server)


async def it_still_works(folder: Path, server: Server, other: Server, client: Client) -> None:
    """A task that only this server can run is run."""
    await other.stop()
    task_id = await client.start("short", {"label": "after"})
    await client.until(task_id, "completed")
    assert [one.pid for one in effects(folder, task_id, "end")] == [server.pid]
