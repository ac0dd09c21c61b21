"""The arithmetic of time: durations, expiry, leases, poll intervals.

One unit throughout: whole milliseconds, and instants as milliseconds since the Unix epoch, UTC. Nobody here knows what
time it is; `now` is always passed in.
"""

from __future__ import annotations

import re
from datetime import date, time, timedelta

from .errors import InvalidDuration

__all__ = ["Duration", "due_at_once", "expires_at", "extended_ttl", "is_timer", "milliseconds", "renew_every"]

Duration = str | int | float | timedelta
"""How users write a span of time: `"500ms"`, `"30s"`, `"15m"`, `"2h"`, `"7d"`, `"2w"`, a `timedelta`, or seconds.

Units may be written out: `"3 days"`, `"1 hour"`."""

_WORDS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    **{word[0]: ms for word, ms in _WORDS.items()},
    **_WORDS,
    **{f"{word}s": ms for word, ms in _WORDS.items()},
}
_TEXT = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})\s*", re.ASCII)

# A ttl must survive JSON and JavaScript (integers up to 2**53) and, added to a date, still be a date: a thousand years.
_LONGEST = 1000 * 366 * 86_400_000


def milliseconds(duration: Duration, *, what: str = "duration") -> int:
    """`duration` in whole milliseconds, always positive.

    Raises:
        InvalidDuration: unreadable, zero, negative, not finite, below a millisecond or above a thousand years; the
            message begins with `what`.
    """
    amount = _read(duration)
    if amount is None:
        raise InvalidDuration(f"{what}: {duration!r} is no duration; {_instead_of(duration)}")
    # Written so that NaN fails it too, and an int too large for a float is still only compared.
    if not 1 <= amount <= _LONGEST:
        raise InvalidDuration(f"{what}: {duration!r} must be positive, at least 1 ms and at most 1000 years")
    return round(amount)  # 1.001 s times 1000 is a hair below 1001


def _instead_of(duration: object) -> str:
    if isinstance(duration, date | time):  # a datetime is a date
        return "write how long instead of when; a tool computes that in a step, since each run has another time"
    return "write for example '500ms', '30s', '15m', '2h', '3 days'"


def _read(duration: object) -> float | None:
    if isinstance(duration, timedelta):
        return duration / timedelta(milliseconds=1)
    if isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        return float(match[1]) * _UNITS[match[2]] if match else None
    # bool is an int to Python, but `ttl=True` is a mistake and never a second.
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        return None
    return duration * 1000


def due_at_once(now: int) -> int:
    """When a run is due that may start at once: in the order of `now`, and past on every clock.

    Several processes compare it with their own readings, and the one that wrote it may have been a day ahead.
    """
    return now - _LONGEST


def is_timer(due_at: int) -> bool:
    """Whether a run waits for the very instant `due_at`, rather than being due at once."""
    return due_at >= 0


def expires_at(created_at: int, ttl_ms: int | None) -> int | None:
    """The instant after which a task may be stopped and discarded: ttl counts from creation (contract 9)."""
    return None if ttl_ms is None else created_at + ttl_ms


def extended_ttl(ttl_ms: int | None, keep_ms: int | None, *, created_at: int, finished_at: int) -> int | None:
    """The ttl of a task that finishes at `finished_at` and whose result must stay readable for `keep_ms` from then.

    It only ever grows, and the changed value is what clients read from then on (contract 9).
    """
    if ttl_ms is None or keep_ms is None:
        return ttl_ms
    return max(ttl_ms, finished_at - created_at + keep_ms)


def renew_every(lease_ms: int) -> int:
    """How often a worker renews its lease: a third of it, so that two renewals may fail before it lapses."""
    return max(1, lease_ms // 3)
