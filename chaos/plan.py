"""What is to happen, and when: a plan that the seed decides.

The kinds that concern processes are here; those that concern what lies beneath a store are the store's own, which says
of each how often it is to come and how long it lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from typing import Final

__all__ = ["FLEET", "OF_THE_CLOCK", "Extent", "Fault", "Inflicted", "Kind", "Share", "plan"]

FARTHEST: Final = 30.0
"""Seconds that the wall clock may be from the truth."""

Extent = Callable[[random.Random, float], tuple[float, float]]
"""Draws span and size of a fault. Its second argument is the lease, in seconds."""


class Kind(StrEnum):
    """The kinds of faults of processes, in the words of the report."""

    KILL = "SIGKILL"
    BLACKOUT = "SIGKILL, all at once"
    STOP = "SIGSTOP past the lease"
    TERM = "SIGTERM"
    FORWARD = "clock forward"
    BACK = "clock back"


OF_THE_CLOCK: Final = frozenset({Kind.FORWARD, Kind.BACK})


@dataclass(frozen=True, slots=True)
class Share:
    """How often a kind comes, beside the others, and how it is drawn."""

    weight: int
    extent: Extent


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at`: seconds from the beginning. `seat`: whom it prefers. `span`: how long it lasts, in seconds.

    `size`: of a clock step, the seconds (signed); of a kill, how early it comes (0 to 1); of a store's own kind, what
    that makes of it.
    """

    at: float
    kind: str
    seat: int
    span: float
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault that was inflicted at `at` (seconds from the beginning) on `whom`, and whether anybody felt it."""

    fault: Fault
    at: float
    whom: str
    felt: bool


def _any(rng: random.Random, _: float) -> tuple[float, float]:
    return rng.uniform(0, 1), rng.random()


def _past_the_lease(rng: random.Random, lease: float) -> tuple[float, float]:
    return lease + rng.uniform(0.3, 2), 0.0


FLEET: Final[Mapping[str, Share]] = {
    Kind.KILL: Share(6, _any),
    Kind.BLACKOUT: Share(1, _any),
    Kind.STOP: Share(4, _past_the_lease),
    Kind.TERM: Share(4, _any),
    Kind.FORWARD: Share(2, _any),
    Kind.BACK: Share(2, _any),
}


def plan(
    rng: random.Random, count: int, seconds: float, seats: int, lease: float, kinds: Mapping[str, Share]
) -> list[Fault]:
    """`count` faults over `seconds`, every one of `kinds` among them if there are enough."""
    deck = _deck(rng, count, kinds)
    pace = seconds / count
    faults: list[Fault] = []
    offset = 0.0
    for number, kind in enumerate(deck):
        at = pace * (number + rng.random())
        if kind in OF_THE_CLOCK:
            step = _step(rng, offset, forward=kind == Kind.FORWARD)
            offset += step
            faults.append(Fault(at, kind, 0, 0.0, step))
        else:
            span, size = kinds[kind].extent(rng, lease)
            faults.append(Fault(at, kind, rng.randrange(seats), span, size))
    return faults


def _deck(rng: random.Random, count: int, kinds: Mapping[str, Share]) -> Sequence[str]:
    """`count` kinds in the proportions of their weights, shuffled."""
    weights = [share.weight for share in kinds.values()]
    deck = [kind for kind, share in kinds.items() for _ in range(max(1, count * share.weight // sum(weights)))]
    deck += rng.choices([*kinds], weights, k=max(0, count - len(deck)))
    rng.shuffle(deck)
    return deck[:count]


def _step(rng: random.Random, offset: float, *, forward: bool) -> float:
    """A step of the clock, most of them small, that does not lead too far away."""
    size = exp(rng.uniform(log(0.2), log(FARTHEST)))
    sign = 1 if forward else -1
    return sign * (size if abs(offset + sign * size) <= FARTHEST else rng.uniform(0.2, 2))
