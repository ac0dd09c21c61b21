"""What other systems say about work that a task waits for, and how a tool describes work that it hands over.

Whoever has the handle of some work (`domain/handles.py`) may settle that, once, and do nothing else. It takes no
server: any process that has the store can say what there is to say, and the worker that runs the task finds it there.
The wire puts the same verbs behind HTTP.

Nothing here tells whether a handle is made up, another task's, or of a task that was purged. Those are one answer
(contract 6).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perdure.domain.errors import LimitExceeded, NotStorable
from perdure.domain.handles import Handle
from perdure.domain.journal import EntryState
from perdure.domain.limits import Limits, cut, within
from perdure.domain.model import JSON
from perdure.domain.policy import Duration, milliseconds
from perdure.engine.external import External, Poll, Settlement
from perdure.engine.opened import Word
from perdure.engine.steps import failure
from perdure.store.codec import encode, mended

from .steps import called, misfit

__all__ = ["ExternalWork", "Finished", "Look", "Start", "described", "read"]

logger = logging.getLogger(__name__)

_LONGEST: Final = 10_000
"""Characters that are kept of what went wrong, as of any error's text."""
_FAILED: Final = "ExternalFailed"


@dataclass(frozen=True, slots=True)
class Finished:
    """What a `poll` function returns once the work is over: its `result`, or the `error` that it came to.

    `type`: a name for the kind of error, which the tool finds in `StepFailed.type`.
    """

    result: object = None
    error: str | None = None
    type: str = _FAILED


class Said(Protocol):
    """The part of the engine that is needed here: to have the store hear something, wherever it is open."""

    async def say(self, word: Word) -> None: ...


class ExternalWork:
    """What other systems may say about work that a task waits for (`task.external`). Found as `tasks.external`.

    Works in any process that has a `Tasks` on the same store, whether it serves or not: the store is opened for the
    call, unless it is open. Who has more than a few calls to make puts them inside `async with tasks.connected():`.
    And from any thread: plain code calls `asyncio.run(tasks.external.complete(…))`, also where a server has the store
    open on its own event loop, which must not be held up meanwhile.

    Every verb may be called again, and raises `TaskNotFound` for a handle that is made up, cut short, of another task,
    or of a task that was deleted; `AlreadySettled` if the work has ended otherwise, or its task is over; and
    `StoreUnavailable` if the store did not take it just now.
    """

    def __init__(self, opened: Said, limits: Callable[[], Limits]) -> None:
        """Not for users: `Tasks` makes the one there is."""
        self._opened = opened
        self._limits = limits

    async def complete(self, handle: Handle | str, result: object = None) -> None:
        """The work is done. `result` is JSON, or what pydantic turns into it, and becomes what the tool gets.

        Raises:
            LimitExceeded: the result is larger than `Limits.step_result`. Nothing is settled.
            NotStorable: it has no JSON form. Nothing is settled.
        """
        await self._settle(handle, _done(result, self._limits()))

    async def fail(self, handle: Handle | str, message: str) -> None:
        """The work has failed: the tool gets a `StepFailed` of type "ExternalFailed" with `message`.

        Of the message, 10,000 characters are kept.
        """
        await self._settle(handle, _failed(message, _FAILED))

    async def report(self, handle: Handle | str, message: str) -> None:
        """Show `message` as the task's status message, unless the task asks something just now.

        Of a long one, the beginning is kept (`Limits.message`).
        """
        known, text = _parsed(handle), _text(message, self._limits().message)
        await self._opened.say(lambda store: store.tell(known.task_id, known.place, known.token, text))

    async def _settle(self, handle: Handle | str, end: Settlement) -> None:
        known = _parsed(handle)
        await self._opened.say(
            lambda store: store.settle(known.task_id, known.place, known.token, end.state, end.value)
        )


# -- what a tool says about work that it hands over --------------------------------------------------------------------

Start = Callable[[Handle], object]
"""What hands work over, or gives it up. What it returns is not kept."""
Look = Callable[[Handle], "Finished | Awaitable[Finished | None] | None"]
"""What finds out whether work is over; None while it goes on."""


def described(
    name: str,
    start: Start,
    limits: Limits,
    *,
    cancel: Start | None = None,
    poll: Look | None = None,
    every: Duration = "1s",
    timeout: Duration | None = None,
) -> External:
    """Work as the engine takes it, made from functions over handles: coroutine functions, or plain ones for a thread.

    Raises:
        InvalidDuration: one is unreadable, zero or negative.
    """

    async def begin(handle: Handle) -> None:
        await called(start, (handle,))

    async def stop(handle: Handle) -> None:
        try:
            if cancel is not None:
                await called(cancel, (handle,))
        except Exception:  # somebody else's code; the task is cancelled whatever comes of it
            logger.exception("The cancel function of the external work %r raised", name)

    async def look(handle: Handle) -> Settlement | None:
        found = None if poll is None else cast("Finished | None", await called(poll, (handle,)))
        if found is None:
            return None
        try:
            return _done(found.result, limits) if found.error is None else _failed(found.error, found.type)
        except (LimitExceeded, NotStorable) as error:  # another look would find the same
            return _failed(str(error), type(error).__name__)

    return External(
        name,
        begin,
        cancel=None if cancel is None else stop,
        poll=None if poll is None else Poll(look, milliseconds(every, what="every")),
        timeout_ms=None if timeout is None else milliseconds(timeout, what="timeout"),
    )


def read(name: str, value: JSON, returns: Any) -> Any:
    """The result that another system reported, as the type that the tool expects; as it is without one.

    Raises:
        ToolError: it does not fit.
    """
    if returns is None:
        return value
    try:
        return TypeAdapter[Any](returns).validate_json(encode(value))
    except ValidationError as error:
        raise ToolError(f"The result of the external work {name!r} can't be used: {misfit(error)}") from None


def _parsed(handle: Handle | str) -> Handle:
    return handle if isinstance(handle, Handle) else Handle.parse(handle)


# -- what goes into the store ------------------------------------------------------------------------------------------


def _done(result: object, limits: Limits) -> Settlement:
    try:
        value = cast("JSON", to_jsonable_python(result))
        size = len(encode(value).encode())
    except (PydanticSerializationError, NotStorable, ValueError) as error:
        raise NotStorable("The result of the external work can't be stored as JSON") from error
    advice = "keep what is large elsewhere, and report where it is"
    within("The result of the external work", size, limits.step_result, "step_result", advice)
    return Settlement(EntryState.DONE, value)


def _failed(message: str, type: str) -> Settlement:
    return Settlement(EntryState.FAILED, failure(type, _text(message, _LONGEST)))


def _text(message: str, most: int) -> str:
    """A message as valid Unicode, in so many characters at most.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(cast("object", message), str):
        raise TypeError(f"The message must be a str, not {type(message).__name__}")
    return mended(cut(message, most))
