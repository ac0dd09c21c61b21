"""How often clients should ask for a task, and what comes of asking more often.

A tool's author says an interval, and there are three reasons to tell a client a longer one. The task is old: what has
taken an hour will hardly be over in the next second. The client asks more often than it was told. Or this process has
to answer more polls than it should.

Who asks much more often is refused, before the store is troubled. Counted is per owner and id, whether there is such a
task or not: so nobody can have another one's polls refused, and a refusal tells nothing of what there is.

All of it is advice of one process, kept in memory. Behind a balancer each replica sees its share of the polls, and
after a restart everybody begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time
from typing import Final, Protocol

from perdure.domain.errors import PolledTooOften
from perdure.domain.limits import Limits
from perdure.domain.model import Owner, Task

__all__ = ["Bounds", "Pace", "Poller"]

_BURST: Final = 10.0
"""Seconds' worth of `Limits.polls_per_second` that may come at once."""
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
_KEPT: Final = 20_000
"""Pollers that are remembered, those that asked last."""
_USUAL_MS: Final = 1000
"""The interval of a task whose tool says none."""


class Bounds(Protocol):
    """What bounds the polls. `polls`: how many this process should answer per second; None is no bound."""

    @property
    def polls(self) -> int | None: ...

    @property
    def limits(self) -> Limits: ...


@dataclass(slots=True)
class Poller:
    """One owner that asks for one task.

    `credit`: how many polls are left, and `ahead`: how many it is ahead of its time. `every_ms`: what that is;
    `told_ms`: what it was told last.
    """

    at: float
    credit: float
    ahead: float = 0.0
    every_ms: int = _USUAL_MS
    told_ms: int = _USUAL_MS


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
        self._pollers: OrderedDict[tuple[str, Owner], Poller] = OrderedDict()
        self._since = clock()
        self._polls = 0
        self._load = 1.0

    def admit(self, owner: Owner, task_id: str) -> Poller:
        """Count one poll.

        Raises:
            PolledTooOften: it is one too many. It is not counted.
        """
        at, bounds = self._clock(), self._bounds()
        rate = bounds.limits.polls_per_second
        key = task_id, owner
        poller = self._pollers.get(key)
        if poller is None:
            poller = self._first(key, at, rate)
        else:
            self._pollers.move_to_end(key)
        passed = at - poller.at
        poller.at = at
        poller.credit = min(_BURST * rate, poller.credit + passed * rate)
        if poller.credit < 1:
            raise PolledTooOften(retry_after_ms=poller.every_ms)
        poller.credit -= 1
        _judge(poller, passed * 1000)
        self._polls += 1
        if at - self._since >= 1:
            self._measure(at, bounds.polls)
        return poller

    def interval(self, poller: Poller, task: Task) -> int | None:
        """When to ask again for `task`, in milliseconds. As its tool says, if it is over or its tool says nothing."""
        every = task.poll_ms
        if every is None or task.status.terminal:
            return every
        every = max(every, min((self._now() - task.created_at) // _AGES, _OLDEST_MS))
        poller.every_ms = every
        poller.told_ms = int(every * max(1.0, poller.ahead / _AHEAD) * self._load)
        return poller.told_ms

    def _first(self, key: tuple[str, Owner], at: float, rate: int) -> Poller:
        if len(self._pollers) >= _KEPT:
            self._pollers.popitem(last=False)
        poller = self._pollers[key] = Poller(at, _BURST * rate)
        return poller

    def _measure(self, at: float, bound: int | None) -> None:
        """How many times more polls there are than there should be."""
        rate = self._polls / (at - self._since)
        self._load = 1.0 if bound is None else max(1.0, rate / bound)
        self._since, self._polls = at, 0


def _judge(poller: Poller, passed_ms: float) -> None:
    """Another poll, so long after the last one: a client in time is never ahead."""
    poller.ahead = min(_AHEAD * _STRETCH, max(0.0, poller.ahead - passed_ms / poller.every_ms) + 1)
    if passed_ms >= poller.told_ms * _IN_TIME:
        poller.ahead /= 2  # it does as it is told, so it is soon forgiven
