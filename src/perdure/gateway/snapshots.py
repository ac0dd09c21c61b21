"""What a handle or a snapshot of a backend's says of its task, as far as it can be believed. Pure.

It comes from other people's programs, and any member of it may be anything that JSON has, lists and objects included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.domain.model import Status

__all__ = ["interval_of", "status_of", "task_of"]

_OFTENEST: Final = 100
_SELDOM: Final = 60_000
"""Milliseconds between two polls at least and at most, whatever a backend says."""
_STATUSES: Final = {status.value: status for status in Status}


def task_of(value: Mapping[str, Any]) -> str | None:
    """The task that a handle, a snapshot or parameters are of."""
    found = value.get("taskId")
    return found if isinstance(found, str) else None


def status_of(value: Mapping[str, Any]) -> Status | None:
    """How the task stands; None: what is said there is no status."""
    found = value.get("status")
    return _STATUSES.get(found) if isinstance(found, str) else None


def interval_of(value: Mapping[str, Any]) -> float | None:
    """How often the backend wants to be asked, in seconds within bounds; None: it does not say."""
    found = value.get("pollIntervalMs")
    if not isinstance(found, int) or isinstance(found, bool):
        return None
    return min(max(found, _OFTENEST), _SELDOM) / 1000  # bounded before: a whole number may be too large for a float
