"""Lines of execution: the work of a run is one, and each branch of a gather is another, with places of its own.

Which line a verb is on is known by a context variable, which reaches the tasks and the threads that are started for the
work. A line knows what became of it, for the sake of code that goes on to use verbs while it is unwound, and which task
runs it, since verbs in any other come in an order that is chance.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from perdure.domain import verdicts
from perdure.domain.errors import ConfigurationError
from perdure.domain.journal import Entry, Scope, Verb

__all__ = ["WAITING", "Line", "Parked", "Spot", "current", "handling", "misuse", "step"]

current: ContextVar[Line | None] = ContextVar("perdure_line", default=None)
"""The branch that this is in; None for the work itself."""
step: ContextVar[str | None] = ContextVar("perdure_step", default=None)
"""The name of the step that this is in."""

handling: ContextVar[BaseException | None] = ContextVar("perdure_handling", default=None)
"""What a thread that calls a verb is handling just then; on the event loop the interpreter knows by itself."""

WAITING: Final = frozenset({Verb.ASK, Verb.EXTERNAL})
"""The verbs that a task which is being cancelled can't use: they are nothing but waits."""


class Parked(BaseException):
    """Unwinds work that can't go on for now.

    A `BaseException`, so that `except Exception` in a tool does not swallow it; whoever swallows it all the same parks
    too, since the worker looks at what is waited for and not at how the work ended.
    """


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the work has come to, and what stands there, if it has been here before.

    `loose`: it is nowhere, since the task is being cancelled: nothing is to be recorded.
    """

    place: str
    entry: Entry | None
    loose: bool = False


@dataclass(slots=True, eq=False)
class Line:
    """One line of execution: the work itself, or a branch of a gather.

    `task`: the one that runs it; None for threads, which have one for each verb. `parked`: the tasks in which it came
    to something that it has to wait for (several, if questions were put side by side). `cancelled`: it was told so by
    one of its verbs.
    """

    scope: Scope
    task: asyncio.Task[Any] | None = None
    parked: set[asyncio.Task[Any] | None] = field(default_factory=set[asyncio.Task[Any] | None])
    cancelled: bool = False

    def park(self) -> NoReturn:
        self.parked.add(asyncio.current_task())
        raise Parked

    def is_parked(self, verb: Verb) -> bool:
        if verb is Verb.ASK and self.task is not None:
            return asyncio.current_task() in self.parked
        return bool(self.parked)


def misuse(line: Line, verb: Verb, name: str) -> ConfigurationError | None:
    """Why a verb can't be used here, if it can't."""
    called = f"{verb.value} {name!r}" if name else verb.value
    if (inside := step.get()) is not None:
        return ConfigurationError(verdicts.VERB_IN_A_STEP.format(name=inside, verb=verb.value))
    # Questions are known by their keys, so it does not matter which of two comes first.
    if line.task not in (None, asyncio.current_task()) and verb is not Verb.ASK:
        return ConfigurationError(verdicts.SIDE_BY_SIDE.format(verb=called))
    return None
