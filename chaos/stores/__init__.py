"""What differs from store to store: where it lies, what can be done to it there, and how it is read at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from . import postgresql, sqlite
from .base import Ground, Site

__all__ = ["GROUNDS"]

GROUNDS: Final[Mapping[str, Callable[[Site], AbstractContextManager[Ground]]]] = {
    "sqlite": sqlite.ground,
    "postgresql": postgresql.ground,
}
"""Makes a store's ground, and takes it away at the end."""
