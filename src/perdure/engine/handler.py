"""The seam between the engine and whoever gives it work: what a worker calls.

A handler is called once for each run of a task, on the event loop. It returns what the run came to, or lets `Parked`
(raised by the verbs of `Run` that wait) through, and then it is called again from the start once there is a reason to
go on. It may be called more than once for one task (a worker died, an answer came), never twice at once under the same
fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from perdure.domain.model import JSONObject, Outcome

from .run import Run

__all__ = ["DEFAULT_QUEUE", "Again", "Handler", "Handlers", "Placement"]

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt failed, and another one is worth it in `delay_ms`.

    `note` says why, for the timeline. `failed` are the places in the journal of the steps that ended it, if any did.
    """

    delay_ms: int
    note: str
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Which worker runs a handler's work, and when: a matter of the code, so that a deploy changes it for all at once.

    `priority`: the larger one is claimed first. `concurrency`: how many runs of it one worker has at once.
    """

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    concurrency: int | None = None


class Handler(Protocol):
    """Runs one kind of operation.

    `threaded`: the work happens in a thread, where a cancelled coroutine would only lose sight of it. Such a handler is
    not cancelled when somebody asks the task to stop; it looks at `Run.stopping` by itself.
    """

    @property
    def threaded(self) -> bool: ...

    @property
    def placement(self) -> Placement: ...

    async def __call__(self, run: Run, params: JSONObject) -> Outcome | Again:
        """Do the work.

        An exception that gets out of here is a bug of the handler's and fails the task with an internal error; so is a
        cancellation that nobody asked for.
        """
        ...

    def overrun(self, run: Run) -> Outcome | Again:
        """What a run comes to that was not over at its deadline. Must not block."""
        ...


Handlers = Mapping[str, Handler]
"""`Operation.handler` -> handler. Read anew for each claim, so a handler may be added while a worker runs."""
