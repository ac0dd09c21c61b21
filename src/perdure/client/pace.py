"""When to ask again: the arithmetic, without a clock. Seconds throughout; `chance` draws from 0 to 1.

Never sooner than the server said, and rarely exactly then, so that a thousand tasks that began together are not asked
for together. What is added is only ever later.
"""

from __future__ import annotations

from typing import Final

from perdure.domain.policy import Duration, milliseconds

from .snapshot import Snapshot

__all__ = ["BACKSTOP", "DEFAULT_POLL", "backoff", "interval", "listened", "seconds", "spread"]

DEFAULT_POLL: Final = 2.0
"""For a server that names no interval."""
BACKSTOP: Final = 60.0
"""Between two polls of a task that is listened to, at least: a stream may have died without a word."""

_SHORTEST: Final = 0.05
_POLLS_PER_SECOND: Final = 75.0
"""Of all tasks of a session together."""
_JITTER: Final = 0.1
_FIRST_RETRY: Final = 0.5
_LAST_RETRY: Final = 60.0


def interval(snapshot: Snapshot, chance: float, crowd: int = 1) -> float:
    """From the last answer to the next poll of a task that was described by `snapshot`, one of a `crowd`.

    Where a thousand are polled, each waits longer than it was told: a poll costs the client one to two milliseconds of
    processor time, and who only waits should not need a processor for it.
    """
    told = DEFAULT_POLL if snapshot.poll_ms is None else snapshot.poll_ms / 1000
    return max(told, _SHORTEST, crowd / _POLLS_PER_SECOND) * (1 + _JITTER * chance)


def spread(crowd: int, chance: float) -> float:
    """Until a poll that is one of `crowd` for which there is a reason at this moment."""
    return chance * crowd / _POLLS_PER_SECOND


def listened(snapshot: Snapshot, chance: float) -> float:
    """The same for a task that a stream tells of."""
    return max(interval(snapshot, chance), BACKSTOP * (1 + chance))


def backoff(failures: int, hint: float, chance: float) -> float:
    """From the `failures`th failure in a row to the next try; at least what the server asked for (`hint`)."""
    grown = min(_LAST_RETRY, _FIRST_RETRY * 2 ** min(failures - 1, 30))
    return max(hint, grown) * (1 + _JITTER * chance)


def seconds(timeout: Duration | None, what: str = "timeout") -> float | None:
    """A caller's bound on a wait. A number is seconds, and none or less of them is no wait at all.

    Raises:
        InvalidDuration: it is no duration; `what` it is begins the message.
    """
    if timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool)):
        return timeout
    return milliseconds(timeout, what=what) / 1000
