"""Answering a task's questions through the client's callbacks, each once, whatever crashes and whoever else waits.

A question is claimed in the journal before the user sees it, so that of several processes one asks. The answer is put
on record before it is sent, and marked once the server has it: who comes after a crash sends it, and asks nothing. The
one moment that nothing can cover lies between the user's answer and the record of it; that question is asked again.
"""

from __future__ import annotations

import math
from typing import Final

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from . import questions
from .errors import AnswerRefused, TaskLost
from .failpoints import reach
from .journal import Answered, Record
from .link import Link
from .snapshot import Snapshot

__all__ = ["Asking", "send"]

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether a question that another process asks is free again. A look is one small read."""


class Asking:
    """Asks what one task has to ask, beside its wait, in that wait's task group."""

    def __init__(self, link: Link, record: Record, task_id: str, group: TaskGroup) -> None:
        self._link = link
        self._record = record
        self._task_id = task_id
        self._group = group
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._answered: set[str] = set()

    def look(self, snapshot: Snapshot) -> None:
        """Begin to ask what is new among the questions, and stop asking what was answered elsewhere."""
        for key in self._scopes.keys() - snapshot.questions.keys():
            self._scopes.pop(key).cancel()
        for key, request in snapshot.questions.items():
            if key not in self._scopes and key not in self._answered:
                scope = self._scopes[key] = anyio.CancelScope()
                self._group.start_soon(self._ask, key, request, scope)

    async def _ask(self, key: str, request: object, scope: anyio.CancelScope) -> None:
        response: object = None
        with scope:
            response = await self._response(key, request)
        self._scopes.pop(key, None)
        if response is not None:
            # From here on it is not the question that is waited for.
            self._answered.add(key)
            await send(self._link, self._record, self._task_id, {key: response})

    async def _response(self, key: str, request: object) -> object:
        """The answer that is still to be sent; None if it was."""
        while True:
            found = self._link.journal.claim(self._record, key)
            if isinstance(found, Answered):
                self._answered.add(key)
                return found.response
            if found.mine:
                return await self._asked(key, request)
            await anyio.sleep(_LOOK_EVERY)

    async def _asked(self, key: str, request: object) -> object:
        reach("question claimed")
        try:
            response = await questions.ask(self._link.remote.session, self._task_id, key, request)
        except BaseException:
            self._link.journal.release(self._record, key)
            raise
        reach("question answered")
        self._link.journal.answer(self._record, key, response)
        # Somebody may have answered by hand meanwhile, and the first answer counts.
        found = self._link.journal.claim(self._record, key)
        return found.response if isinstance(found, Answered) else None


async def send(
    link: Link, record: Record, task_id: str, responses: dict[str, object], *, within: float = math.inf
) -> None:
    """Send answers that are on record, and note that the server has them.

    Raises:
        AnswerRefused: it takes none of them; they are off the record.
        TaskError: they can't be sent.
    """
    reach("answer recorded")
    try:
        await link.insist(task_id, lambda: link.remote.update(task_id, responses), within=within)
    except TaskLost as lost:
        await _refused(link, record, task_id, responses, lost)
    reach("answer sent")
    for key in responses:
        link.journal.sent(record, key)
    reach("answer marked")


async def _refused(link: Link, record: Record, task_id: str, responses: dict[str, object], lost: TaskLost) -> None:
    """-32602 is said of an unknown task and of an answer that does not fit. Whether there is the task tells which."""
    await link.insist(task_id, lambda: link.remote.get(task_id))
    for key in responses:
        link.journal.refused(record, key)
    cause = lost.__cause__
    if not isinstance(cause, MCPError):
        raise lost
    raise AnswerRefused(task_id, tuple(responses), cause.error) from cause
