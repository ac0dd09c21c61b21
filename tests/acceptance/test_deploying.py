"""Code comes and goes while tasks wait: a task is finished by code that has what began it, or stays where it is.

And a rolling restart is felt by nobody: it loses nothing, and delays no task by more than a moment.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.acceptance.support import Server, effect, effects, rows
from tests.acceptance.workers import accepting, attending, crew, said, serving, start_worker, working
from tests.support import eventually
from tests.wire.support import Client

OLD: Final = {"GRACE": "100ms"}
NEW: Final = {**OLD, "VERSION": "2"}
BOTH: Final = {**NEW, "KEEPS": "1"}
WORKERS: Final = 3
RATE: Final = 40.0
"""Tasks a second."""
BACKLOG: Final = 30
"""Unfinished tasks at which the load waits: what a busy machine can't keep up with is not held against the restart."""
ADDED: Final = 4.0
"""Seconds that the restart may add to a task here. On a quiet machine it is well below one."""


async def status(folder: Path) -> dict[str, Any]:
    found = await said(folder, "status")
    return {each["tool"]: (each["ready"], each["held"]) for each in found["tools"]} | {
        "unclaimable": found["unclaimable"]
    }


async def test_a_task_is_left_to_workers_that_have_its_code(tmp_path: Path) -> None:
    """A deploy that went too far, its rollback, and a deploy that keeps the former code."""
    gates = [tmp_path / "begun", tmp_path / "queued"]
    async with accepting(tmp_path) as client:
        async with working(tmp_path, env=OLD):
            begun = await client.start("report", {"label": "begun", "gate": str(gates[0])})
            await effect(tmp_path, begun, "start")
        queued = await client.start("report", {"label": "queued", "gate": str(gates[1])})
        async with working(tmp_path, env=NEW):
            gates[0].touch()
            await client.finish("short", {"label": "it works"})
            assert await status(tmp_path) == {"tools/call:report": (2, 0), "unclaimable": ["tools/call:report"]}
        for task_id in (begun, queued):
            assert (await client.get(task_id)).result["status"] == "working"
        async with working(tmp_path, env=OLD) as old:
            await finished(client, tmp_path, begun, old)
            await effect(tmp_path, queued, "start", pid=old.pid)
        async with working(tmp_path, env=BOTH) as both:
            gates[1].touch()
            await finished(client, tmp_path, queued, both)


async def finished(client: Client, folder: Path, task_id: str, worker: Server) -> None:
    """The former code has finished the task, in that worker; and to have waited is no failed attempt."""
    done = await client.until(task_id, "completed")
    assert done["result"]["structuredContent"]["version"] == ""
    (end,) = effects(folder, task_id, "end")
    assert (end.pid, end.attempt) == (worker.pid, 1)


# -- a rolling restart -------------------------------------------------------------------------------------------------


class Load:
    """Short tasks at a steady rate, or as fast as they are done, for as long as the block lasts."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._over = False
        self.ids: list[str] = []

    @asynccontextmanager
    async def going_on(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._create())
            try:
                yield
            finally:
                self._over = True

    async def _create(self) -> None:
        while not self._over:
            started = time.monotonic()
            self.ids.append(await self._client.start("short", {"label": str(len(self.ids))}))
            # Sleeping is the point here: the load has a rate.
            await asyncio.sleep(max(0.0, 1 / RATE - (time.monotonic() - started)))
            await eventually(lambda: self._over or self.left() < BACKLOG, "tasks are done")

    def left(self) -> int:
        """How many are not completed."""
        return rows(self._folder, "SELECT count(*) FROM task WHERE status != 'completed'")[0][0]

    async def shared_by(self, worker: Server) -> None:
        """Wait until the worker has had one of them: whoever looks just then takes all that there are."""
        await eventually(lambda: any(one.pid == worker.pid for one in effects(self._folder)), "it takes its share")

    def slowest(self, since: int, until: int | None = None) -> float:
        """Seconds from creation to the end, of the slowest of the tasks with these numbers."""
        taken = dict(rows(self._folder, "SELECT id, updated_at - created_at FROM task"))
        return max(taken[task_id] for task_id in self.ids[since:until]) / 1000


async def test_a_rolling_restart_under_load_loses_nothing_and_delays_nothing_for_long(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (_, client),
        crew(tmp_path, "--concurrency", "8", count=WORKERS, anew=True) as workers,
        AsyncExitStack() as stack,
    ):
        load = Load(client, tmp_path)
        async with load.going_on():
            await eventually(lambda: len(load.ids) >= 60, "there is load")
            for worker in workers:
                await load.shared_by(worker)
            calm = len(load.ids)
            for worker in workers:
                after = await start_worker(tmp_path, "--concurrency", "8", anew=True)
                assert await worker.stop() == 0
                await stack.enter_async_context(attending(tmp_path, after))
                await load.shared_by(after)
            restarted = len(load.ids)
            await eventually(lambda: len(load.ids) >= restarted + 20, "the load goes on")
        await eventually(lambda: load.left() == 0, "all tasks are completed")
        assert rows(tmp_path, "SELECT count(*) FROM task") == [(len(load.ids),)]
        ends = [one.task for one in effects(tmp_path, event="end")]
        assert sorted(ends) == sorted(load.ids), "each was done once, and by its first attempt"
        assert {one.attempt for one in effects(tmp_path)} == {1}
        assert len({one.pid for one in effects(tmp_path)}) == 2 * WORKERS
        calmly, restarting = load.slowest(0, calm), load.slowest(calm)
        print(f"slowest task: {calmly:.3f} s in calm, {restarting:.3f} s while the workers were restarted")
        assert restarting <= calmly + ADDED
