"""When a run that is put aside goes on. Decisions only: stores ask here inside the transaction that parks.

Whatever a run waits for may come while it is on its way to sleep. So the look and the decision are one, and what has
come already makes the run due at once: nothing is slept through, in either order.
"""

from __future__ import annotations

from dataclasses import replace

from . import inputs, policy
from .journal import Entry, Journal, Waits

__all__ = ["begun", "due_at", "timed"]


def begun(waits: Waits, now: int) -> dict[str, Entry]:
    """What enters the journal with the wait, by place; a span from `now` becomes an instant."""
    return {entry.place: timed(entry, wake_in_ms, now) for entry, wake_in_ms in waits.begun}


def timed(entry: Entry, wake_in_ms: int | None, now: int) -> Entry:
    """The entry as it is written: what gives no span keeps its instant, if it has one."""
    return entry if wake_in_ms is None else replace(entry, wake_at=now + wake_in_ms)


def due_at(waits: Waits, journal: Journal, now: int, *, cancelled: bool = False) -> int | None:
    """When a run that is put aside at `now` may be claimed again (`policy`); None: once somebody has acted.

    `journal` is what is on record by then, the new questions and entries included. `cancelled`: somebody has asked the
    task to stop. The earliest instant counts. A run that waits for nothing is due at once: nobody would ever wake it.
    """
    if cancelled and waits.minds_cancel:
        return policy.due_at_once(now)
    waited = [journal.entries[place] for place in waits.places if place in journal.entries]
    still = inputs.outstanding({key: journal.questions[key] for key in waits.asked})
    times = [*(entry.wake_at for entry in waited), *(question.deadline for question in still)]
    instants = [time for time in times if time is not None]
    answered = bool(waits.asked) and not still
    if answered or any(entry.over for entry in waited) or any(instant <= now for instant in instants):
        return policy.due_at_once(now)
    return min(instants, default=None) if waited or still else policy.due_at_once(now)
