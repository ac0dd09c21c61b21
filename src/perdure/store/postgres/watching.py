"""What those who watch tasks ask: which of them have changed, and which an owner has. Reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.domain.model import Owner, Task
from perdure.store import rows

from . import finding, sql
from .access import Access

__all__ = ["changed", "page"]

_NEWEST: Final = 2**63 - 1
"""No task's number is as large."""


async def changed(access: Access, known: Mapping[str, int]) -> dict[str, Task | None]:
    found = await access.connection.fetch(sql.TASK_CHANGED, list(known), list(known.values()))
    return {row[0]: None if row["seq"] is None else finding.with_questions(row[1:]) for row in found}


async def page(access: Access, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
    before = _NEWEST if after is None else after
    found = await access.connection.fetch(sql.TASK_PAGE, owner.tenant, owner.principal, before, limit)
    return tuple(rows.owned(owner, row) for row in found)
