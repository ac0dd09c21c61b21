"""Numbered SQL files and what a database's version number makes of them. Reads no database: backends do.

A migration is a file `NNNN_name.sql` in a backend's `migrations` folder; the numbers run from 1 without a gap, and a
file that was released never changes. A database says which number it is at, and from there it is brought forward one
file at a time.

Where several machines share a database they are not all upgraded at once, so its migrations have phases, which their
names say. What is *pre* (`NNNN_pre_name.sql`) only adds: the release before runs on with it, so it is applied while
that one still runs, and before any of the new. What is *post* takes away what only older releases need, so it waits
until none of them runs. A later *pre* may build on it: whoever applies that has left those releases behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Protocol

from perdure.domain.errors import StoreUnusable

__all__ = ["Migration", "Phase", "Upgrade", "due", "load", "pending"]

_NAME = re.compile(r"(\d{4})_(?:(pre|post)_)?(\w+)\.sql", re.ASCII)


class Phase(StrEnum):
    """When a migration is applied: before replicas are replaced by those of the next release, or after."""

    PRE = "pre"
    POST = "post"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step forward. `statements` run in order, in one transaction."""

    number: int
    name: str
    statements: tuple[str, ...]
    phase: Phase = Phase.PRE

    def __str__(self) -> str:
        return f"{self.number:04} {self.name} ({self.phase})"


class Upgrade(Protocol):
    """What an operator may ask of one database's schema."""

    shown: str
    """The database, without anything secret."""

    async def pending(self) -> tuple[Migration, ...]:
        """What it still lacks, of either phase. Changes nothing.

        Raises:
            StoreUnusable: it can't be told, or no migration would help.
        """
        ...

    async def apply(self, *, post: bool) -> tuple[Migration, ...]:
        """Apply what is `due`, all of it or nothing, and return that.

        Raises:
            StoreUnusable: it can't be done.
        """
        ...

    async def script(self, *, post: bool) -> str:
        """What `apply` would run now, for the database's own shell; empty if that is nothing. Changes nothing.

        Raises:
            StoreUnusable: as `pending`.
        """
        ...


def load(package: str) -> tuple[Migration, ...]:
    """The migrations that lie in `package`'s folder `migrations`, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = {match[1]: (match, file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))}
    return tuple(
        Migration(int(number), match[3], _statements(file.read_text("utf-8")), Phase(match[2] or Phase.PRE))
        for number, (match, file) in sorted(files.items())
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


def due(lacking: tuple[Migration, ...], *, post: bool) -> tuple[Migration, ...]:
    """Which of those that a database lacks are to be applied: all with `post`, else none past the last *pre*."""
    last = max((at for at, migration in enumerate(lacking, 1) if migration.phase is Phase.PRE), default=0)
    return lacking if post else lacking[:last]
