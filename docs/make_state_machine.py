"""Makes what `docs/state_machine.md` shows of the state machine: the drawing, and the table of arrows.

Both are made from `lifecycle.TRANSITIONS`, and a test compares them with the committed files, so neither can tell of
another machine than the one that runs. Written by hand are the sentence of each arrow and the lane that it is drawn in,
since a machine can't know either; an arrow that lacks one of the two is an error that names it. The sentences are here
and not beside the table because they tell of tools, which the domain does not know.

The drawing is a picture and not text for a script that draws in the browser: that script would come from another host,
and the page reads the same on a site, on a code host and from a disk.

`python -m docs.make_state_machine` writes both; `make docs` does so first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.domain.lifecycle import TRANSITIONS, Kind
from perdure.domain.model import Status

__all__ = ["DRAWING", "LANES", "PAGE", "WHEN", "Arrows", "Incomplete", "Lane", "drawn", "made", "table", "with_table"]

PAGE: Final = Path(__file__).with_name("state_machine.md")
DRAWING: Final = Path(__file__).with_name("state_machine.svg")

Arrows = Mapping[tuple[Status, Kind], Status]

_W, _I = Status.WORKING, Status.INPUT_REQUIRED
_COMPLETED, _FAILED, _CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED

WHEN: Final[Mapping[tuple[Status, Kind], str]] = {
    (_W, Kind.REPORT): "the tool says how far it is",
    (_W, Kind.ASK): "the tool can't go on without answers; it is parked",
    (_W, Kind.REQUEST_CANCEL): "somebody asked the task to stop; what the tool then does decides",
    (_W, Kind.COMPLETE): "the tool returned, or raised",
    (_W, Kind.FAIL): "the tool raised a protocol error, or its workers died too often",
    (_W, Kind.CANCEL): "somebody cancelled it and nobody ran it; or the tool let the cancellation pass",
    (_W, Kind.EXPIRE): "the ttl ran out",
    (_I, Kind.PARTIAL): "some answers came, others are missing",
    (_I, Kind.RESUME): "the last answer came, or a time that the tool waits for; it is run again",
    (_I, Kind.REQUEST_CANCEL): "somebody asked it to stop, and its tool has work elsewhere to stop: it is run again",
    (_I, Kind.CANCEL): "somebody cancelled it: nobody runs it, so at once",
    (_I, Kind.EXPIRE): "the ttl ran out",
}
"""What leads along each arrow, in the words of the documentation."""


class Incomplete(Exception):
    """An arrow of the machine lacks something here, or the page a place for them; the message says what."""


def _named(source: Status, kind: Kind, target: Status) -> str:
    return f"the arrow {source} --{kind}--> {target}"


# -- the table ---------------------------------------------------------------------------------------------------------

_BEGIN, _END = "<!-- arrows: made by `make docs` from the machine's table -->", "<!-- end of the arrows -->"
_BETWEEN = re.compile(f"(?<={re.escape(_BEGIN)}\n).*?(?={re.escape(_END)})", re.DOTALL)


def table(arrows: Arrows, when: Mapping[tuple[Status, Kind], str]) -> str:
    """The arrows as a Markdown table, in the order of the machine's.

    Raises:
        Incomplete: an arrow has no sentence.
    """
    rows = ["| from | event | to | when |", "| --- | --- | --- | --- |"]
    for (source, kind), target in arrows.items():
        if (source, kind) not in when:
            raise Incomplete(f"{_named(source, kind, target)} has no sentence in WHEN")
        rows.append(f"| `{source}` | `{kind}` | `{target}` | {when[source, kind]} |")
    return "\n".join(rows) + "\n"


def with_table(page: str, rows: str) -> str:
    """`page` with `rows` between its two marks, whatever stood there.

    Raises:
        Incomplete: the page has no marks.
    """
    replaced, count = _BETWEEN.subn(lambda _: f"\n{rows}\n", page)
    if count != 1:
        raise Incomplete(f"the page needs the lines {_BEGIN!r} and {_END!r} once each, around the table")
    return replaced


# -- the drawing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lane:
    """The way from one status to another, which all arrows between the two share.

    `path` is an SVG path; it ends at the target's edge. The events' names stand one below the other, the first at
    `x`, `y`, or the last if they grow `upwards`; `anchor` is SVG's `text-anchor`.
    """

    path: str
    x: int
    y: int
    anchor: str = "middle"
    upwards: bool = False


_SIZE = (840, 380)
_LINE = 16

_BOXES: Final[Mapping[Status, tuple[int, int, int]]] = {
    _COMPLETED: (85, 190, 120),
    _W: (330, 190, 120),
    _I: (620, 190, 160),
    _CANCELLED: (475, 42, 120),
    _FAILED: (475, 338, 120),
}
"""The middle of each box, and its width. The final statuses lie around the other two so that no lanes cross."""
_HEIGHT = 44

LANES: Final[Mapping[tuple[Status, Status], Lane]] = {
    (_W, _W): Lane("M 285 168 C 268 112, 326 112, 312 168", x=268, y=116, upwards=True),
    (_I, _I): Lane("M 700 180 C 758 160, 758 220, 700 200", x=752, y=194, anchor="start"),
    (_W, _I): Lane("M 390 181 H 540", x=465, y=172, upwards=True),
    (_I, _W): Lane("M 540 199 H 390", x=465, y=217),
    (_W, _COMPLETED): Lane("M 270 190 H 145", x=207, y=181, upwards=True),
    (_W, _FAILED): Lane("M 365 212 L 444 316", x=388, y=264, anchor="end"),
    (_W, _CANCELLED): Lane("M 365 168 L 444 64", x=391, y=112, anchor="end"),
    (_I, _FAILED): Lane("M 585 212 L 506 316", x=558, y=264, anchor="start"),
    (_I, _CANCELLED): Lane("M 585 168 L 506 64", x=555, y=112, anchor="start"),
}

_STYLE = """\
.ground { fill: #ffffff } .box { fill: #eceff1; stroke: #455a64 } .final { fill: #ffffff; stroke-width: 3 }
path { fill: none; stroke: #455a64; stroke-width: 1.5 } .head { fill: #455a64; stroke: none }
text { fill: #263238; font-size: 13px; font-family: ui-monospace, Menlo, Consolas, monospace }
.status { font-size: 15px }
@media (prefers-color-scheme: dark) {
.ground { fill: #1e2129 } .box { fill: #37474f; stroke: #b0bec5 } .final { fill: #1e2129 }
path { stroke: #b0bec5 } .head { fill: #b0bec5 } text { fill: #eceff1 }
}"""
"""Colours for both of the site's palettes, which follow the reader's system, as this does."""

_HEAD = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="head" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
)


def drawn(arrows: Arrows, lanes: Mapping[tuple[Status, Status], Lane]) -> str:
    """The arrows as an SVG drawing.

    Raises:
        Incomplete: there is no lane from an arrow's source to its target.
    """
    width, height = _SIZE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<title>The states of a task, and the events that lead from one to another</title>",
            f"<style>\n{_STYLE}\n</style>",
            f"<defs>{_HEAD}</defs>",
            f'<rect class="ground" width="{width}" height="{height}" rx="6"/>',
            *_beginning(),
            *(line for ends, kinds in _bundles(arrows, lanes).items() for line in _lane(*ends, kinds, lanes[ends])),
            *(line for status in Status for line in _box(status)),
            "</svg>\n",
        ]
    )


def _bundles(arrows: Arrows, lanes: Mapping[tuple[Status, Status], Lane]) -> dict[tuple[Status, Status], list[Kind]]:
    """The events of each lane, in the order of the machine's table."""
    bundles: dict[tuple[Status, Status], list[Kind]] = {}
    for (source, kind), target in arrows.items():
        if (source, target) not in lanes:
            raise Incomplete(f"{_named(source, kind, target)} has no lane in LANES")
        bundles.setdefault((source, target), []).append(kind)
    return bundles


def _beginning() -> Iterator[str]:
    yield '<circle cx="300" cy="300" r="7" class="head"/>'
    yield '<path d="M 300 300 V 212" marker-end="url(#head)"/>'
    yield '<text x="300" y="326" text-anchor="middle">tools/call</text>'


def _lane(source: Status, target: Status, kinds: list[Kind], lane: Lane) -> Iterator[str]:
    yield f'<g data-from="{source}" data-to="{target}">'
    yield f'<path d="{lane.path}" marker-end="url(#head)"/>'
    top = lane.y - _LINE * (len(kinds) - 1) if lane.upwards else lane.y
    for number, kind in enumerate(kinds):
        yield f'<text x="{lane.x}" y="{top + _LINE * number}" text-anchor="{lane.anchor}">{kind}</text>'
    yield "</g>"


def _box(status: Status) -> Iterator[str]:
    x, y, width = _BOXES[status]
    look = "box final" if status.terminal else "box"
    left, top = x - width // 2, y - _HEIGHT // 2
    yield f'<rect class="{look}" x="{left}" y="{top}" width="{width}" height="{_HEIGHT}" rx="6"/>'
    yield f'<text class="status" x="{x}" y="{y + 5}" text-anchor="middle">{status}</text>'


# -- the files ---------------------------------------------------------------------------------------------------------


def made() -> dict[Path, str]:
    """Each file as it has to be."""
    page = PAGE.read_text("utf-8")
    return {PAGE: with_table(page, table(TRANSITIONS, WHEN)), DRAWING: drawn(TRANSITIONS, LANES)}


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text, "utf-8")
