"""Puts the table of who gets what, `ownership.py`, into `docs/howto/ownership.md`.

A test compares the page with what this makes of the table, so the page promises what is tested and nothing else.

`python -m docs.make_ownership` rewrites it; `make docs` does so first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from docs.ownership import ANSWERS, ROWS, Answer, Row, State

__all__ = ["PAGE", "answers", "made", "matrix"]

PAGE: Final = Path(__file__).parent / "howto" / "ownership.md"


def matrix(rows: Iterable[Row]) -> str:
    """Who gets which answer, as a Markdown table."""
    head = ["asked by", "who", *State]
    return _table([head, *([_listed(row.asks), row.who or _listed(row.callers), *_cells(row)] for row in rows)])


def answers(each: Iterable[Answer]) -> str:
    """What the answers are, as another one."""
    head = ["answer", "HTTP", "what comes"]
    return _table([head, *([one.name, "" if one.http is None else f"{one.http}", _said(one)] for one in each)])


def _cells(row: Row) -> Iterator[str]:
    for state in State:
        yield row.answers[state].name


def _listed(names: Iterable[str]) -> str:
    return "; ".join(names)


def _said(answer: Answer) -> str:
    code = "" if answer.code is None else f"{answer.code} "
    message = "" if answer.message is None else f"`{answer.message}`"
    return ", ".join(part for part in (f"{code}{message}", answer.says) if part)


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]) + "\n"


def _filled(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: made by `make docs` from docs/ownership.py -->", f"<!-- end of {name} -->"
    between = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    filled, count = between.subn(lambda _: f"\n{text}\n", page)
    if count != 1:
        raise ValueError(f"{PAGE.name} needs the lines {begin!r} and {end!r} once each")
    return filled


def made() -> str:
    """The page as it has to be.

    Raises:
        ValueError: it has no place for a table.
    """
    page = PAGE.read_text("utf-8")
    return _filled(_filled(page, "the matrix", matrix(ROWS)), "the answers", answers(ANSWERS))


if __name__ == "__main__":
    PAGE.write_text(made(), "utf-8")
