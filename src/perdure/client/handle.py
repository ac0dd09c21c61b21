"""A task that a program holds on to: look at it, follow it, answer it, stop it, wait for its result."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, ParamSpec

import anyio
from mcp_types import INTERNAL_ERROR, CallToolResult, ErrorData
from pydantic import BaseModel, ValidationError

from perdure.domain.policy import Duration

from . import asking, questions
from .errors import (
    ClientError,
    JournalUnusable,
    Malformed,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskLost,
    TaskTimedOut,
)
from .failpoints import reach
from .journal import Record
from .link import Link, alone
from .pace import seconds
from .snapshot import Snapshot
from .watched import Watched

__all__ = ["TaskHandle"]

P = ParamSpec("P")

logger = logging.getLogger(__name__)

_PATIENCE: Final = 60.0
"""Seconds in which a single request has to come through, tries and pauses together."""
_STOP_WITHIN: Final = 5.0
"""Seconds that a wait which is cancelled takes to ask its task to stop."""


class TaskHandle:
    """A task, or a call that was answered at once and needed none. Made by `Tasks.start` and `Tasks.resume`.

    Attributes:
        id: the task's id; of a call that needed no task, its idempotency key.
        tool: the name of the tool; empty if a task is resumed that the journal does not know.
        is_task: whether there is a task.
        is_on_record: whether the journal has the task. If not (a call that needed none; a disk that was full just
            then), nobody can resume it once this process has ended, other than by its id.
    """

    def __init__(
        self,
        link: Link,
        record: Record,
        known: Snapshot | None = None,
        settled: CallToolResult | None = None,
        *,
        is_on_record: bool = True,
    ) -> None:
        self._link = link
        self._record = record
        self._settled = settled
        self.id = record.task_id or record.key
        whole = known if known is not None and known.is_whole else None
        self._watched = Watched(self.id, whole, anyio.current_time())
        self.tool = record.tool
        self.is_task = settled is None
        self.is_on_record = is_on_record and self.is_task
        self._is_lost = record.status == "lost"

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id} of {self.tool!r}>"

    @property
    def next_poll(self) -> float | None:
        """Seconds until the server is asked next; None: it tells by itself, or nobody waits for the task here."""
        watched = self._watched
        if watched.heard or not watched.waiters:
            return None
        # While it is being asked, nothing is planned.
        return 0.0 if watched.polling else max(0.0, watched.due - anyio.current_time())

    @property
    def trouble(self) -> Exception | None:
        """Why the last poll of a wait came to nothing, and is tried again; None: it was answered, or nothing is known.

        `next_poll` says when. It is there to be shown: a wait ends by itself where waiting is no use.
        """
        return self._watched.trouble

    async def status(self) -> Snapshot:
        """Ask the server how the task is: one `tasks/get`, made again if it does not come through within a minute.

        Raises:
            TaskLost, TaskExpired: it is no more.
            Unavailable: there is no answer.
        """
        if self._settled is not None:
            return _made_of(self.id, self._settled)
        get = self._link.remote.get
        with self._noting_the_end():
            snapshot = await self._link.insist(self.id, lambda: get(self.id), within=_PATIENCE)
            self._watched.answer(snapshot, anyio.current_time())
            return self._note(snapshot)

    async def updates(self) -> AsyncGenerator[Snapshot]:
        """Each state of the task that is seen, from the one it is in to the terminal one, and then the end.

        They come by a stream where the server has them and by polls where not, and never go backwards; a state that
        passed quickly may be left out. Questions are shown and not answered: see `answer`.

        Raises:
            TaskError: nothing more can be known of the task.
        """
        if self._settled is not None:
            yield _made_of(self.id, self._settled)
            return
        async with self._watching() as watched:
            with self._noting_the_end():
                async for snapshot in watched.news():
                    yield self._note(snapshot)

    async def answer(self, responses: Mapping[str, BaseModel | Mapping[str, Any]]) -> frozenset[str]:
        """Answer questions by their keys, some or all: an `ElicitResult`, say, or the same as a dictionary.

        The server is asked first which are open. An answer to any other key is dropped, as the server would, and is not
        on record: should that question be asked later, it is asked. The others are on record before they are sent. A
        question that has its answer keeps it, whoever gave it; none of them is asked by `result` afterwards. If it was
        sent before and is open all the same, that answer is sent once more.

        Returns:
            The keys that were open, and whose answers the server has now. Of any other key nothing was sent: that
            question is not asked, or not any more.

        Raises:
            Unsendable: one of them is no answer, or has no JSON form. Nothing is on record, and nothing was sent.
            AnswerRefused: one of them does not fit its question, and none was taken.
            TaskLost, TaskExpired: the task is no more.
            Unavailable: they did not come through within a minute. If they were on record, the next wait sends them.
        """
        answers = {key: questions.as_sent(response) for key, response in responses.items()}
        asked = (await self.status()).questions.keys() & answers.keys()
        fresh: dict[str, object] = {}
        for key in asked:
            self._link.journal.answer(self._record, key, answers[key])
            if (said := self._link.journal.given(self._record, key)) is not None:
                fresh[key] = said
        if fresh:
            await asking.send(self._link, self._record, self.id, fresh, within=_PATIENCE)
        return frozenset(asked)

    async def cancel(self) -> None:
        """Ask the task to stop; returns before it does. A task that is over stays as it is.

        Raises:
            TaskLost, TaskExpired: the task is no more.
            Unavailable: the request did not come through within a minute.
        """
        if self._settled is not None:
            return
        with self._noting_the_end():
            await self._link.insist(self.id, lambda: self._link.remote.cancel(self.id), within=_PATIENCE)

    async def result(self, timeout: Duration | None = None, *, ask: bool = True) -> CallToolResult:  # noqa: ASYNC109
        """Wait for the tool's result, and answer the task's questions through the client's callbacks meanwhile.

        Several may wait for one task. If the caller is cancelled, `Tasks(on_cancel=…)` says whether the task is.

        Args:
            timeout: seconds, or as in "10 minutes", of everything together; None: for ever.
            ask: False leaves the questions to `answer`, or to another process. Answers on record are sent all the same.

        Raises:
            TaskFailed, TaskCancelled, TaskExpired, TaskLost: there is no result and never will be.
            TaskTimedOut: there is none yet.
            InputDeclined, AnswerRefused: a question is open that the client's callback did not answer well.
            Disconnected: the session is over.
            Exception: whatever a callback raises. The task waits on, in this case and the last two.
        """
        within = seconds(timeout)
        if self._settled is not None:
            return self._settled
        try:
            with anyio.move_on_after(within), self._noting_the_end():
                return self._outcome(await self._end(ask=ask))
        except anyio.get_cancelled_exc_class():
            if self._link.on_cancel == "cancel":
                # Whatever comes of asking, the caller is cancelled, and not told of an error.
                with suppress(ClientError), anyio.move_on_after(_STOP_WITHIN, shield=True):
                    await self.cancel()
            raise
        raise TaskTimedOut(self, within or 0.0) from self.trouble

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _end(self, *, ask: bool) -> Snapshot:
        last = Snapshot(self.id, "working")
        try:
            async with self._watching() as watched, anyio.create_task_group() as group:
                asks = asking.Asker(self._link, self._record, self.id, group)
                async for snapshot in watched.news():
                    last = snapshot
                    self._regain()
                    asks.look(snapshot, ask=ask)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise alone(several) from None
        return last

    @asynccontextmanager
    async def _watching(self) -> AsyncGenerator[Watched]:
        async with self._link.watcher().watching(self._watched) as self._watched:
            yield self._watched

    def _note(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.is_terminal:
            self._settle(snapshot.status)
        else:
            self._regain()
        return snapshot

    def _regain(self) -> None:
        """The server knows the task, whatever it said before."""
        if self._is_lost:
            self._is_lost = False
            self._put(self._link.journal.regain, self._record)

    def _settle(self, status: str) -> None:
        self._put(self._link.journal.settle, self._record, status)

    def _put(self, verb: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except JournalUnusable:
            # What there is to come back to has come. It is looked at again after a restart, and that is all.
            logger.exception("the journal does not take what has become of the task %s", self.id)

    @contextmanager
    def _noting_the_end(self) -> Generator[None]:
        """A task that has expired is nothing to come back to. One that is not known may be, as with another token."""
        try:
            yield
        except TaskExpired:
            self._settle("expired")
            raise
        except TaskLost:
            self._is_lost = True
            self._put(self._link.journal.lose, self._record)
            raise

    def _outcome(self, snapshot: Snapshot) -> CallToolResult:
        reach("result seen")
        self._note(snapshot)
        reach("result settled")
        match snapshot.status:
            case "completed":
                return _result(snapshot)
            case "failed":
                raise TaskFailed(self.id, _error(snapshot))
            case _:
                raise TaskCancelled(self.id)


def _result(snapshot: Snapshot) -> CallToolResult:
    try:
        return CallToolResult.model_validate(snapshot.result, by_name=False)
    except ValidationError as error:
        raise Malformed(snapshot.id, "The task completed, and its result is not one of a tool") from error


def _error(snapshot: Snapshot) -> ErrorData:
    try:
        return ErrorData.model_validate(snapshot.error)
    except ValidationError:
        return ErrorData(code=INTERNAL_ERROR, message=snapshot.message or "The server did not say why")


def _made_of(id: str, result: CallToolResult) -> Snapshot:
    said = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return Snapshot(id, "completed", result=said, raw={"taskId": id, "status": "completed", "result": said})
