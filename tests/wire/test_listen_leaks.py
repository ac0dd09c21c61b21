"""Listeners that hang up leave nothing behind. `bench.listen` does the same with ten times as many."""

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from bench import load
from bench.streams import Stream, nobody
from perdure import TaskContext, Tasks
from tests.support import eventually
from tests.wire.support import Stage, stage

CONNECTS: Final = 1_000
AT_ONCE: Final = 16


def declare(tasks: Tasks) -> None:
    @tasks.tool()
    async def wait(task: TaskContext) -> None:
        await task.sleep("1h")


@dataclass(frozen=True)
class Held:
    streams: int
    tasks: int
    handles: int


def held(scene: Stage) -> Held:
    """What this process has open, server and clients."""
    return Held(
        scene.tasks.assembly.runtime.snapshots.subscribed,
        len(asyncio.all_tasks()),
        len(list(Path("/proc/self/fd").iterdir())),
    )


async def come_and_go(port: int, task_ids: list[str], connects: int) -> None:
    """Listen and hang up: every third at once, before it can have been answered, the others when they were."""
    loop, numbers = asyncio.get_running_loop(), iter(range(connects))
    requests = itertools.cycle([load.listen(*task_ids), *map(load.listen, task_ids)])

    async def work() -> None:
        for number in numbers:
            request = next(requests)
            _, stream = await loop.create_connection(lambda request=request: Stream(request, nobody), "127.0.0.1", port)
            if number % 3:
                await stream.ready
            stream.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def test_a_thousand_listeners_that_hang_up_leave_no_stream_no_task_and_no_file_handle(tmp_path: Path) -> None:
    async with stage(tmp_path, declare) as scene:
        port = httpx2.URL(scene.client.url).port
        assert port is not None
        task_ids = [await scene.client.start("wait") for _ in range(3)]
        await come_and_go(port, task_ids, AT_ONCE)  # what the first ones bring with them stays
        await eventually(lambda: held(scene).streams == 0, "the first ones are gone")
        before = held(scene)

        await come_and_go(port, task_ids, CONNECTS)

        def gone() -> bool:
            now = held(scene)
            return now.streams == 0 and now.tasks <= before.tasks and now.handles <= before.handles

        await eventually(gone, f"what they held is given back: {before}")
        assert (await scene.client.get(task_ids[0])).result["status"] == "working"
