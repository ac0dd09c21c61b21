"""What a wait for a task can come to, other than its result: one small tree under `ClientError`.

Each that is about a task names it, so that a program which catches one can say which; `task_id` is empty where there is
no task yet, as of a question before it. `MCPError` stays for what ordinary requests
answer with; of a task, the server's error is carried inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_types import ErrorData

from perdure.domain.errors import PerdureError

if TYPE_CHECKING:
    from .handle import TaskHandle
    from .journal import Record

__all__ = [
    "AnswerRefused",
    "AnswerTooLarge",
    "ClientError",
    "Disconnected",
    "InputDeclined",
    "JournalUnusable",
    "KeyReused",
    "Malformed",
    "RequestRefused",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFailed",
    "TaskLost",
    "TaskTimedOut",
    "Unavailable",
    "Unsendable",
    "Unsure",
]


class ClientError(PerdureError):
    """The root of what the client library raises on purpose."""


class TaskError(ClientError):
    """A wait for the task `task_id` that came to no result."""

    def __init__(self, task_id: str, message: str) -> None:
        self.task_id = task_id
        super().__init__(message)


class TaskFailed(TaskError):
    """The task ended in `failed`. `error` is the JSON-RPC error that it carries: `code`, `message`, `data`.

    A tool that reports an error of its own does not fail its task: that is a result with `is_error`.
    """

    def __init__(self, task_id: str, error: ErrorData) -> None:
        self.error = error
        super().__init__(task_id, f"The task failed: {error.message} ({error.code})")


class TaskCancelled(TaskError):
    """The task ended in `cancelled`, whoever asked for it."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, "The task was cancelled")


class TaskExpired(TaskError):
    """The server says that the task is past its ttl and that its result is gone. Only the server judges that."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, "The task has expired, and the server no longer has its result")


class TaskLost(TaskError):
    """The server does not know the task: it never did, has forgotten it, or takes this client for somebody else."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            task_id,
            "The server does not know the task, or takes this client for somebody else: is its token the right one?",
        )


class TaskTimedOut(TaskError, TimeoutError):
    """There was no result in time. The task goes on, and `handle` is good for another wait."""

    def __init__(self, handle: TaskHandle, seconds: float) -> None:
        self.handle = handle
        away = "" if handle.trouble is None else f", and the server does not answer just now ({handle.trouble})"
        super().__init__(handle.id, f"The task did not finish within {seconds:g} s; it goes on{away}")


class RequestRefused(TaskError):
    """The server refused a request about the task, in a way that trying again can't help. `error` is its answer."""

    def __init__(self, task_id: str, error: ErrorData) -> None:
        self.error = error
        super().__init__(task_id, f"The server refused: {error.message} ({error.code})")


class Malformed(TaskError):
    """The server said something of the task that the protocol does not allow; the message says what."""


class AnswerTooLarge(TaskError):
    """The server's answer is larger than the transport takes: `HTTP(max_bytes=…)`. The task is as it is."""

    def __init__(self, task_id: str, message: str) -> None:
        super().__init__(task_id, f"{message}: HTTP(max_bytes=…) sets the bound")


class Disconnected(TaskError):
    """The SDK's session with the server has ended. The task goes on: resume it over another session."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, "The session with the server has ended; the task goes on")


class Unavailable(TaskError):
    """The server can't be reached, or has no room just now. The same request may succeed later.

    `trouble`: what it said instead the last time, if it said anything.
    """

    def __init__(self, task_id: str, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        why = str(trouble or "")
        said = f" ({why})" if why else ""
        super().__init__(task_id, f"The server did not answer in time{said}; the task goes on")


class InputDeclined(TaskError):
    """The client's own callback answered the question `key` with an error, which `error` is. Nothing was sent.

    The task waits on: the question may be answered by hand (`TaskHandle.answer`), or asked again by another wait.
    """

    def __init__(self, task_id: str, key: str, error: ErrorData) -> None:
        self.key, self.error = key, error
        super().__init__(task_id, f"The question {key!r} was not answered: {error.message} ({error.code})")


class AnswerRefused(TaskError):
    """The server took none of the answers to `keys`, since one does not fit its question; `error` says why.

    They are forgotten, so that the questions can be answered again.
    """

    def __init__(self, task_id: str, keys: tuple[str, ...], error: ErrorData) -> None:
        self.keys, self.error = keys, error
        super().__init__(task_id, f"The answer to {', '.join(map(repr, keys))} was refused: {error.message}")


class Unsure(ClientError):
    """A call may or may not have happened: it was sent, or was about to be, and nobody heard an answer that says which.

    It is not made again by itself, unless the server honours idempotency keys. `record` is the call: its `tool`, its
    `arguments`, and its `key`; `Journal.forget(record)` ends it.
    """

    def __init__(self, record: Record, why: str = "") -> None:
        self.record = record
        told = f"The call of {record.tool!r} may or may not have happened, and must not be made twice"
        super().__init__(f"{told}: {why}" if why else told)


class KeyReused(ClientError):
    """The idempotency key is on record for another call: of another tool, or with other arguments. `record` is that.

    Nothing was called.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        super().__init__(f"The key {record.key!r} is that of another call, of {record.tool!r}: draw another one")


class Unsendable(ClientError, ValueError):
    """An answer or an argument is nothing that can be sent; the message says why. It is not on record, and not sent."""


class JournalUnusable(ClientError):
    """The journal's file can't be used; the message says why."""
