"""The seam between the engine and whoever gives it work: what a worker calls.

A handler is called once for each run of a task, on the event loop. It returns an `Outcome`, or lets `Parked` (raised by
`Run.ask`) through, and then it is called again from the start once the answers are in. It may be called more than once
for one task (a worker died, an answer came), never twice at once under the same fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from perdure.domain.model import JSONObject, Outcome

from .run import Run

__all__ = ["Handler", "Handlers"]


class Handler(Protocol):
    """Runs one kind of operation.

    `threaded`: the work happens in a thread, where a cancelled coroutine would only lose sight of it. Such a handler is
    not cancelled when somebody asks the task to stop; it looks at `Run.stopping` by itself.
    """

    @property
    def threaded(self) -> bool: ...

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        """Do the work.

        An exception that gets out of here is a bug of the handler's and fails the task with an internal error; so is a
        cancellation that nobody asked for.
        """
        ...


Handlers = Mapping[str, Handler]
"""`Operation.handler` -> handler. Read anew for each claim, so a handler may be added while a worker runs."""
