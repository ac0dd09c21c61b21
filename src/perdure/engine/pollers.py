"""Who has asked for what lately: remembered for `pace`, no more than so many, and whoever asks for most forgets first.

Ids can be made up, for nothing. If they pushed out what is known of others, one owner could have everybody begin anew.
So where there is no room left, an owner with the most of them loses the one that it asked for longest ago. All of it
takes the same time, however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from perdure.domain.model import Owner

__all__ = ["BURST", "USUAL_MS", "Asker", "Budget", "Poller", "Pollers"]

BURST: Final = 10.0
"""Seconds' worth of a budget that may be used at once."""
USUAL_MS: Final = 1000
"""The interval of a task whose tool says none."""


@dataclass(slots=True, eq=False)
class Budget:
    """What may be asked yet. `at`: when that was so; `credit`: how many polls were left."""

    at: float
    credit: float

    def missing(self, at: float, rate: int) -> float:
        """Fill up by `rate` polls a second. Returns the seconds until another one may come; 0: it may now."""
        credit, most = self.credit + (at - self.at) * rate, BURST * rate
        self.credit, self.at = min(credit, most), at
        return 0.0 if credit >= 1 else (1 - credit) / rate


@dataclass(slots=True, eq=False)
class Poller(Budget):
    """One owner that asks for one task.

    `ahead`: how many polls it is ahead of its time. `every_ms`: what that is; `told_ms`: what it was told last.
    """

    ahead: float = 0.0
    every_ms: int = USUAL_MS
    told_ms: int = USUAL_MS


@dataclass(slots=True, eq=False)
class Asker(Budget):
    """One owner. `pollers`: what it asks for, by task, the longest ago first."""

    owner: Owner
    pollers: OrderedDict[str, Poller] = field(default_factory=OrderedDict[str, Poller])


class Pollers:
    """All of them in one process. `room`: how many are remembered."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._count = 0
        self._askers: dict[Owner, Asker] = {}
        self._having: dict[int, OrderedDict[Asker, None]] = {}
        """The askers by how many pollers each has, and the longest ago first."""
        self._most = 0

    def of(self, owner: Owner) -> Asker | None:
        """What is known of an owner."""
        return self._askers.get(owner)

    def touch(self, asker: Asker, task_id: str) -> None:
        """It asked again for what it has asked for before."""
        asker.pollers.move_to_end(task_id)
        self._having[len(asker.pollers)].move_to_end(asker)

    def add(self, owner: Owner, task_id: str, poller: Poller, budget: float) -> Asker:
        """Remember one more. `budget`: the credit of its owner, if that is new."""
        if self._count >= self._room:
            self._forget_one()
        asker = self._askers.get(owner)
        if asker is None:
            asker = self._askers[owner] = Asker(poller.at, budget, owner)
        asker.pollers[task_id] = poller
        self._count += 1
        self._move(asker, len(asker.pollers) - 1)
        return asker

    def _forget_one(self) -> None:
        asker = next(iter(self._having[self._most]))
        asker.pollers.popitem(last=False)
        self._count -= 1
        self._move(asker, len(asker.pollers) + 1)
        if not asker.pollers:
            del self._askers[asker.owner]

    def _move(self, asker: Asker, before: int) -> None:
        """From those that have so many to those that have as many as it does now, which is one more or one less."""
        now = len(asker.pollers)
        if now:
            self._having.setdefault(now, OrderedDict())[asker] = None
            self._most = max(self._most, now)
        if before:
            del self._having[before][asker]
            if not self._having[before]:
                del self._having[before]
                if self._most == before:
                    self._most = now
