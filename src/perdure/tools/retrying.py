"""Which errors of a tool or a step are worth another run. Decisions only.

An error is one of three things. A failure: something went wrong, and may not the next time. An answer: the author meant
it as the end, so it is said to the client (`ToolError`, `MCPError`), and is tried again only if `Retry.on` names its
kind, for which `Exception` is too wide. Or a bug of the code's, which the next run has as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final, cast

from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedResourceError, UnexpectedToolError
from mcp.shared.exceptions import MCPError

from perdure.domain.errors import (
    ConfigurationError,
    InputKeyReused,
    InvalidDuration,
    JournalMismatch,
    LeaseLost,
    LimitExceeded,
    NotStorable,
    StepFailed,
    StepInterrupted,
)
from perdure.domain.journal import undone
from perdure.domain.model import Claim
from perdure.domain.retry import Retry
from perdure.engine.handler import Again
from perdure.engine.run import Parked
from perdure.store.codec import mended

__all__ = ["Declined", "again", "any_error", "is_worth", "original"]

_ANSWERS: Final = (ToolError, ResourceError, MCPError)
_CRASHES: Final = (UnexpectedToolError, UnexpectedResourceError)
"""What the SDK wraps a crash in; they are answers by their kind only."""
_NOTE: Final = 500


class Declined(ToolError):
    """What `decline` raises: an answer that stands whatever `Retry.on` names."""


_NEVER: Final = (
    Declined,
    ConfigurationError,
    InputKeyReused,
    InvalidDuration,
    JournalMismatch,
    LeaseLost,
    LimitExceeded,
    NotStorable,
    StepInterrupted,
)


def again(
    retry: Retry,
    error: BaseException,
    claim: Claim,
    once: frozenset[str],
    chance: float,
    since: Callable[[Collection[BaseException]], tuple[str, ...]] = lambda _: (),
) -> Again | None:
    """Another attempt after this one ended in `error`; None if there is to be none.

    `once`: the places of steps that may run at most once. An attempt that would have to do one of them again is none.
    `chance`: a random number in [0, 1). `since`: where the tool has come to while it was handling one of some errors.
    What it did then was the clean-up of this attempt, and the next one comes by those places with something else.
    """
    chain = tuple(_chain(error))
    # Code that catches `Parked` and raises something else is waiting all the same.
    if not is_worth(retry, error) or any(isinstance(each, Parked) for each in chain):
        return None
    steps = [place for each in chain if isinstance(each, StepFailed) for place in each.places]
    failed = tuple(dict.fromkeys([*steps, *since(chain)]))
    if any(undone(once, place) for place in failed):
        return None
    delay = any_error(retry).next_delay(error, claim.failures + 1, chance)
    return None if delay is None else Again(delay, _note(error), failed)


def any_error(retry: Retry) -> Retry:
    """The same policy, for an error that was found to be worth it already."""
    return replace(retry, on=(Exception,))


def is_worth(retry: Retry, error: BaseException) -> bool:
    """Whether `retry` is for errors such as this one.

    A group is, if all that is in it is. A failed step is what it failed with; after a replay that is known by its name
    only, and compared with the names of the kinds and of their descendants.
    """
    if isinstance(error, StepFailed) and StepFailed not in retry.on:
        cause = error.__cause__
        return is_worth(retry, cause) if cause is not None else _names(retry, error)
    if (inside := _inside(error)) and not isinstance(error, _specific(retry)):
        return all(is_worth(retry, each) for each in inside)
    if isinstance(error, _NEVER):
        return False
    is_answer = isinstance(error, _ANSWERS) and not isinstance(error, _CRASHES)
    return isinstance(error, _specific(retry) if is_answer else retry.on)


def _specific(retry: Retry) -> tuple[type[Exception], ...]:
    return tuple(kind for kind in retry.on if kind is not Exception)


def _names(retry: Retry, failed: StepFailed) -> bool:
    if failed.type in {kind.__name__ for kind in _NEVER}:
        return False
    if failed.detail is None and Exception in retry.on:
        return True
    return any(failed.type == each.__name__ for kind in _specific(retry) for each in _descendants(kind))


def _descendants(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)


def original(error: ToolError) -> BaseException:
    """What a tool raised, from under what the SDK wrapped around it."""
    found = error.__cause__ or error
    while isinstance(found, _CRASHES) and found.__cause__ is not None:
        found = found.__cause__
    return found


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Everything that led to an error, itself first; each once, since chains may be closed."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [*_inside(each), each.__cause__, each.__context__]


def _inside(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def _note(error: BaseException) -> str:
    text = str(error) if isinstance(error, StepFailed) else f"{type(error).__name__}: {error}"
    return mended(text)[:_NOTE]
