"""What those who watch tasks ask: which of them have changed. It reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain.model import Task

from . import finding, sql
from .access import Access

__all__ = ["changed"]


async def changed(access: Access, known: Mapping[str, int]) -> dict[str, Task | None]:
    found = await access.connection.fetch(sql.TASK_CHANGED, list(known), list(known.values()))
    return {row[0]: None if row["seq"] is None else finding.with_questions(row[1:]) for row in found}
