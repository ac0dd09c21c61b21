"""What those who watch tasks ask: which of them have changed. It reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.domain.model import Owner, Task
from perdure.store import rows

from . import sql
from .access import Access

__all__ = ["changed"]


async def changed(access: Access, known: Mapping[str, int], owner: Owner | None) -> dict[str, Task | None]:
    by = (None, None) if owner is None else (owner.tenant, owner.principal)
    found = await access.connection.fetch(sql.TASK_CHANGED, list(known), list(known.values()), *by)

    def read(row: Any) -> tuple[str, Task | None]:
        return row[0], None if row["seq"] is None else rows.task(row[1:], access.codec)

    return dict(rows.readable(found, read))
