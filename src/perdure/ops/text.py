r"""What may be shown, and how: everybody else's text without what a terminal would take for a command.

Results, messages, names and questions come from servers, and names and notes of tasks from whoever wrote a tool. A
control character in them could move the cursor, repaint
what was said before, or answer a question in the user's place, so none gets through: not on a terminal, and not into a
pipe that may end in one. JSON says such characters as `\u001b`.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

__all__ = ["block", "cleaned", "document", "line", "span", "table", "within"]

_WIDE: Final = frozenset({"W", "F"})
_KEPT: Final = "\n\t"


def line(text: str) -> str:
    """On one line."""
    return cleaned(text).strip()


def cleaned(text: str) -> str:
    """The same, indented as it was."""
    return "".join(each if each.isprintable() else " " for each in text)


def block(text: str) -> str:
    """With its lines and tabs."""
    text = text.replace("\r\n", "\n")
    return "".join(each if each.isprintable() or each in _KEPT else "\N{REPLACEMENT CHARACTER}" for each in text)


def document(value: Any) -> str:
    """As JSON, in ASCII: the control characters beyond it are commands to some terminals, too."""
    return json.dumps(value, indent=2)


def within(text: str, columns: int) -> str:
    """Not wider than so many columns of a terminal. A line that wraps can't be painted over."""
    used = 0
    for place, each in enumerate(text):
        used += _columns(each)
        if used > columns:
            return _cut(text[:place], columns)
    return text


def _cut(text: str, columns: int) -> str:
    while text and sum(map(_columns, text)) > columns - 1:
        text = text[:-1]
    return f"{text}…"


def _columns(each: str) -> int:
    if unicodedata.combining(each):
        return 0
    return 2 if unicodedata.east_asian_width(each) in _WIDE else 1


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> Iterator[str]:
    """Rows under their head, in columns, of text that may be anybody's; only the words `empty` if there are none."""
    shown = [list(head), *([line(cell) for cell in row] for row in rows)]
    if len(shown) == 1:
        yield empty
        return
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
