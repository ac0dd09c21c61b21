"""How values are shown to people: instants, spans, tables; and nothing in them that a terminal would obey."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

__all__ = ["instant", "now", "printable", "span", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> Iterator[str]:
    """Rows under their head, in columns; only the word `empty` if there are none."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if not rows:
        yield empty
        return
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """On one line, and without what a terminal would take for a command: names and notes are anybody's."""
    return "".join(each if each.isprintable() else " " for each in text)


def now() -> int:
    return round(time.time() * 1000)


def instant(at: int) -> str:
    try:
        return _instant(at)
    except (ValueError, OverflowError, OSError):  # a number that was damaged
        return f"{at} ms"


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def span(span_ms: int | None) -> str:
    if span_ms is None:
        return "-"
    seconds = span_ms / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
