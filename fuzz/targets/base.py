"""What a target is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hypothesis.strategies import SearchStrategy

__all__ = ["Needs", "Target"]


class Needs(StrEnum):
    """What a case is tried on: a server whose store changes only by requests, one that runs its tasks, or a file."""

    QUIET = "quiet"
    WORKING = "working"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Target:
    """`check` tries a case on what the target needs (a `Scene`, or for files a `Cellar`), and raises `Found`.

    `count`: cases in a round. `fresh`: no other target may have been there before in that round.
    """

    name: str
    needs: Needs
    cases: SearchStrategy[Any]
    check: Callable[[Any, Any], None]
    count: int = 200
    fresh: bool = False
