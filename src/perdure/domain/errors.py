"""Everything that can go wrong, as one small tree.

Messages carry no secret. What goes wrong in a request may be passed on to its client, so those messages carry no path
and no internals either. `StoreUnusable` and `ConfigurationError` are for whoever starts the server, and name files and
tools. Which JSON-RPC code an error becomes, and whose message stays here, is decided in `wire/errors.py`.
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "IllegalTransition",
    "InputKeyReused",
    "InvalidDuration",
    "LeaseLost",
    "MalformedTaskId",
    "NotStorable",
    "PerdureError",
    "StoreUnavailable",
    "StoreUnusable",
    "TaskExpired",
    "TaskNotFound",
]


class PerdureError(Exception):
    """The root of every error that Perdure raises on purpose."""


class TaskNotFound(PerdureError):
    """The id names nothing that this owner may see.

    Unknown, foreign and purged are one answer, so that it tells nobody which ids exist (contract 6).
    """

    def __init__(self) -> None:
        super().__init__("Task not found")


class TaskExpired(PerdureError):
    """The task outlived its ttl and was purged. Only its owner hears this, while the tombstone lives (contract 6)."""

    def __init__(self) -> None:
        super().__init__("Task has expired")


class MalformedTaskId(PerdureError):
    """The text is no task id at all. Said to anyone: the grammar is public, so it reveals nothing."""

    def __init__(self) -> None:
        super().__init__("Malformed task id")


class IllegalTransition(PerdureError):
    """The state machine has no such arrow; a terminal status has none at all."""


class LeaseLost(PerdureError):
    """The write carried a fence that no longer holds: another worker may have the run, or the task is over.

    The holder must stop and discard what it has; trying again can never help.
    """


class InputKeyReused(PerdureError):
    """A tool asked a different question under a key that its task has used before.

    Keys are unique for the life of a task (contract 4); the message names the key, since the bug is the tool's.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The input key {key!r} was already used by this task for a different question. "
            "Ask under another key, and keep a question's text free of what changes between runs."
        )


class NotStorable(PerdureError):
    """A value has no JSON form that can be stored (NaN, a lone surrogate, nesting too deep, an unknown type)."""


class InvalidDuration(PerdureError, ValueError):
    """A duration that can't be read, or that is zero or negative where only a positive one has a meaning."""


class ConfigurationError(PerdureError):
    """Perdure was put together in a way that can't work; the message says what to change."""


class StoreUnusable(PerdureError):
    """The store can't be opened as it stands. One line that says why and what to do; raised at start-up only."""


class StoreUnavailable(PerdureError):
    """The store did not take a write or answer a read just now; the same call may succeed later.

    `retry_after_ms` is a hint for the caller, in milliseconds.
    """

    def __init__(self, message: str = "The task store is unavailable", *, retry_after_ms: int = 1000) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message)
