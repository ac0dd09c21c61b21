"""Another system that owns work: takes it, keeps its handle, and reports when told."""

from collections.abc import Awaitable, Callable
from typing import cast

from perdure.domain.errors import StepFailed
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState
from perdure.domain.model import JSON, Completed, JSONObject, Outcome
from perdure.engine.external import External, external
from perdure.engine.run import Run
from perdure.store.base import Store
from tests.engine.support import Work

BROKEN: JSONObject = {"type": "RenderError", "message": "no such scene", "detail": {"scene": 7}}


class Farm:
    """The other system: remembers what it was given, and reports when told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.started: list[Handle] = []
        self.cancelled: list[Handle] = []
        self.on_start: Callable[[], Awaitable[None]] | None = None

    async def start(self, handle: Handle) -> None:
        self.started.append(handle)
        if self.on_start is not None:
            await self.on_start()

    async def cancel(self, handle: Handle) -> None:
        self.cancelled.append(handle)

    async def report(self, result: JSON = "picture", state: EntryState = EntryState.DONE) -> None:
        handle = self.started[-1]
        await self.store.settle(handle.task_id, handle.place, handle.token, state, result)

    def work(self, *, timeout_ms: int | None = None, cancel: bool = False) -> Work:
        """A tool that has something rendered there."""
        what = External("render", self.start, self.cancel if cancel else None, timeout_ms=timeout_ms)

        async def work(run: Run, params: JSONObject) -> Outcome:
            try:
                result = await external(run, what)
            except StepFailed as failed:
                return Completed(
                    {"type": failed.type, "message": failed.message, "detail": cast("JSON", failed.detail)}
                )
            return Completed({"result": result})

        return work
