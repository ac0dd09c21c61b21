"""What those who watch tasks ask: which of them have changed. It reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain.model import Task
from perdure.store import rows

from . import sql
from .access import Access

__all__ = ["changed"]


async def changed(access: Access, known: Mapping[str, int]) -> dict[str, Task | None]:
    found = await access.connection.fetch(sql.TASK_CHANGED, list(known), list(known.values()))
    return {row[0]: None if row["seq"] is None else rows.task(row[1:], access.codec) for row in found}
