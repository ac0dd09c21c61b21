"""Waiting for tasks while a person looks on: lines for what changes, live lines for what goes on, questions.

Two things wait for each task, on one watcher: the client's `result`, which asks what there is to ask, and a look at its
states, which shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import anyio

from perdure.client import TERMINAL, AnswerRefused, Snapshot, TaskError, TaskHandle
from perdure.client.link import alone
from perdure.ops import text

from . import answering
from .outcome import Code, Outcome, of_error, of_result
from .screen import Screen, Style

__all__ = ["Row", "Waiting", "left"]

_REFRESH: Final = 0.5
"""Seconds between two paintings of the live lines."""
_STYLES: Final[dict[str, Style]] = {
    "completed": "good",
    "failed": "bad",
    "cancelled": "bad",
    "input_required": "asks",
}


@dataclass(eq=False, slots=True)
class Row:
    """A task that is waited for. `begun`: when it was called, by this machine's clock."""

    handle: TaskHandle
    begun: float
    snapshot: Snapshot | None = None
    outcome: Outcome | None = None
    told: set[str] = field(default_factory=set[str])
    said: tuple[str, str | None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is shown of it."""
        return self.outcome is not None or (self.snapshot is not None and self.snapshot.is_terminal)


class Waiting:
    """Waits for the tasks in `rows`, within `seconds` from now, whatever is asked and answered meanwhile.

    `asks`: whether questions are put by the client's callback. `leaves`: whether a question that is not ends the wait.
    """

    def __init__(
        self,
        screen: Screen,
        rows: Sequence[Row],
        *,
        seconds: float | None = None,
        asks: bool = False,
        leaves: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._screen = screen
        self._rows = rows
        self._deadline = None if seconds is None else anyio.current_time() + seconds
        self._asks = asks
        self._leaves = leaves
        self._now = now

    async def run(self) -> list[Outcome]:
        """What came of each.

        Raises:
            Exception: what is no outcome of a task.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._paint)
                async with anyio.create_task_group() as waits:
                    for row in self._rows:
                        waits.start_soon(self._one, row)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise alone(several) from None
        finally:
            self._screen.wipe()
        return [row.outcome for row in self._rows if row.outcome is not None]

    # -- one task ------------------------------------------------------------------------------------------------------

    async def _one(self, row: Row) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._look, row, group.cancel_scope)
            row.outcome = await self._outcome(row)
            group.cancel_scope.cancel()
        if row.outcome is not None and row.outcome.status in TERMINAL:
            self._say(row, row.outcome.status, row.snapshot and row.snapshot.message)

    async def _outcome(self, row: Row) -> Outcome:
        handle = row.handle
        while True:
            try:
                result = await handle.result(self._left(), ask=self._asks)
            except AnswerRefused as refused:
                # What the person said did not please the server, which is asked again what it wants.
                self._screen.say(text.line(str(refused)), "bad")
                if not self._asks:
                    raise
            except Exception as error:
                outcome = of_error(error, id=handle.id, tool=handle.tool)
                if outcome is None:
                    raise
                return outcome
            else:
                return of_result(result, id=handle.id, tool=handle.tool, is_task=handle.is_task)

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - anyio.current_time())

    async def _look(self, row: Row, scope: anyio.CancelScope) -> None:
        try:
            async with aclosing(row.handle.updates()) as updates:
                async for snapshot in updates:
                    self._see(row, snapshot)
                    if self._leaves and snapshot.questions and not self._asks:
                        row.outcome = left(row.handle, "The task waits for an answer")
                        scope.cancel()
        except TaskError:
            return  # `_outcome` says it

    # -- what is shown -------------------------------------------------------------------------------------------------

    def _see(self, row: Row, snapshot: Snapshot) -> None:
        row.snapshot = snapshot
        self._say(row, snapshot.status, snapshot.message)
        if not self._asks:
            self._tell(row, snapshot)

    def _say(self, row: Row, status: str, message: str | None) -> None:
        """The line of a state, unless it is the one that was said last."""
        said = (status, message)
        if said == row.said or not row.handle.is_task or (row.said and row.said[0] in TERMINAL):
            return
        row.said = said
        words = f"{self._prefix(row)}{text.span(self._now() - row.begun):>6}  {text.line(status)}"
        self._screen.say(f"{words}  {text.line(message or '')}".rstrip(), _STYLES.get(status))

    def _tell(self, row: Row, snapshot: Snapshot) -> None:
        """Questions that nobody is asked here, and how to answer them; each once."""
        fresh = {key: asked for key, asked in snapshot.questions.items() if key not in row.told}
        if not fresh:
            return
        row.told.update(fresh)
        for line in answering.told(row.handle.id, fresh, several=len(snapshot.questions) > 1):
            self._screen.say(line, "asks")

    def _prefix(self, row: Row) -> str:
        return f"{text.line(row.handle.id)}  " if len(self._rows) > 1 else ""

    async def _paint(self) -> None:
        while self._screen.live:
            self._screen.show(self._live(row) for row in self._rows if not row.is_over)
            await anyio.sleep(_REFRESH)

    def _live(self, row: Row) -> str:
        status = "asking" if row.snapshot is None else text.line(row.snapshot.status)
        poll = row.handle.next_poll
        news = "listening" if poll is None else f"next poll in {poll:.0f} s"
        return f"{self._prefix(row)}{text.span(self._now() - row.begun):>6}  {status}, {news}"


def left(handle: TaskHandle, words: str, *, code: Code = Code.RUNNING) -> Outcome:
    """What came of a task that goes on by itself."""
    return Outcome(code, "running", words, id=handle.id, tool=handle.tool)
