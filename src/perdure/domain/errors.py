"""Everything that can go wrong, as one small tree.

Messages carry no secret. What goes wrong in a request may be passed on to its client, so those messages carry no path
and no internals either. `StoreUnusable` and `ConfigurationError` are for whoever starts the server, and name files and
tools. Which JSON-RPC code an error becomes, and whose message stays here, is decided in `wire/errors.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import verdicts

if TYPE_CHECKING:
    from .model import Owner

__all__ = [
    "AlreadySettled",
    "BacklogFull",
    "ConfigurationError",
    "IdempotencyKeyReused",
    "IllegalTransition",
    "InputKeyReused",
    "InvalidDuration",
    "JournalMismatch",
    "LeaseLost",
    "LimitExceeded",
    "MalformedTaskId",
    "NotStorable",
    "PerdureError",
    "PolledTooOften",
    "Refused",
    "RouteTaken",
    "StepFailed",
    "StepInterrupted",
    "StoreUnavailable",
    "StoreUnusable",
    "SubscriptionsFull",
    "TaskExpired",
    "TaskNotFound",
    "Unreadable",
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
        super().__init__(verdicts.KEY_REUSED.format(key=key))


class JournalMismatch(PerdureError):
    """The code of a tool is not the code that began the task: it does other things, or the same in another order.

    Going on would give it results that belong to something else. The message names both sides, since the bug (or the
    deploy that went too far) is the tool author's.
    """

    def __init__(self, place: str, recorded: str, found: str) -> None:
        self.place = place
        super().__init__(verdicts.MISMATCH.format(place=place, recorded=recorded, found=found))


class StepFailed(PerdureError):
    """A step came to an error, now or in an earlier run; nothing that happened to it is tried again.

    `name` is the step's, `type` the name of the exception's class, `detail` what was recorded of it for clients. In the
    run that it happened in, `__cause__` is the exception itself; after a replay there is none, so look at `type`.
    `places` are the failed steps' places in the journal (several, if they ran side by side).
    """

    def __init__(
        self, name: str, type: str, message: str, *, places: tuple[str, ...] = (), detail: object = None
    ) -> None:
        self.name, self.type, self.message, self.places, self.detail = name, type, message, places, detail
        super().__init__(
            f"The step {name!r} failed: {type}: {message}" if message else f"The step {name!r} failed: {type}"
        )


class StepInterrupted(PerdureError):
    """A step that must run at most once was begun in an earlier run, and nobody knows how far it got.

    Find out by other means (ask the system that it talked to), and go on from there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The step {name!r} may run at most once, and was begun before: whether it has taken effect is not known"
        )


class LimitExceeded(PerdureError):
    """Something is larger, longer or more than `Limits` allows; the message names it and the bound."""


class Refused(PerdureError):
    """There is too much of something just now. The message names the bound and its value, which an operator can set.

    `retry_after_ms` is a hint for the caller, in milliseconds. `owner`: who was refused, for the operator's log; it is
    no part of the message.
    """

    def __init__(self, message: str, *, retry_after_ms: int = 5000, owner: Owner | None = None) -> None:
        self.retry_after_ms = retry_after_ms
        self.owner = owner
        super().__init__(message)


class BacklogFull(Refused):
    """So many tasks wait to be run already, or one owner has so many, that another is refused before it is stored."""


class SubscriptionsFull(Refused):
    """So many subscriptions are open already, in all or of this owner, or of so many tasks, that another is refused."""


class PolledTooOften(Refused):
    """One owner asks for one task, or for all that it asks for together, far more often than it was told to."""


class IdempotencyKeyReused(PerdureError):
    """The owner has called with this idempotency key before, and asked for something else then."""

    def __init__(self) -> None:
        super().__init__("The idempotency key was used before, for another call")


class AlreadySettled(PerdureError):
    """External work has come to its end before, in another way; or its task has."""

    def __init__(self) -> None:
        super().__init__("The work was settled before, or its task is over")


class RouteTaken(PerdureError):
    """A backend handed out a task that is another owner's already: it lies, or two callers are one to it.

    Never passed on to the owner who hears of it: that there is another one is not for strangers.
    """

    def __init__(self) -> None:
        super().__init__("The backend named a task that it can not have made for this call")


class NotStorable(PerdureError):
    """A value has no JSON form that can be stored (NaN, a lone surrogate, nesting too deep, an unknown type)."""


class Unreadable(PerdureError):
    """A stored value can't be read here; the message names the key that it was sealed under, if any, and no content.

    Either this process lacks the key `key_id`, and then others may have it, or what is stored is not what a store has
    written: it was damaged, or changed or moved in the database, or another key goes by that name. It is never served.
    """

    def __init__(self, key_id: str | None, why: str) -> None:
        self.key_id = key_id
        self.why = why
        under = "" if key_id is None else f" that was sealed under the key {key_id!r}"
        super().__init__(f"A stored value{under} {why}")

    def of(self, value: str) -> str:
        """The same in a line about the value that is named so."""
        under = "" if self.key_id is None else f", sealed under the key {self.key_id!r},"
        return f"{value}{under} {self.why}"


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
