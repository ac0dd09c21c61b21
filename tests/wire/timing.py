"""Whether answers take differently long: what an attacker measures, and when it is more than chance.

Answers of several kinds are asked for in turns, in a new order each time, so that whatever else the machine does hits
all of them alike. What comes between only ever makes an answer slower, so of each few turns the fastest answer of a
kind counts, as it would for an attacker. Two kinds are compared few by few: no slow ones move the median of the
differences, and the ranks around it say, whatever the distribution, between which bounds the true one lies (the sign
test). Only when these leave no doubt is there a verdict, so a busy machine makes this slower, and at worst leaves it
without one, but not wrong.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

__all__ = ["TOLERATED", "Difference", "compared", "measured"]

TOLERATED: Final = 100e-6
"""Seconds that two answers may differ by.

What a process in the same data centre can tell by some thousands of requests is less than that, if the server has
nothing else to do; the aim is to find what somebody adds (a look-up, a row that is read, a wait for a lock), which is
more on one of the databases at least.
"""
SURE: Final = 3.5
"""How many standard deviations of the rank the bounds lie off. One in two thousand does not have the true difference
between them; but where nothing differs, a wrong verdict would have to be off by all that is tolerated."""
FEW: Final = 10
"""Turns of which the fastest answers are compared."""
AT_MOST: Final = 100
"""Comparisons, after which the machine is too busy to tell."""


@dataclass(frozen=True, slots=True)
class Difference:
    """By how many seconds one kind takes longer than another: the median, and between which bounds it surely lies."""

    median: float
    low: float
    high: float

    @property
    def is_told(self) -> bool:
        """Whether it is surely more than is tolerated, in either direction."""
        return self.low > TOLERATED or self.high < -TOLERATED

    @property
    def is_tolerated(self) -> bool:
        """Whether it surely is not."""
        return self.low > -TOLERATED and self.high < TOLERATED

    def __str__(self) -> str:
        return " ".join(f"{each * 1e6:+.0f}" for each in (self.low, self.median, self.high)) + " µs"


def compared(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """How much longer `ones` took than `others`, which were taken at the same times."""
    differences = sorted(one - other for one, other in zip(ones, others, strict=True))
    count = len(differences)
    off = math.ceil(SURE * math.sqrt(count) / 2)
    if 2 * off >= count:
        return Difference(median(differences), -math.inf, math.inf)
    return Difference(median(differences), differences[count // 2 - off], differences[(count - 1) // 2 + off])


async def measured(
    kinds: Mapping[str, Callable[[], Awaitable[object]]], known: str, *, seed: int = 0
) -> dict[str, Difference]:
    """Ask for answers of all kinds until it is sure of each how it differs from those of the kind `known`.

    A kind of which that is known is not asked for any more. On a machine that is too busy, what is in doubt in the end
    is neither told nor tolerated.
    """
    chance = random.Random(seed)
    fastest: dict[str, list[float]] = {kind: [] for kind in kinds}
    found: dict[str, Difference] = {}
    doubtful = [kind for kind in kinds if kind != known]
    with _undisturbed():
        for _ in range(AT_MOST):
            for kind, took in (await _fastest({kind: kinds[kind] for kind in (known, *doubtful)}, chance)).items():
                fastest[kind].append(took)
            found |= {kind: compared(fastest[kind], fastest[known]) for kind in doubtful}
            doubtful = [kind for kind in doubtful if not (found[kind].is_told or found[kind].is_tolerated)]
            if not doubtful:
                break
    return found


async def _fastest(kinds: Mapping[str, Callable[[], Awaitable[object]]], chance: random.Random) -> dict[str, float]:
    fastest = dict.fromkeys(kinds, math.inf)
    for _ in range(FEW):
        for kind in chance.sample([*kinds], len(kinds)):
            begun = time.perf_counter()
            await kinds[kind]()
            fastest[kind] = min(fastest[kind], time.perf_counter() - begun)
    return fastest


@contextmanager
def _undisturbed() -> Generator[None]:
    """Without the garbage collector, which would come in one kind of answer or the other."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
