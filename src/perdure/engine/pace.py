"""How often clients should ask for a task, and what comes of asking more often.

A tool's author says an interval, and there are three reasons to tell a client a longer one. The task is old: what has
taken an hour will hardly be over in the next second. The client asks more often than it was told. Or this process has
to answer more polls than it should.

Who asks much more often is refused, before the store is troubled. What else is asked of a task (answers, cancellations,
calls made again) costs as much, and is bounded the same way; by itself for each task, so that who polls too often can
still cancel. Counted is per owner and id, whether there is such a task or not, so a refusal tells nothing of what there
is; and per owner, whatever it asks for, since ids can be made up.
No owner can have another one's polls refused. Without authentication all clients are one owner: what it asks for in all
is not counted then, but whoever knows the id of a task can have the others' polls of that one task refused.

All of it is advice of one process, kept in memory. Behind a balancer each replica sees its share of the polls, and
after a restart everybody begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic, time
from typing import Final, Protocol

from perdure.domain.errors import PolledTooOften
from perdure.domain.limits import Limits
from perdure.domain.model import Owner, Task

from .pollers import BURST, USUAL_MS, Poller, Pollers

__all__ = ["Bounds", "Pace", "Poller"]

_AHEAD: Final = 5.0
"""Polls that may come early before a client is told to wait longer. Most ask right after the call, and once more."""
_STRETCH: Final = 8.0
"""How many times the interval a client is told at most because it asks too often."""
_AGES: Final = 20
_OLDEST_MS: Final = 30_000
"""A task is asked for every twentieth of its age, so that a client hears of its end a twentieth late; but not more
seldom than every so many milliseconds, unless its tool says so."""
_IN_TIME: Final = 0.9
"""The part of an interval after which a poll is in time: timers are not exact."""
_CROWDED: Final = 30.0
"""How many times the interval everybody is told at most because the process has too much to answer: it may be one
client's doing."""
_TASK: Final = (
    "The task is asked for too often: {} polls a second are the limit (polls_per_second); keep to its pollIntervalMs"
)
_ALL: Final = (
    "This owner asks for tasks too often: {} polls a second, of whichever tasks, are the limit (owner_polls); ask for "
    "fewer at a time, or listen to them"
)
_KEPT: Final = 20_000
"""Pollers that are remembered."""


class Bounds(Protocol):
    """How many polls a second this process should answer (`polls`), and how many of one owner it does (`owner_polls`).

    None is no bound.
    """

    @property
    def polls(self) -> int | None: ...

    @property
    def owner_polls(self) -> int | None: ...

    @property
    def limits(self) -> Limits: ...


class Pace:
    """Who asks how often, in one process. `now`: milliseconds since the epoch, by which a task has its age."""

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        clock: Callable[[], float] = monotonic,
        now: Callable[[], int] = lambda: int(time() * 1000),
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._now = now
        self._pollers = Pollers(_KEPT)
        self._since = clock()
        self._polls = 0
        self._load = 1.0

    def admit(self, owner: Owner, task_id: str, *, counted: bool = True) -> Poller:
        """Count one poll. `counted`: its owner has a bound of its own for all of them.

        Raises:
            PolledTooOften: it is one too many, of this task or in all. It is not counted.
        """
        at = self._clock()
        poller, passed = self._spend(at, owner, task_id, counted)
        self._count(at, self._bounds().polls)
        _judge(poller, passed * 1000)
        return poller

    def spend(self, owner: Owner, what: str, *, counted: bool = True) -> None:
        """Count what is no poll and costs as much: an answer, a cancellation, a call made again.

        `what` tells it from polls: of one task so many of either may come, and in all so many of both together.

        Raises:
            PolledTooOften: as `admit`.
        """
        self._spend(self._clock(), owner, what, counted)

    def _spend(self, at: float, owner: Owner, what: str, counted: bool) -> tuple[Poller, float]:
        """Who asks, and the seconds since it asked for the same."""
        bounds = self._bounds()
        rate, most = bounds.limits.polls_per_second, bounds.owner_polls if counted else None
        asker = self._pollers.of(owner)
        poller = None if asker is None else asker.pollers.get(what)
        in_all = 0.0 if asker is None or most is None else asker.missing(at, most)
        passed = of_task = 0.0
        if asker is not None and poller is not None:
            self._pollers.touch(asker, what)
            passed = at - poller.at
            of_task = poller.missing(at, rate)
        if in_all or of_task:
            # Whoever asks for one task too often is told so first: that is the easier one to mend.
            raise _too_often(_TASK.format(rate) if of_task else _ALL.format(most), max(in_all, of_task), poller, owner)
        if asker is None or poller is None:
            poller = Poller(at, BURST * rate)
            asker = self._pollers.add(owner, what, poller, BURST * (most or 0))
        poller.credit -= 1
        if most is not None:
            asker.credit -= 1
        return poller, passed

    def interval(self, poller: Poller, task: Task) -> int | None:
        """When to ask again for `task`, in milliseconds. As its tool says, if it is over or its tool says nothing."""
        every = task.poll_ms
        if every is None or task.status.terminal:
            return every
        every = max(every, min((self._now() - task.created_at) // _AGES, _OLDEST_MS))
        poller.every_ms = every
        poller.told_ms = int(every * max(1.0, poller.ahead / _AHEAD) * self._load)
        return poller.told_ms

    def _count(self, at: float, bound: int | None) -> None:
        """One poll more, and once a second how many times more there are than there should be."""
        self._polls += 1
        if at - self._since < 1:
            return
        rate = self._polls / (at - self._since)
        self._load = 1.0 if bound is None else min(_CROWDED, max(1.0, rate / bound))
        self._since, self._polls = at, 0


def _too_often(why: str, missing: float, poller: Poller | None, owner: Owner) -> PolledTooOften:
    """`missing`: the seconds until it would be admitted; a millisecond on top, since both sides round."""
    every = USUAL_MS if poller is None else poller.every_ms
    return PolledTooOften(why, retry_after_ms=max(every, math.ceil(missing * 1000) + 1), owner=owner)


def _judge(poller: Poller, passed_ms: float) -> None:
    """Another poll, so long after the last one: a client in time is never ahead."""
    poller.ahead = min(_AHEAD * _STRETCH, max(0.0, poller.ahead - passed_ms / poller.every_ms) + 1)
    if passed_ms >= poller.told_ms * _IN_TIME:
        poller.ahead /= 2  # it does as it is told, so it is soon forgiven
