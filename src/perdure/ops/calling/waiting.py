"""Waiting for tasks while a person looks on: lines for what changes, live lines for what goes on, questions.

Two things wait for each task, on one watcher: the client's `result`, which asks what there is to ask, and a look at its
states, which shows them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from perdure.client import TERMINAL, AnswerRefused, Snapshot, TaskError, TaskHandle
from perdure.client.link import alone
from perdure.ops import text

from . import answering
from .hints import Hints
from .outcome import WORKING, Code, Outcome, of_error, of_result
from .screen import Screen, Style

__all__ = ["Row", "Waiting", "busy"]

_REFRESH: Final = 0.5
"""Seconds between two paintings of the live lines."""
_NO_ANSWER: Final = "The server does not answer"
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
    in_trouble: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is shown of it."""
        return self.outcome is not None or (self.snapshot is not None and self.snapshot.is_terminal)

    def left(self, words: str, *, code: Code = Code.RUNNING) -> Outcome:
        """What came of it if it goes on by itself."""
        seen, handle = self.snapshot, self.handle
        outcome = Outcome(code, WORKING, words, id=handle.id, tool=handle.tool)
        return outcome if seen is None else replace(outcome, status=seen.status, questions=seen.questions)


class Waiting:
    """Waits for tasks, within `seconds` from now, whatever is asked and answered meanwhile.

    `asks`: whether questions are put by the client's callback. `tells`: whether those that are not are shown, with how
    to answer them. `leaves`: whether one that is not ends the wait. `named`: whether each line says whose it is.
    """

    def __init__(
        self,
        screen: Screen,
        hints: Hints,
        *,
        seconds: float | None = None,
        asks: bool = False,
        tells: bool = True,
        leaves: bool = False,
        named: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._screen = screen
        self._hints = hints
        self._rows: list[Row] = []
        self._deadline = None if seconds is None else anyio.current_time() + seconds
        self._asks = asks
        self._tells = tells and not asks
        self._leaves = leaves and not asks
        self._named = named
        self._now = now

    async def run(self, rows: Sequence[Row]) -> None:
        """Wait for these; what came of each is in the row.

        Raises:
            Exception: what is no outcome of a task.
        """
        async with self.painted():
            await self.wait(rows)

    @asynccontextmanager
    async def painted(self) -> AsyncGenerator[None]:
        """A block in which there are live lines of what is waited for."""
        async with painted(self._screen, lambda: [self._live(row) for row in self._rows if not row.is_over]):
            yield

    async def wait(self, rows: Sequence[Row]) -> None:
        """As `run`, within `painted`. May be called for several servers at a time."""
        self._rows += rows
        try:
            async with anyio.create_task_group() as waits:
                for row in rows:
                    waits.start_soon(self._one, row)
        except BaseExceptionGroup as several:
            raise alone(several) from None

    # -- one task ------------------------------------------------------------------------------------------------------

    async def _one(self, row: Row) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._look, row, group.cancel_scope)
            group.start_soon(self._mind_trouble, row)
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
                outcome = of_error(error, id=handle.id, tool=handle.tool, hints=self._hints)
                if outcome is None:
                    raise
                return row.left(outcome.words + self._away(row)) if outcome.code is Code.RUNNING else outcome
            else:
                return of_result(result, id=handle.id, tool=handle.tool, is_task=handle.is_task)

    @staticmethod
    def _away(row: Row) -> str:
        trouble = row.handle.trouble
        return "" if trouble is None else f". {_NO_ANSWER}: {trouble}"

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - anyio.current_time())

    async def _look(self, row: Row, scope: anyio.CancelScope) -> None:
        try:
            async with aclosing(row.handle.updates()) as updates:
                async for snapshot in updates:
                    self._see(row, snapshot)
                    if self._leaves and snapshot.questions:
                        row.outcome = row.left("The task waits for an answer")
                        scope.cancel()
        except TaskError:
            return  # `_outcome` says it

    async def _mind_trouble(self, row: Row) -> None:
        """Say that a server does not answer, and that it does again; each once."""
        while True:
            trouble = row.handle.trouble
            if trouble is not None and not row.in_trouble:
                self._screen.say(f"{self._prefix(row)}{_NO_ANSWER}: {text.line(str(trouble))}; asked again", "bad")
            elif trouble is None and row.in_trouble:
                self._screen.say(f"{self._prefix(row)}The server answers again")
            row.in_trouble = trouble is not None
            await anyio.sleep(_REFRESH)

    # -- what is shown -------------------------------------------------------------------------------------------------

    def _see(self, row: Row, snapshot: Snapshot) -> None:
        row.snapshot = snapshot
        self._say(row, snapshot.status, snapshot.message)
        if self._tells:
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
        for line in answering.told(row.handle.id, fresh, self._hints, several=len(snapshot.questions) > 1):
            self._screen.say(line, "asks")

    def _prefix(self, row: Row) -> str:
        return f"{text.line(row.handle.id)}  " if self._named else ""

    def _live(self, row: Row) -> str:
        status = "asking" if row.snapshot is None else text.line(row.snapshot.status)
        if row.in_trouble:
            status = "no answer"
        poll = row.handle.next_poll
        news = "listening" if poll is None else f"next poll in {poll:.0f} s"
        return f"{self._prefix(row)}{text.span(self._now() - row.begun):>6}  {status}, {news}"


def busy(screen: Screen, doing: str) -> AbstractAsyncContextManager[None]:
    """A block in which a live line says what goes on: a tool without tasks takes its time, and so does a server."""
    begun = time.time()
    return painted(screen, lambda: [f"{text.span(time.time() - begun):>6}  {text.line(doing)}"])


@asynccontextmanager
async def painted(screen: Screen, lines: Callable[[], Iterable[str]]) -> AsyncGenerator[None]:
    """A block in which these live lines are on the screen, anew every half second."""

    async def paint() -> None:
        while screen.live:
            screen.show(lines())
            await anyio.sleep(_REFRESH)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(paint)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        raise alone(several) from None
    finally:
        screen.wipe()
