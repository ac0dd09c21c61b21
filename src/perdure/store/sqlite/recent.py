"""What polls have read, for as long as nobody commits to the file.

Most polls find what the one before them found. SQLite says of each connection whether any other has committed (`PRAGMA
data_version`), be it our own writer or another process, and says so sooner than it finds a row. A poll that follows on
no commit has the row that was read before it; the first one after a commit makes all of them forgotten. So this never
answers with anything but what a read would have found, and where commits come without a pause it costs that one look.

The version is read before the row: what is committed between the two is then kept under the version before it, and goes
with that at the next poll. Rows are kept and no tasks, since a reader may do as it likes with a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.domain.model import Owner, Task
from perdure.store import rows

from . import shared
from .writer import Transaction

__all__ = ["Recent"]

_MOST: Final = 1000
"""Rows that are kept. When there are as many, others are read each time, until the next commit."""
_LONGEST: Final = 4000
"""Characters that one may have."""


class Recent:
    """What one reader has read lately. Not for use inside a transaction, where the version stands still."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._rows: dict[tuple[str, str, str], Sequence[Any]] = {}

    def find(self, reader: Transaction, owner: Owner, task_id: str) -> Task | None:
        """As `shared.find`."""
        (version,) = reader.one("PRAGMA data_version") or (None,)
        if version != self._version:
            self._version = version
            self._rows.clear()
        key = (task_id, owner.tenant, owner.principal)
        row = self._rows.get(key)
        if row is None:
            row = shared.row(reader, owner, task_id)
            if row is None:
                return None
            if len(self._rows) < _MOST and _length(row) <= _LONGEST:
                self._rows[key] = row
        return rows.owned(owner, row, reader.codec)


def _length(row: Sequence[Any]) -> int:
    return sum(len(value) for value in row if isinstance(value, str))
