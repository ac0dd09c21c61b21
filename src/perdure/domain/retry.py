"""When to try again, and after how long. Decisions only: who raises, waits or counts is elsewhere.

A policy always ends: the number of attempts is bounded, and so is each wait. Jitter keeps a thousand tasks that failed
together from coming back together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

from .errors import ConfigurationError
from .policy import Duration, milliseconds

__all__ = ["NEVER", "Retry"]

_MOST_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, how soon, and after what.

    Args:
        max_attempts: runs in all, the first included; 1 to 1000.
        backoff: the wait before the second run. Each later wait is `factor` times as long, and `longest` at most.
        factor: at least 1.
        longest: the bound of a single wait.
        jitter: the share of each wait that is drawn at random, 0 to 1: with 0.5, a wait of 10 s is 5 to 10 s.
        on: the kinds of exception that are worth another run; others end the work at once. `Exception` stands for
            whatever goes wrong, and not for what the code means as its answer: a `ToolError` or an `MCPError` is worth
            another run only if its kind is named here as well, and `task.decline` never is. Nor is a mistake that each
            run would make again (`JournalMismatch`, `InputKeyReused`, `LimitExceeded`, `NotStorable`,
            `InvalidDuration`, `ConfigurationError`), or `StepInterrupted`. An exception group is, if all that is in it
            is. For the `retry` of a tool, a failed step is what it failed with.

    Raises:
        ConfigurationError: a number is none, or out of its range; `on` has something that is no kind of exception.
        InvalidDuration: a wait is unreadable, zero or negative.
    """

    max_attempts: int = 3
    backoff: Duration = "1s"
    factor: float = 2.0
    longest: Duration = "5m"
    jitter: float = 0.5
    on: tuple[type[Exception], ...] = field(default=(Exception,))

    def __post_init__(self) -> None:
        if not _is_number(self.max_attempts, int) or not 1 <= self.max_attempts <= _MOST_ATTEMPTS:
            raise ConfigurationError(f"max_attempts must be a whole number, 1 to {_MOST_ATTEMPTS}: a retry has to end")
        if not _is_number(self.factor, int, float) or not 1 <= self.factor < math.inf:
            raise ConfigurationError("factor must be a number of at least 1")
        if not _is_number(self.jitter, int, float) or not 0 <= self.jitter <= 1:
            raise ConfigurationError("jitter must be a number, 0 to 1")
        if not _are_exceptions(self.on):
            raise ConfigurationError("on must be a tuple of kinds of exception, for example (ConnectionError,)")
        milliseconds(self.backoff, what="backoff")
        milliseconds(self.longest, what="longest")

    def next_delay(self, error: BaseException, attempt: int, chance: float) -> int | None:
        """Milliseconds to wait after attempt number `attempt` (from 1) ended in `error`; None: it was the last one.

        `chance`: a random number in [0, 1).
        """
        if attempt >= self.max_attempts or not isinstance(error, self.on):
            return None
        return max(1, int(self._wait(attempt) * (1 - self.jitter * chance)))

    def _wait(self, attempt: int) -> float:
        longest = milliseconds(self.longest)
        try:
            return min(milliseconds(self.backoff) * float(self.factor) ** (attempt - 1), longest)
        except OverflowError:  # past every float is past the bound
            return longest


def _is_number(value: object, *kinds: type) -> bool:
    # bool is an int to Python, but `jitter=True` is a mistake.
    return isinstance(value, kinds) and not isinstance(value, bool)


def _are_exceptions(kinds: object) -> bool:
    return isinstance(kinds, tuple) and all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in cast("tuple[object, ...]", kinds)
    )


NEVER = Retry(max_attempts=1)
"""No second attempt."""
