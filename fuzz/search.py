"""One round: a number of cases made from a seed, until one breaks a rule; that one is then made smaller.

Hypothesis does both. It is told to keep nothing and to look nothing up, so that a seed is all that a round depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from .oracle import Found

__all__ = ["Failure", "search"]

_OF_NO_MATTER: Final = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)
_SHRINKING: Final = 20.0
"""Seconds for making a case smaller."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that breaks a rule, as small as it could be made."""

    case: Any
    found: Found


class _Enough(BaseException):
    """The time is over. No `Exception`, which would be one more thing to make a small case for."""


def search(
    cases: SearchStrategy[Any], check: Callable[[Any], None], *, seed: int, count: int, until: float
) -> tuple[int, Failure | None]:
    """Try `count` cases, till the instant `until`; how many there were, and what was found."""
    tried, failure, end = 0, None, until

    def attempt(case: Any) -> None:
        nonlocal tried, failure, end
        if monotonic() > end:
            raise _Enough
        tried += 1
        try:
            check(case)
        except Found as found:
            end = end if failure is not None else monotonic() + _SHRINKING
            failure = Failure(case, found)
            raise

    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=_OF_NO_MATTER,
        report_multiple_bugs=False,
        print_blob=False,
    )
    # What was found first is found, whether or not it can be found again.
    with suppress(_Enough, Found, Flaky):
        hypothesis.seed(seed)(settings(hypothesis.given(case=cases)(attempt)))()
    return tried, failure
