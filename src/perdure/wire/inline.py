"""A task tool called without the extension: a durable task all the same, and a request that waits for it.

The client sees an ordinary tool call. Beneath it lies the same task, run by the same workers, so a tool has one way of
running, whoever calls it. The request waits up to `timeout`. If the tool asks something, the request ends with the
question (MRTR, `resultType: "input_required"`) and the handle goes along in `requestState`, which the SDK's boundary
seals and binds to the principal and the arguments; the retry carries on with the same task.

Nobody but this request knows the handle, so when it ends without a result (the deadline, a client that hung up) the
work is cancelled: a result that nobody can fetch is not worth its cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, InputResponses

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId, TaskExpired, TaskNotFound
from perdure.domain.model import JSON, NewTask, Owner, Status, Task
from perdure.engine.runtime import Runtime

from . import answers, render
from .capabilities import kind_of, unsupported_input
from .errors import missing_extension

__all__ = ["Inline"]

_STATE_PREFIX: Final = "perdure/inline:"
_LOOK_EVERY: Final = 0.25
"""Seconds between looks at the store while nothing wakes us: the task may be run by another process."""
_ABANDONED_MS: Final = 3_600_000
"""A task whose client was asked something and never came back is stopped an hour after its creation."""
_CLEANUP: Final = 2.0


class Inline:
    """Runs task tools inside the request. `timeout_ms` bounds the wait of each request."""

    def __init__(self, runtime: Runtime, timeout_ms: int) -> None:
        self._runtime = runtime
        self._timeout = timeout_ms / 1000

    def owns(self, request_state: str | None) -> bool:
        """Whether a retry carries a handle of ours (already unsealed), rather than a tool's own state."""
        return request_state is not None and request_state.startswith(_STATE_PREFIX)

    async def start(self, new: NewTask, *, declared: bool) -> dict[str, Any]:
        """Create the task and wait for its result, or for its first question.

        `declared`: the client knows tasks, so what takes longer than it may becomes one after all.

        Raises:
            MCPError: the task's own error; -32021 past the deadline, for a client that knows no tasks.
        """
        if not declared:
            ttl_ms = _ABANDONED_MS if new.ttl_ms is None else min(new.ttl_ms, _ABANDONED_MS)
            new = replace(new, ttl_ms=ttl_ms)
        task = await self._runtime.store.create(new)
        return await self._wait_or_cancel(new.owner, task.id, new.accepts, declared)

    async def carry_on(
        self,
        owner: Owner,
        request_state: str,
        responses: InputResponses | None,
        kinds: frozenset[str],
        *,
        declared: bool,
    ) -> dict[str, Any]:
        """Hand the answers of a retry to the task that its state names, and wait again.

        Raises:
            MCPError: as `start`; -32602 if an answer does not fit, or the task is gone.
        """
        store, task_id = self._runtime.store, _task_id(request_state)
        try:
            task = await store.get(owner, task_id)
        except (TaskNotFound, TaskExpired) as error:
            raise MCPError(INVALID_PARAMS, "The call that this answer belongs to is over") from error
        await store.answer(owner, task_id, answers.check(task, _plain(responses)))
        return await self._wait_or_cancel(owner, task_id, kinds, declared)

    async def _wait_or_cancel(
        self, owner: Owner, task_id: str, kinds: frozenset[str], declared: bool
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._wait(owner, task_id, kinds)
        except TimeoutError:
            if declared:
                return render.created(await self._runtime.store.get(owner, task_id))
            await self._runtime.store.request_cancel(owner, task_id)
            raise missing_extension() from None
        except asyncio.CancelledError:
            with anyio.move_on_after(_CLEANUP, shield=True):
                await self._runtime.store.request_cancel(owner, task_id)
            raise

    async def _wait(self, owner: Owner, task_id: str, kinds: frozenset[str]) -> dict[str, Any]:
        with self._runtime.hub.watch(task_id) as changed:
            while True:
                changed.clear()
                task = await self._runtime.store.get(owner, task_id)
                if task.status.terminal:
                    return _result(task)
                if task.status is Status.INPUT_REQUIRED:
                    return _question(task, kinds)
                await _either(changed, _LOOK_EVERY)


async def _either(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        pass


def _result(task: Task) -> dict[str, Any]:
    if task.status is Status.COMPLETED:
        return dict(task.result or {})
    error = task.error
    if error is None:
        raise MCPError(INTERNAL_ERROR, "The call was cancelled")
    raise MCPError(error.code, error.message, error.data)


def _question(task: Task, kinds: frozenset[str]) -> dict[str, Any]:
    """The open questions that this request's client can answer. If it can't any, a retry that can still may."""
    requests = render.input_requests(task, kinds)
    if not requests:
        raise unsupported_input(kind_of(task.inputs[0].request))
    return {
        "resultType": "input_required",
        "inputRequests": requests,
        "requestState": _STATE_PREFIX + task.id,
    }


def _task_id(request_state: str) -> str:
    try:
        return ids.parse(request_state.removeprefix(_STATE_PREFIX))
    except MalformedTaskId as error:
        raise MCPError(INVALID_PARAMS, "Invalid requestState") from error


def _plain(responses: InputResponses | None) -> Mapping[str, JSON]:
    return {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, response in (responses or {}).items()
    }
