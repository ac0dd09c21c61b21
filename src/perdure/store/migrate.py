"""Numbered SQL files and what a database's version number makes of them. Reads no database: backends do.

A migration is a file `NNNN_name.sql` in a backend's `migrations` folder; the numbers run from 1 without a gap, and a
file that was released never changes. A database says which number it is at, and from there it is brought forward one
file at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from perdure.domain.errors import StoreUnusable

__all__ = ["Migration", "load", "pending"]

_NAME = re.compile(r"(\d{4})_(\w+)\.sql", re.ASCII)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step forward. `statements` run in order, in one transaction."""

    number: int
    name: str
    statements: tuple[str, ...]


def load(package: str) -> tuple[Migration, ...]:
    """The migrations that lie in `package`'s folder `migrations`, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = {match[1]: (match[2], file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))}
    return tuple(
        Migration(int(number), name, _statements(file.read_text("utf-8")))
        for number, (name, file) in sorted(files.items())
    )


def _statements(script: str) -> tuple[str, ...]:
    """The script's statements. A statement ends with a semicolon at the end of a line."""
    return tuple(text.strip() for text in re.split(r"(?<=;)\s*\n", script) if text.strip())


def pending(migrations: tuple[Migration, ...], version: int, *, where: str) -> tuple[Migration, ...]:
    """What a database at `version` still lacks.

    Raises:
        StoreUnusable: it is newer than this release of Perdure knows.
    """
    if version > len(migrations):
        raise StoreUnusable(
            f"{where} has schema version {version}, and this Perdure knows versions up to {len(migrations)}: "
            "upgrade Perdure, or point it at another store"
        )
    return migrations[version:]
