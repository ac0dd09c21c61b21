"""What the two contexts of a tool share: what a task knows without asking anybody, and the verbs themselves.

The verbs are here once, as coroutines; `context` offers them to coroutine functions, `sync_context` to plain ones.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NoReturn

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CreateMessageResult, CreateMessageResultWithTools
from pydantic import PrivateAttr, ValidationError

from perdure.domain.errors import ConfigurationError, InputKeyReused
from perdure.domain.model import JSON, Asked, InputRequest, InputState, Owner
from perdure.domain.policy import Duration, milliseconds
from perdure.domain.retry import NEVER, Retry
from perdure.engine.external import external
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.codec import plain

from .capabilities import kind_of, unsupported_input
from .external import Look, Start, described, read
from .questions import Question
from .retrying import Declined, any_error, is_worth
from .steps import Function, Shape, called, describe

__all__ = ["BaseContext", "Sampled", "progress_text"]

logger = logging.getLogger(__name__)

Sampled = CreateMessageResult | CreateMessageResultWithTools


class BaseContext(Context[Any, Any]):
    """What both contexts share."""

    _run: Run = PrivateAttr()
    _prepared: JSON = PrivateAttr()
    _state: Any = PrivateAttr()

    def __init__(self, run: Run, prepared: JSON, state: object) -> None:
        """Make a context for one run. Not for tools: they get theirs injected."""
        super().__init__()
        self._run, self._prepared, self._state = run, prepared, state

    @property
    def id(self) -> str:
        """The task's id."""
        return self._run.claim.task.id

    @property
    def attempt(self) -> int:
        """Which attempt this run belongs to, from 1.

        It grows when an attempt failed and `retry=` of the tool began another, and when a worker died; not when the
        task went on after a wait.
        """
        return self._run.claim.attempt

    @property
    def owner(self) -> Owner:
        """Whose task it is."""
        return self._run.claim.task.owner

    @property
    def prepared(self) -> Any:
        """What the tool's `prepare` function returned, as JSON values; None without one."""
        return self._prepared

    @property
    def lifespan_context(self) -> Any:
        """What the server's own lifespan yielded."""
        return self._state

    @property
    def request_context(self) -> NoReturn:
        """Not there. What the SDK's `Context` gets from it is not either: session, headers, ids, log messages.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            "Session, headers, request id and log messages belong to a request, and a task outlives its request: say "
            "what the client should see by task.report(message), and read the request in a function that you pass as "
            "prepare="
        )

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the task to stop. What the tool then returns or raises decides how the task ends."""
        return self._run.cancelled

    def decline(self, message: str) -> NoReturn:
        """End the task with a tool error that the model reads: status `completed`, `isError` true.

        It is the tool's answer, so `retry=` never takes it up.

        Raises:
            ToolError: always.
        """
        raise Declined(message)

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def _report(self, message: str) -> None:
        await self._run.report(message)

    async def _step(
        self,
        name: str,
        fn: Function,
        args: tuple[Any, ...],
        *,
        at_most_once: bool,
        retry: Retry | None,
        timeout: Duration | None,
        returns: Any,
    ) -> Any:
        shape = Shape(plain(name), fn, returns)
        what = Step(
            name,
            lambda: called(fn, args),
            describe,
            at_most_once,
            NEVER if retry is None else any_error(retry),
            _optional(timeout),
            keep=shape.keep,
            retryable=lambda error: retry is not None and is_worth(retry, error),
        )
        return shape.read(await step(self._run, what))

    async def _external(
        self,
        name: str,
        start: Start,
        *,
        cancel: Start | None,
        poll: Look | None,
        every: Duration,
        timeout: Duration | None,
        returns: Any,
    ) -> Any:
        limits = self._run.limits
        work = described(plain(name), start, limits, cancel=cancel, poll=poll, every=every, timeout=timeout)
        return read(name, await external(self._run, work), returns)

    async def _sleep(self, duration: Duration) -> None:
        await self._run.sleep(milliseconds(duration, what="sleep"))

    async def _gather(self, branches: Sequence[Awaitable[Any]]) -> list[Any]:
        return await self._run.gather(branches)

    async def _ask(self, questions: Mapping[str, Question], timeout: Duration | None) -> dict[str, Any]:
        timeout_ms = _optional(timeout)
        asked = {key: Asked(question.request(), timeout_ms=timeout_ms) for key, question in questions.items()}
        for new in asked.values():
            if (kind := kind_of(new.request)) not in self._run.claim.task.accepts:
                raise unsupported_input(kind)
        try:
            closed = await self._run.ask(asked)
        except InputKeyReused as reused:
            # Here, since from here on the error may get lost: side by side with another question, or in an `except`.
            name = self._run.claim.task.operation.name
            logger.warning("Tool %r asked a different question under the key %r", name, reused.key)
            raise
        return {key: _read(question, closed[key]) for key, question in questions.items()}


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    """Progress in words: `message`, or the numbers as people write them."""
    return message or (f"{progress:.15g}" if total is None else f"{progress:.15g}/{total:.15g}")


def _optional(timeout: Duration | None) -> int | None:
    return None if timeout is None else milliseconds(timeout, what="timeout")


def _read(question: Question, recorded: InputRequest) -> object:
    if recorded.state is InputState.SUPERSEDED:
        return question.unanswered()
    try:
        return question.read(recorded.response)
    except ValidationError as error:
        # It passed the schema, so it is the model's own validators that refuse it. Their messages may quote the answer,
        # which belongs in no log and no error.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['type']}" if where else first["type"]
        raise ToolError(f"The answer to {recorded.key!r} can't be used: {reason}") from None
