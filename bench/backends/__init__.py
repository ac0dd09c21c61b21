"""The databases that `bench.store` measures, by the name that `--store` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from .base import Backend, Targets
from .postgresql import PostgreSQL
from .sqlite import SQLite

__all__ = ["BACKENDS", "Backend", "PostgreSQL", "SQLite", "Targets"]

BACKENDS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Backend]]]] = MappingProxyType(
    {"sqlite": SQLite, "postgresql": PostgreSQL}
)
"""Each is given an empty folder, and is there until the end of its block."""
