"""Which turns count: those in which the machine was ours.

A benchmark rarely has its machine to itself, and neighbours hurt unevenly: two threads that hand work to each other
suffer more from them than one that computes. So each turn notes how much processor time everybody else took meanwhile;
turns go on until enough of them were quiet, within bounds; and the quietest count. The choice looks at the neighbours
alone and never at the figure, so it favours nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from statistics import median
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Consumer", "Others", "Turns", "noise"]

T = TypeVar("T")

_QUIET: Final = 0.15
"""Of one core."""
_PATIENCE: Final = 5
"""Turns taken for each that is wanted, at most. Who wants a single one wants to see that it runs, not a figure."""


class Consumer(Protocol):
    """A process, or several that belong together."""

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far."""
        ...


class Others:
    """What all processes but this one and `servers` take of the processors, from now on."""

    def __init__(self, servers: Collection[Consumer] = ()) -> None:
        self._servers = servers
        self._started = time.perf_counter()
        self._before = self._used()

    def share(self) -> float:
        """The mean until now, 1 being one core."""
        return max(0.0, self._used() - self._before) / (time.perf_counter() - self._started)

    def _used(self) -> float:
        ours = sum(os.times()[:2]) + sum(server.cpu_seconds() for server in self._servers)
        return _busy() - ours


def _busy() -> float:
    """Seconds that all processors together have worked since the boot."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = Path("/proc/stat").read_text().split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


class Turns(Generic[T]):
    """What one figure came to, turn by turn; `wanted` of them count."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._turns: list[tuple[float, T]] = []

    def add(self, others: Others, value: T) -> None:
        """A turn that ends now."""
        self.note(others.share(), value)

    def note(self, share: float, value: T) -> None:
        """A turn in which others took that share."""
        self._turns.append((share, value))

    @property
    def enough(self) -> bool:
        """Whether no more turns are needed, or it would take too many."""
        quiet = sum(share <= _QUIET for share, _ in self._turns)
        bound = 1 if self._wanted == 1 else self._wanted * _PATIENCE
        return quiet >= self._wanted or len(self._turns) >= bound

    @property
    def everything(self) -> list[T]:
        """The values of all turns, for what must never be."""
        return [value for _, value in self._turns]

    @property
    def counted(self) -> list[T]:
        """The values that count."""
        return [value for _, value in self._quietest()]

    @property
    def shares(self) -> list[float]:
        """What others took in the turns that count."""
        return [share for share, _ in self._quietest()]

    def values(self, of: Callable[[T], float]) -> list[float]:
        return [of(value) for value in self.counted]

    def beside(self, base: Turns[T], of: Callable[[T], float]) -> list[float]:
        """How many times that of `base` it was, in each of the quietest rounds: both took their turns in the same ones.

        What slows a whole round down, such as a neighbour or the heat, slows both.
        """
        rounds = [
            (max(mine, theirs), of(value) / of(their_value))
            for (mine, value), (theirs, their_value) in zip(self._turns, base._turns, strict=True)
        ]
        return [ratio for _, ratio in sorted(rounds, key=lambda each: each[0])[: self._wanted]]

    def _quietest(self) -> list[tuple[float, T]]:
        return sorted(self._turns, key=lambda turn: turn[0])[: self._wanted]


def noise(figures: Iterable[Turns[T]]) -> str:
    """How much of a core others took while the counted turns were measured."""
    shares = [share for turns in figures for share in turns.shares]
    return f"{median(shares):.0%} of a core, {max(shares):.0%} at most"
