"""Another system, as the tests play it, and tools that wait for it."""

import asyncio

from perdure import Finished, Handle, StepFailed, SyncTaskContext, TaskContext, Tasks
from tests.support import eventually


class Elsewhere:
    """Remembers what it was given. `declare` is what `stage` takes."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        """Of the work that it was given, again for each time."""
        self.cancelled: list[Handle] = []
        self.found: dict[str, Finished] = {}
        """What a look finds, by task."""
        self.ran: list[str] = []

    def take(self, handle: Handle) -> None:
        self.handles.append(handle)

    async def take_async(self, handle: Handle) -> None:
        await asyncio.sleep(0)
        self.handles.append(handle)

    async def stop(self, handle: Handle) -> None:
        self.cancelled.append(handle)

    async def look(self, handle: Handle) -> Finished | None:
        assert handle in self.handles
        return self.found.get(handle.task_id)

    async def given(self, count: int = 1) -> Handle:
        """The handle of the newest work, once it was given that many."""
        await eventually(lambda: len(self.handles) >= count, "nothing was handed over")
        return self.handles[-1]

    def declare(self, tasks: Tasks) -> None:
        for function in (self.render, self.render_sync, self.stoppable, self.impatient, self.looked_at, self.two):
            tasks.tool(poll_interval="50ms")(function)

    async def render(self, task: TaskContext) -> str:
        self.ran.append("render")
        return repr(await task.external("render", self.take))

    def render_sync(self, task: SyncTaskContext) -> str:
        return repr(task.external("render", self.take_async))

    async def stoppable(self, task: TaskContext) -> str:
        return repr(await task.external("render", self.take, cancel=self.stop))

    async def impatient(self, task: TaskContext) -> str:
        try:
            return repr(await task.external("render", self.take, cancel=self.stop, timeout="1s"))
        except StepFailed as failed:
            return f"{failed.type}: {failed.message}"

    async def looked_at(self, task: TaskContext) -> str:
        try:
            return repr(await task.external("render", self.take_async, poll=self.look, every="50ms"))
        except StepFailed as failed:
            return f"{failed.type}: {failed.message}"

    async def two(self, task: TaskContext) -> str:
        both = await task.gather(task.external("one", self.take), task.external("two", self.take))
        return repr(list(both))
