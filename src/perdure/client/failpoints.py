"""Where a client may die between its call and the result: the places by name, for the tests that kill it there.

Each stands between two things of which one may have happened and the other not. In an ordinary process a place is a
comparison that is false.
"""

from __future__ import annotations

import os
import signal
from typing import Final, Literal, get_args

__all__ = ["FAILPOINTS", "VARIABLE", "Failpoint", "reach"]

Failpoint = Literal[
    "call intended",  # the intent is in the journal, nothing was sent
    "round claimed",  # of a question before there is a task: this process may ask, and has not
    "round answered",  # the user has answered, and nobody but this process knows
    "round recorded",  # in the journal, not sent
    "call answered",  # the server has the task, the journal does not have its handle
    "handle recorded",
    "question claimed",  # this process may ask, and has not
    "question answered",  # the user has answered, and nobody but this process knows
    "answer recorded",  # in the journal, not sent
    "answer sent",  # the server has it, the journal does not know that
    "answer marked",
    "result seen",  # the task is known to be over, and the journal does not know that
    "result settled",
]

FAILPOINTS: Final[tuple[Failpoint, ...]] = get_args(Failpoint)

VARIABLE: Final = "PERDURE_CLIENT_FAILPOINT"
"""The environment variable that names the place at which this process kills itself. Read once."""

_armed: Final = os.environ.get(VARIABLE)


def reach(place: Failpoint) -> None:
    """This process is at `place`."""
    if _armed == place:
        os.kill(os.getpid(), signal.SIGKILL)
