"""What a handle or a snapshot of a backend's says of its task, as far as it can be believed. Pure.

It comes from other people's programs, and any member of it may be anything that JSON has, lists and objects included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.domain.model import Status

__all__ = ["status_of", "task_of"]

_STATUSES: Final = {status.value: status for status in Status}


def task_of(value: Mapping[str, Any]) -> str | None:
    """The task that a handle, a snapshot or parameters are of."""
    found = value.get("taskId")
    return found if isinstance(found, str) else None


def status_of(value: Mapping[str, Any]) -> Status | None:
    """How the task stands; None: what is said there is no status."""
    found = value.get("status")
    return _STATUSES.get(found) if isinstance(found, str) else None
