"""Instants and ages, as operators read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["age", "instant", "now"]


def now() -> int:
    return round(time.time() * 1000)


def instant(at: int) -> str:
    try:
        return _instant(at)
    except (ValueError, OverflowError, OSError):  # a number that was damaged
        return f"{at} ms"


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def age(of_ms: int | None) -> str:
    """In one unit, which is enough to compare the rows of a table by."""
    if of_ms is None:
        return "-"
    seconds = of_ms / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
