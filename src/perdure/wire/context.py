"""`TaskContext`, what a tool sees of its task: the run's verbs behind the SDK's own `Context`.

It is a subclass so that the SDK injects it by annotation, as it does with its own. There are two: `TaskContext` for
coroutine functions, and `SyncTaskContext` for plain functions, which run in a thread; the verbs have the same names
there and block. What belongs to a request (session, headers, log) is not available: the task outlives its request. Only
`report_progress` has a meaning without one, and becomes the status message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from anyio import from_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ListRootsResult, SamplingMessage
from pydantic import BaseModel, PrivateAttr, ValidationError

from perdure.domain.errors import ConfigurationError, InputKeyReused
from perdure.domain.model import JSON, Owner
from perdure.engine.run import Run

from .capabilities import kind_of, unsupported_input
from .questions import Answer, Elicit, ElicitUrl, ListRoots, Question, Sample

__all__ = ["SyncTaskContext", "TaskContext"]

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)
Sampled = CreateMessageResult | CreateMessageResultWithTools


class _Base(Context[Any, Any]):
    """What both contexts share: what a task knows without asking anybody."""

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
        """Which attempt this run belongs to, from 1. It grows when a worker died, not when an answer came in."""
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

        Raises:
            ToolError: always.
        """
        raise ToolError(message)

    async def _report(self, message: str) -> None:
        await self._run.report(message)

    async def _ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        requests = {key: question.request() for key, question in questions.items()}
        for request in requests.values():
            if (kind := kind_of(request)) not in self._run.claim.task.accepts:
                raise unsupported_input(kind)
        try:
            answers = await self._run.ask(requests)
        except InputKeyReused as reused:
            # Here, since from here on the error may get lost: side by side with another question, or in an `except`.
            name = self._run.claim.task.operation.name
            logger.warning("Tool %r asked a different question under the key %r", name, reused.key)
            raise
        return {key: _read(key, question, answers[key]) for key, question in questions.items()}


def _progress(progress: float, total: float | None, message: str | None) -> str:
    """Progress in words: `message`, or the numbers as people write them."""
    return message or (f"{progress:.15g}" if total is None else f"{progress:.15g}/{total:.15g}")


def _read(key: str, question: Question, response: JSON) -> object:
    try:
        return question.read(response)
    except ValidationError as error:
        # It passed the schema, so it is the model's own validators that refuse it. Their messages may quote the answer,
        # which belongs in no log and no error.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['type']}" if where else first["type"]
        raise ToolError(f"The answer to {key!r} can't be used: {reason}") from None


class TaskContext(_Base):
    """A coroutine tool's view of its task; annotate a parameter with it.

    Every question has a key, unique for the life of the task. When an answer is missing, the task parks: the coroutine
    is unwound, nothing of it stays in memory, and the tool is run again from its start once the client has answered. So
    what comes before a question runs again, and the question must be the same each time.

    All asking verbs raise `MCPError` (-32021, failing the task unless it is caught) if the client that called the tool
    did not declare that it can answer, and `InputKeyReused` if the key stands for another question. `elicit` and `ask`
    raise `ToolError` if an answer fits the question's schema but not what the model's own validators ask for; the key
    is used up then, so ask again under another.
    """

    async def report(self, message: str) -> None:
        """Show `message` as the task's status message. It may be shown to people; it replaces the one before."""
        await self._report(message)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As the SDK's, so that a tool which calls it can become a task: shows `message`, or "1/2"."""
        await self._report(_progress(progress, total, message))

    async def elicit(  # pyright: ignore[reportIncompatibleMethodOverride] - a task's question needs a key that lasts
        self, key: str, message: str, schema: type[ModelT]
    ) -> Answer[ModelT]:
        """Ask a person to fill in the fields of `schema`, a flat pydantic model."""
        return cast("Answer[ModelT]", await self._ask_one(key, Elicit(message, schema)))

    async def elicit_url(  # pyright: ignore[reportIncompatibleMethodOverride] - as above
        self, key: str, message: str, url: str
    ) -> Answer[BaseModel]:
        """Ask a person to visit `url`."""
        return cast("Answer[BaseModel]", await self._ask_one(key, ElicitUrl(message, url)))

    async def sample(
        self, key: str, messages: Sequence[SamplingMessage | str], *, max_tokens: int = 1024, **options: Any
    ) -> Sampled:
        """Ask the client's model; arguments as `Sample`."""
        return cast("Sampled", await self._ask_one(key, Sample(messages, max_tokens, options)))

    async def list_roots(self, key: str = "roots") -> ListRootsResult:
        """Ask for the client's roots."""
        return cast("ListRootsResult", await self._ask_one(key, ListRoots()))

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask several questions at once; the answers by key, when all are in."""
        return await self._ask(questions)

    async def _ask_one(self, key: str, question: Question) -> object:
        return (await self._ask({key: question}))[key]


class SyncTaskContext(_Base):
    """A plain function's view of its task: the verbs of `TaskContext`, blocking. Use it in the tool's own thread.

    A thread can't be interrupted, so a long tool calls `checkpoint` from time to time.
    """

    def checkpoint(self) -> None:
        """End this run here if it is to end.

        The task was cancelled, or the worker is shutting down and another one will run the tool again.

        Raises:
            asyncio.CancelledError: it is. Let it pass.
        """
        if self._run.stopping:
            raise asyncio.CancelledError

    def report(self, message: str) -> None:
        """As `TaskContext.report`."""
        from_thread.run(self._report, message)

    def report_progress(  # pyright: ignore[reportIncompatibleMethodOverride] - plain functions can't await
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """As `TaskContext.report_progress`."""
        self.report(_progress(progress, total, message))

    def elicit(  # pyright: ignore[reportIncompatibleMethodOverride] - as in TaskContext
        self, key: str, message: str, schema: type[ModelT]
    ) -> Answer[ModelT]:
        """As `TaskContext.elicit`."""
        return cast("Answer[ModelT]", self._ask_one(key, Elicit(message, schema)))

    def elicit_url(  # pyright: ignore[reportIncompatibleMethodOverride] - as in TaskContext
        self, key: str, message: str, url: str
    ) -> Answer[BaseModel]:
        """As `TaskContext.elicit_url`."""
        return cast("Answer[BaseModel]", self._ask_one(key, ElicitUrl(message, url)))

    def sample(
        self, key: str, messages: Sequence[SamplingMessage | str], *, max_tokens: int = 1024, **options: Any
    ) -> Sampled:
        """As `TaskContext.sample`."""
        return cast("Sampled", self._ask_one(key, Sample(messages, max_tokens, options)))

    def list_roots(self, key: str = "roots") -> ListRootsResult:
        """As `TaskContext.list_roots`."""
        return cast("ListRootsResult", self._ask_one(key, ListRoots()))

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """As `TaskContext.ask`."""
        return from_thread.run(self._ask, questions)

    def _ask_one(self, key: str, question: Question) -> object:
        return self.ask({key: question})[key]
