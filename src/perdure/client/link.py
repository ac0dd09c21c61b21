"""What all handles of one session share, and how to get a request through that may be sent twice."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import anyio

from . import faults, pace
from .errors import Disconnected, Unavailable
from .journal import Journal
from .remote import Remote
from .watcher import Watcher

__all__ = ["Link", "OnCancel", "alone"]

OnCancel = Literal["leave", "cancel"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Link:
    """One session, its journal and its watcher. `watcher` makes one if nobody waits. `chance`: from 0 to 1."""

    remote: Remote
    journal: Journal
    watcher: Callable[[], Watcher]
    on_cancel: OnCancel
    chance: Callable[[], float]

    async def insist(self, task_id: str, send: Callable[[], Awaitable[T]], *, within: float = math.inf) -> T:
        """Send a request about a task, again and again with growing pauses, until it is answered.

        Raises:
            TaskError: the server's answer ends it, or the session is over.
            Unavailable: there was none within `within` seconds.
        """
        last: list[Exception] = []
        grace = faults.Grace()
        with anyio.move_on_after(within if within < math.inf else None):
            while True:
                try:
                    return await send()
                except Exception as error:  # boundary: whatever the SDK makes of a server
                    fault = faults.judge(error, task_id)
                    if (ends := grace.ended(fault, anyio.current_time())) is not None:
                        raise ends from error
                    if faults.is_over(error) and any(map(faults.is_over, last[-1:])):
                        raise Disconnected(task_id) from error
                    last.append(error)
                await anyio.sleep(pace.backoff(len(last), fault.after, self.chance()))
        if last and (ends := faults.judge(last[-1], task_id).ends) is not None:
            raise ends from last[-1]
        trouble = last[-1] if last else None
        raise Unavailable(task_id, trouble) from trouble


def alone(error: BaseException) -> BaseException:
    """The first of the errors in a group: a task group is how this is done, and no concern of the caller's."""
    while isinstance(error, BaseExceptionGroup):
        several: BaseExceptionGroup[BaseException] = cast("BaseExceptionGroup[BaseException]", error)
        error = several.exceptions[0]
    return error
