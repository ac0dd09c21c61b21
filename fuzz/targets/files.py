"""The SQLite file itself, damaged: it is refused in one line, or every verb says what was stored or that it can't."""

from __future__ import annotations

from typing import Final

from fuzz.cellar import Cellar
from fuzz.damage import Damage, damages

from .base import Needs, Target

__all__ = ["TARGET"]


def check(cellar: Cellar, damage: Damage) -> None:
    """Do it to a copy."""
    cellar.check(damage)


TARGET: Final = Target("files", Needs.FILE, damages(), check)
