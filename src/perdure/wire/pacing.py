"""What counts against an owner's pace: whatever it asks of what is there already, and so could ask again and again.

Calls without a key do not, which `backlog` and `owner_tasks` bound; nor do subscriptions, which have bounds of their
own. One with a key does, since only a look tells whether it is new.

Without authentication all clients are one owner, and none of them may use up what is there for it: what is asked in all
is not counted there.
"""

from __future__ import annotations

from perdure.domain.model import Owner
from perdure.engine.pace import Pace, Poller

from .identity import is_one_of_many

__all__ = ["ask", "poll"]


def poll(pace: Pace, owner: Owner, task_id: str) -> Poller:
    """Count a look at a task.

    Raises:
        PolledTooOften: it is one too many.
    """
    return pace.admit(owner, task_id, counted=is_one_of_many(owner))


def ask(pace: Pace, owner: Owner, what: str) -> None:
    """Count anything else that is asked of a task, of a key, or of all that an owner has.

    Raises:
        PolledTooOften: as `poll`.
    """
    pace.spend(owner, f"other {what}", counted=is_one_of_many(owner))
