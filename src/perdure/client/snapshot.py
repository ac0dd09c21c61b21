"""What a server says of a task at one moment, parsed once where it comes in.

Servers are other people's, so this is strict about what everything hangs on (the id, a status) and lenient about the
rest: an instant that can't be read is no instant, a status of a later revision is one that is not terminal, and what
has no field here is in `raw`.

Instants are the server's and are compared with each other only, never with a clock of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

__all__ = ["TERMINAL", "NotATask", "Snapshot"]

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses after which nothing follows, by the extension's specification."""

_ABOUT_THE_RESPONSE: Final = frozenset({"resultType", "_meta"})


class NotATask(ValueError):
    """It is nothing that describes a task; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task as the server described it.

    Attributes:
        id: the task's id.
        status: `working`, `input_required`, `completed`, `failed`, `cancelled`, or one of a later revision.
        message: the status message, for people.
        created_at, updated_at: by the server's clock; None if it said none that can be read.
        ttl_ms: milliseconds that the task lives for, from its creation; None is without end, or not said.
        poll_ms: milliseconds to leave between two polls; None if the server named none.
        questions: the outstanding input requests by their keys, as on the wire.
        result: the tool's result of a completed task, as on the wire.
        error: the JSON-RPC error of a failed one, as on the wire.
        raw: everything that was said, fields that this version does not know included.
    """

    id: str
    status: str
    message: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ttl_ms: int | None = None
    poll_ms: int | None = None
    questions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def is_terminal(self) -> bool:
        """Whether the task is over; nothing follows then."""
        return self.status in TERMINAL

    @property
    def is_whole(self) -> bool:
        """Whether what the status promises is there. The answer to a call never has it, whatever its status is."""
        return {"completed": self.result, "failed": self.error}.get(self.status, {}) is not None

    def follows(self, older: Snapshot) -> bool:
        """Whether this is news to who knows `older` of the same task.

        The instant decides, then how far a status is; of one instant and status, whatever differs is news. So what
        arrives late or twice takes nobody back.
        """
        if older.is_terminal or _said(self) == _said(older):
            return False
        if self.updated_at is None or older.updated_at is None or self.is_terminal:
            return True
        return (self.updated_at, _rank(self)) >= (older.updated_at, _rank(older))

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Snapshot:
        """Read what a server said.

        Raises:
            NotATask: without an id or a status, or with a part that is not what its status promises.
        """
        task_id, status = raw.get("taskId"), raw.get("status")
        if not isinstance(task_id, str) or not task_id or not isinstance(status, str):
            raise NotATask("it has no taskId or no status")
        return cls(
            id=task_id,
            status=status,
            message=_text(raw.get("statusMessage")),
            created_at=_instant(raw.get("createdAt")),
            updated_at=_instant(raw.get("lastUpdatedAt")),
            ttl_ms=_positive(raw.get("ttlMs")),
            poll_ms=_positive(raw.get("pollIntervalMs")),
            questions=_object(raw, "inputRequests") or {},
            result=_object(raw, "result"),
            error=_object(raw, "error"),
            raw=raw,
        )


def _said(snapshot: Snapshot) -> dict[str, Any]:
    return {name: value for name, value in snapshot.raw.items() if name not in _ABOUT_THE_RESPONSE}


def _rank(snapshot: Snapshot) -> int:
    return 2 if snapshot.is_terminal else int(snapshot.status == "input_required")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _positive(value: object) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 < value < 1e15 else None


def _object(raw: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise NotATask(f"its {name} is no object")
    return cast("dict[str, Any]", value)


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
