"""A picture of what was measured over time: panels one below the other, as SVG that needs nothing to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Panel", "draw"]

_WIDTH: Final = 760
_HEIGHT: Final = 120
_LEFT: Final = 170
_TOP: Final = 48
_GAP: Final = 26


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure: its name, its unit, and points of time and value."""

    name: str
    unit: str
    points: Sequence[tuple[float, float]]


def draw(title: str, time: str, panels: Sequence[Panel]) -> str:
    """The picture. `time`: the unit of the points' first numbers; all panels have the same span of it."""
    longest = max(at for panel in panels for at, _ in panel.points)
    height = _TOP + len(panels) * (_HEIGHT + _GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 30}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="24" font-size="15">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + number * (_HEIGHT + _GAP), longest)
    parts.append(f'<text x="{_LEFT + _WIDTH}" y="{height - 8}" text-anchor="end">{longest:.0f} {escape(time)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: int, longest: float) -> Iterator[str]:
    """From zero, so that what grows is seen to, and what does not is not made to look so."""
    most = max(value for _, value in panel.points) or 1.0
    points = " ".join(
        f"{_LEFT + _WIDTH * at / longest:.1f},{top + _HEIGHT * (1 - value / most):.1f}" for at, value in panel.points
    )
    yield f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="#f4f4f6"/>'
    yield f'<polyline points="{points}" fill="none" stroke="#3949ab" stroke-width="1.5"/>'
    yield f'<text x="10" y="{top + 16}">{escape(panel.name)}</text>'
    yield f'<text x="{_LEFT - 6}" y="{top + 12}" text-anchor="end">{most:,.4g} {escape(panel.unit)}</text>'
    yield f'<text x="{_LEFT - 6}" y="{top + _HEIGHT}" text-anchor="end">0</text>'
