"""A task tool called without the extension: a durable task all the same, and a request that waits for it.

The client sees an ordinary tool call. Beneath it lies the same task, run by the same workers, so a tool has one way of
running, whoever calls it. The request waits up to `timeout`. If the tool asks something, the request ends with the
question (MRTR, `resultType: "input_required"`) and the handle goes along in `requestState`, which the SDK's boundary
seals and binds to the principal and the arguments; the retry carries on with the same task.

Nobody but this request knows the handle. So when it ends without a result (the deadline, a client that hung up) the
work is cancelled: a result that nobody can fetch is not worth its cost. For the same reason such a task lives an hour
at most, whatever its tool says. What was asked can be answered for as long as the SDK takes the state that went along;
where that is known, work that nobody came back for is stopped then (`engine.unanswered`). A client that knows tasks,
and whose call took longer than it may, gets the handle after all, with that ttl in it: the store has no way to give a
task a longer one.

A call with an idempotency key is different: its client can come back and find the task. So nothing but the end of its
hour ends that work, neither a client that hung up nor the deadline. Its handle in `requestState` says so, in case a
retry leaves the key out.

Meanwhile the task's messages go out as progress of the request, if it asked for that; some may be folded into the next.

A store that is away for a moment costs time only, as everywhere; the deadline bounds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, InputResponses

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId, PerdureError, TaskExpired, TaskNotFound
from perdure.domain.model import JSON, NewTask, Owner, Status, Task
from perdure.engine import patience
from perdure.engine.runtime import Runtime
from perdure.tools.kinds import kind_of, unsupported_kind

from . import answers, render
from .errors import out_of_time
from .pacing import ask

__all__ = ["Caller", "Inline", "outcome"]

logger = logging.getLogger(__name__)

_STATE_PREFIX: Final = "perdure/inline:"
_KEPT_PREFIX: Final = "perdure/kept:"
"""Begins the state of a call with an idempotency key."""
_LOOK_EVERY: Final = 0.25
"""Seconds between looks at the store while nothing wakes us: the task may be run by another process."""
_LONGEST_MS: Final = 3_600_000
"""An hour: all that is asked has to be answered within it."""
_CLEANUP: Final = 2.0
"""Seconds that cancelling the work of a call may take at the call's end."""
_ON_ITS_WAY: Final = 10.0
"""Seconds for an answer that came at the last moment to be stored."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who waits.

    `tool`: what it called. `kinds`: the input that it can give. `declared`: it knows tasks, so what takes longer than
    it may becomes one after all. `show`: takes a message of the task, and which one of this request it is, from 1.
    """

    tool: str
    kinds: frozenset[str]
    declared: bool
    show: Callable[[int, str], Awaitable[None]]


@dataclass(slots=True)
class _Seen:
    """A task as it was when somebody last looked, and how many of its messages were shown."""

    task: Task
    shown: int = 0


