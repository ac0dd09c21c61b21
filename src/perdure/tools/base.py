"""What the two contexts of a tool share: what a task knows without asking anybody, and the verbs themselves.

The verbs are here once, as coroutines; `context` offers them to coroutine functions, `sync_context` to plain ones.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NoReturn

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CreateMessageResult, CreateMessageResultWithTools
from pydantic import PrivateAttr, ValidationError

from perdure.domain import ids
from perdure.domain.errors import ConfigurationError, InputKeyReused
from perdure.domain.model import JSON, Asked, InputRequest, InputState, Owner
from perdure.domain.policy import Duration, milliseconds
from perdure.domain.retry import NEVER, Retry
from perdure.engine import branches
from perdure.engine.external import external
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.store.codec import named

from .external import Look, Start, described, read
from .kinds import kind_of, unsupported_kind
from .questions import Question
from .retrying import Declined, any_error, is_worth
from .steps import Function, Shape, called, describe, in_thread, misfit, no_function

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
        self._check_named("step", name)
        self._check_function(
            f"The step {name!r} takes a function and its arguments", fn, f"task.step({name!r}, {{}}, …)"
        )
        shape = Shape(named("The name", name), fn, returns)
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
        self._check_named("external", name)
        for option, fn in {"start": start, "cancel": cancel, "poll": poll}.items():
            if fn is not None or option == "start":
                takes = f"The external work {name!r} takes a function of a handle as its {option}"
                self._check_function(takes, fn, "{} without calling it")
        limits = self._run.limits
        work = described(named("The name", name), start, limits, cancel=cancel, poll=poll, every=every, timeout=timeout)
        return read(name, await external(self._run, work), returns)

    async def _sleep(self, duration: Duration) -> None:
        await self._run.sleep(milliseconds(duration, what="sleep"))

    async def _gather(self, work: Sequence[Awaitable[Any]]) -> list[Any]:
        for number, branch in enumerate(work, 1):
            if not inspect.isawaitable(branch):
                branches.discard(work)
                self._misuse(
                    f"gather takes verbs that are not awaited yet, and its branch {number} is a value of type "
                    f"{type(branch).__name__}: write task.gather(task.step(…), task.step(…)), and * before a list"
                )
        return await self._run.gather(work)

    async def _gather_functions(self, work: Sequence[Function]) -> list[Any]:
        for number, branch in enumerate(work, 1):
            takes = f"gather in a plain tool takes functions without arguments, for its branch {number} too"
            self._check_function(takes, branch, "task.gather(lambda: task.step(…), lambda: task.step(…))")
        return await self._gather([in_thread(branch) for branch in work])

    async def _ask(self, questions: Mapping[str, Question], timeout: Duration | None) -> dict[str, Any]:
        timeout_ms = _optional(timeout)
        try:
            asked = {key: Asked(question.request(), timeout_ms=timeout_ms) for key, question in questions.items()}
        except ConfigurationError as error:
            self._misuse(str(error))
        for new in asked.values():
            if (kind := kind_of(new.request)) not in self._run.claim.operation.accepts:
                raise unsupported_kind(kind)
        try:
            closed = await self._run.ask(asked)
        except InputKeyReused as reused:
            # Here, since from here on the error may get lost: side by side with another question, or in an `except`.
            known_as, name = ids.abbreviated(self.id), self._run.claim.operation.name
            logger.warning("task %s: Tool %r asked a different question under the key %r", known_as, name, reused.key)
            raise
        return {key: _read(question, closed[key]) for key, question in questions.items()}

    # -- misuse --------------------------------------------------------------------------------------------------------

    def _check_named(self, verb: str, name: object) -> None:
        if callable(name):
            written = getattr(name, "__name__", "function")
            self._misuse(
                f"{verb} takes a name first, for the journal, and then a function: write "
                f"task.{verb}({written!r}, {written}, …)"
            )

    def _check_function(self, takes: str, fn: object, write: str) -> None:
        given = no_function(fn)
        if given is not None:
            written = write.format(getattr(fn, "__name__", "function"))
            self._misuse(f"{takes}, and was given {given}: write {written}")

    def _misuse(self, message: str) -> NoReturn:
        """Fail the task, whatever its code makes of the error, so that its author reads the message.

        Raises:
            ConfigurationError: always.
        """
        error = ConfigurationError(message)
        self._run.bug = self._run.bug or error
        raise error


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
        # It passed the schema, so it is the model's own validators that refuse it.
        raise ToolError(f"The answer to {recorded.key!r} can't be used: {misfit(error)}") from None
