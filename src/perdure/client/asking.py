"""Answering a task's questions through the client's callbacks, each once, whatever crashes and whoever else waits.

How a question is asked once is `once`'s. An answer that is on record is marked once the server has it: who comes after
a crash in between sends it, and asks nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from . import questions
from .errors import AnswerRefused, JournalUnusable, TaskLost
from .failpoints import reach
from .journal import Record
from .link import Link
from .once import answer_once
from .snapshot import Snapshot

__all__ = ["Asker", "send"]


logger = logging.getLogger(__name__)


class Asker:
    """Asks what one task has to ask, beside its wait, in that wait's task group."""

    def __init__(self, link: Link, record: Record, task_id: str, group: TaskGroup) -> None:
        self._link = link
        self._record = record
        self._task_id = task_id
        self._group = group
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._answered: set[str] = set()
        self._erased: set[str] = set()

    def look(self, snapshot: Snapshot, *, ask: bool) -> None:
        """Begin to ask what is new among the questions, and stop asking what was answered elsewhere.

        `ask`: False only sends what is on record, as after a crash, or where the server had no time for it.
        """
        for key in self._scopes.keys() - snapshot.questions.keys():
            self._scopes.pop(key).cancel()
        for key in self._answered - self._erased - snapshot.questions.keys():
            self._erase(key)
        for key, request in snapshot.questions.items():
            if key in self._scopes or key in self._answered:
                continue
            self._carry(key, request)
            if ask:
                scope = self._scopes[key] = anyio.CancelScope()
                self._group.start_soon(self._ask, key, request, scope)
            elif (response := self._link.journal.unsent(self._record, key)) is not None:
                self._answered.add(key)
                self._group.start_soon(send, self._link, self._record, self._task_id, {key: response})

    def _carry(self, key: str, request: object) -> None:
        """What was said to the same question before there was a task, in a round that did not come through."""
        self._link.journal.carry(self._record, questions.place("*", questions.digest(key, request)), key)

    def _erase(self, key: str) -> None:
        self._erased.add(key)
        _put(self._link.journal.erase, self._record, key)

    async def _ask(self, key: str, request: object, scope: anyio.CancelScope) -> None:
        response: object = None
        with scope:
            response = await self._response(key, request)
        # Unless it was asked anew meanwhile, in a scope that is still to be cancelled.
        if self._scopes.get(key) is scope:
            del self._scopes[key]
        if response is not None:
            await send(self._link, self._record, self._task_id, {key: response})

    async def _response(self, key: str, request: object) -> object:
        """The answer that is still to be sent; None if it was."""
        session, task_id = self._link.remote.session, self._task_id
        response = await answer_once(
            self._link.journal,
            self._record,
            key,
            lambda: questions.ask(session, task_id, key, request),
            claimed="question claimed",
            answered="question answered",
        )
        self._answered.add(key)
        return response


async def send(
    link: Link, record: Record, task_id: str, responses: dict[str, object], *, within: float = math.inf
) -> None:
    """Send answers that are on record, and note that the server has them.

    Raises:
        AnswerRefused: it takes none of them; they are off the record.
        TaskError: they can't be sent.
    """
    reach("answer recorded")
    deadline = anyio.current_time() + within
    try:
        await link.insist(task_id, lambda: link.remote.update(task_id, responses), within=within)
    except TaskLost as lost:
        await _refused(link, record, task_id, responses, lost, within=max(0.0, deadline - anyio.current_time()))
    reach("answer sent")
    for key in responses:
        _put(link.journal.sent, record, key)
    reach("answer marked")


async def _refused(
    link: Link, record: Record, task_id: str, responses: dict[str, object], lost: TaskLost, *, within: float
) -> None:
    """-32602 is said of an unknown task and of an answer that does not fit. Whether there is the task tells which."""
    await link.insist(task_id, lambda: link.remote.get(task_id), within=within)
    for key in responses:
        _put(link.journal.refused, record, key)
    cause = lost.__cause__
    if not isinstance(cause, MCPError):
        raise lost
    raise AnswerRefused(task_id, tuple(responses), cause.error) from cause


def _put(verb: Callable[[Record, str], None], record: Record, key: str) -> None:
    """Whatever the journal says to that: what the server has said goes before its trouble, and is told again later."""
    try:
        verb(record, key)
    except JournalUnusable:
        logger.exception("the journal does not take what came of the answer to %r of %s", key, record.task_id)