class Inline:
    """Runs task tools inside the request. `timeout_ms` bounds the wait of each request.

    `state_lives`: for how many seconds the state of a request is good; None if that is not known.
    """

    def __init__(
        self, runtime: Runtime, timeout_ms: int, state_lives: Callable[[], float | None] = lambda: None
    ) -> None:
        self._runtime = runtime
        self._timeout = timeout_ms / 1000
        self._state_lives = state_lives

    def owns(self, request_state: str | None) -> bool:
        """Whether a retry carries a handle of ours (already unsealed), rather than a tool's own state."""
        return request_state is not None and request_state.startswith((_STATE_PREFIX, _KEPT_PREFIX))

    async def start(self, new: NewTask, caller: Caller) -> dict[str, Any]:
        """Create the task and wait for its result, or for its first question.

        The task's ttl is the tool's, or an hour where that is longer or unlimited.

        Raises:
            MCPError: the task's own error; -32021 past the deadline, for a client that knows no tasks.
            StoreUnavailable: nothing was created.
        """
        ttl_ms = _LONGEST_MS if new.ttl_ms is None else min(new.ttl_ms, _LONGEST_MS)
        begun = self._runtime.backlog.create(replace(new, ttl_ms=ttl_ms))
        return await self._see_through(begun, new.owner, new.id, caller, kept=new.key is not None)

    async def join(self, task: Task, caller: Caller) -> dict[str, Any]:
        """Wait for a task that an earlier call under the same idempotency key created.

        Raises:
            MCPError: as `start`.
        """
        return await self._see_through(_there(task), task.owner, task.id, caller, kept=True)

    async def carry_on(
        self, owner: Owner, request_state: str, responses: InputResponses | None, caller: Caller
    ) -> dict[str, Any]:
        """Hand the answers of a retry to the task that its state names, and wait again.

        Raises:
            MCPError: as `start`; -32602 if an answer does not fit, or the task is gone.
            LimitExceeded: an answer is too large.
            PolledTooOften: there were too many retries.
            StoreUnavailable: the answers may be handed in again.
        """
        store, (task_id, kept) = self._runtime.store, _opened(request_state)
        ask(self._runtime.pace, owner, task_id)
        try:
            questions = await store.open_questions(owner, task_id)
        except (TaskNotFound, TaskExpired) as error:
            raise MCPError(INVALID_PARAMS, "The call that this answer belongs to is over") from error
        given = answers.check(questions, _plain(responses), self._runtime.options.limits)
        begun = store.answer(owner, task_id, given)
        return await self._see_through(begun, owner, task_id, caller, kept=kept)

    async def _see_through(
        self, begun: Coroutine[Any, Any, Task], owner: Owner, task_id: str, caller: Caller, *, kept: bool
    ) -> dict[str, Any]:
        """Await `begun`, which sets the task going, and then what comes of it.

        `kept`: the work outlives the request.
        """
        try:
            seen = _Seen(await begun)
            in_time = await patience.within(self._timeout, self._watch(seen, caller))
        except asyncio.CancelledError:
            # Also while it was being created: a verb that is cancelled may still happen, and the id is ours.
            if not kept:
                with anyio.CancelScope(shield=True):
                    await self._abandon(owner, task_id)
            raise
        if in_time:
            return outcome(seen.task) if seen.task.status.terminal else self._put(seen.task, caller, kept=kept)
        if caller.declared:
            return render.created(seen.task)
        if kept:
            raise out_of_time(self._timeout, kept=True)
        logger.warning(
            "task %s: Tool %r did not finish within %g s (inline_timeout), and its client does not know tasks: "
            "cancelling it",
            ids.abbreviated(task_id),
            caller.tool,
            self._timeout,
        )
        await self._abandon(owner, task_id)
        raise out_of_time(self._timeout, kept=False)

    def _put(self, task: Task, caller: Caller, *, kept: bool) -> dict[str, Any]:
        lives = self._state_lives()
        if not kept and lives is not None:
            self._runtime.unanswered.expect(task, lives + _ON_ITS_WAY)
        return _question(task, caller.kinds, kept=kept)

    async def _watch(self, seen: _Seen, caller: Caller) -> None:
        """Keep looking until the task is over, or asks something; show its messages meanwhile."""
        owner, task_id = seen.task.owner, seen.task.id
        with self._runtime.hub.watch(task_id) as changed:
            while True:
                changed.clear()
                before = seen.task.message
                seen.task = await patience.persist(lambda: self._runtime.store.get(owner, task_id))
                if seen.task.status.terminal:
                    return
                if seen.task.message not in (None, before):
                    seen.shown += 1
                    await caller.show(seen.shown, seen.task.message)
                if seen.task.status is Status.INPUT_REQUIRED:
                    return
                await patience.within(_LOOK_EVERY, changed.wait())

    async def _abandon(self, owner: Owner, task_id: str) -> None:
        """Cancel the work, as well as it can be done: what ended the call must not be hidden by what fails here."""
        with suppress(PerdureError):
            cancelling = patience.persist(lambda: self._runtime.store.request_cancel(owner, task_id))
            await patience.within(_CLEANUP, cancelling)


async def _there(task: Task) -> Task:
    return task


def outcome(task: Task) -> dict[str, Any]:
    """What a call would have come to, had it been no task: this one is over.

    Raises:
        MCPError: it was an error.
    """
    if task.status is Status.COMPLETED:
        return dict(task.result or {})
    error = task.error
    if error is None:
        raise MCPError(INTERNAL_ERROR, "The call was cancelled")
    raise MCPError(error.code, error.message, error.data)


def _question(task: Task, kinds: frozenset[str], *, kept: bool) -> dict[str, Any]:
    """The open questions that this request's client can answer. If it can't any, a retry that can still may."""
    requests = render.input_requests(task, kinds)
    if not requests:
        raise unsupported_kind(kind_of(task.inputs[0].request))
    return {
        "resultType": "input_required",
        "inputRequests": requests,
        "requestState": (_KEPT_PREFIX if kept else _STATE_PREFIX) + task.id,
    }


def _opened(request_state: str) -> tuple[str, bool]:
    """The task that a state names, and whether it is kept."""
    kept = request_state.startswith(_KEPT_PREFIX)
    try:
        return ids.parse(request_state.removeprefix(_KEPT_PREFIX if kept else _STATE_PREFIX)), kept
    except MalformedTaskId as error:
        raise MCPError(INVALID_PARAMS, "Invalid requestState") from error


def _plain(responses: InputResponses | None) -> Mapping[str, JSON]:
    return {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, response in (responses or {}).items()
    }
