"""Coroutines side by side, as `Run.gather` has them: all of them go on until each has come to its end.

Unlike in a task group, an error in one does not cancel the others: what they are about to record is not to be lost for
it, and what they came to wait for is decided once all is known.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from perdure.domain.errors import StepFailed

__all__ = ["begin", "discard", "end_of_all", "ended", "joined"]

T = TypeVar("T")


def begin(branch: Awaitable[T], setting: Callable[[], object]) -> asyncio.Task[T]:
    """Run a branch in a context of its own, in which `setting` was called."""
    context = copy_context()
    context.run(setting)
    return asyncio.create_task(_awaited(branch), context=context)


async def _awaited(branch: Awaitable[T]) -> T:
    """The boundary around a branch: asyncio would hand these two on to the event loop, and end the server."""
    try:
        return await branch
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"A branch raised {type(error).__name__}") from error


def discard(branches: Sequence[Awaitable[object]]) -> None:
    """Close those that were never begun, so that Python does not complain of them."""
    for branch in branches:
        if inspect.iscoroutine(branch) and inspect.getcoroutinestate(branch) == inspect.CORO_CREATED:
            branch.close()


async def end_of_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until each has ended. Whoever cancels this cancels them, and waits for their ends."""
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await ended(tasks)
        raise


async def ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for tasks that a cancellation would leave behind. A second one is not waited out."""
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            if not task.cancel() and not task.cancelled():
                task.exception()  # asked for, so that nobody complains that it was not


def joined(tasks: Sequence[asyncio.Task[T]], *, last: type[BaseException]) -> list[T]:
    """What they returned; or the first one's error is raised, one of the kind `last` only if there is no other.

    A `StepFailed` names the places of all that failed so. Another error has such a one behind it, as what led to it, so
    that whoever tries the task again (`retry=`) finds those places too.
    """
    errors = [error for task in tasks if (error := _error(task)) is not None]
    if not errors:
        return [task.result() for task in tasks]
    first = next((error for error in errors if not isinstance(error, last)), errors[0])
    steps = [error for error in errors if isinstance(error, StepFailed)]
    if steps:
        steps[0].places = tuple(place for error in steps for place in error.places)
        _put_behind(first, steps[0])
    raise first


def _put_behind(error: BaseException, cause: BaseException) -> None:
    """Make `cause` the first that led to an error, unless the two have a history in common: that would be a circle."""
    before = [*_history(error)]
    if all(each not in before for each in _history(cause)):
        before[-1].__context__ = cause


def _history(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, each once."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        yield each
        each = each.__context__


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
