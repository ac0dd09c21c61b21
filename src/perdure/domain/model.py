"""What the rest of the house talks about, as frozen values.

An `Operation` is described by method, name and parameters: nothing here knows `tools/call`, so a request type that a
later revision of the extension makes task-capable needs no new model. Times are milliseconds since the epoch
(`policy`). JSON values are plain Python ones; whoever stores them copies them by encoding, so nobody shares a mutable
value with a caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "JSON",
    "Asked",
    "Cancelled",
    "Change",
    "Claim",
    "Completed",
    "Demand",
    "Failed",
    "Failure",
    "InputRequest",
    "InputState",
    "JSONObject",
    "NewTask",
    "Operation",
    "Outcome",
    "Owner",
    "Renewal",
    "Session",
    "Status",
    "Task",
]

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
JSONObject = dict[str, JSON]


class Status(StrEnum):
    """The five statuses of the extension; the values are what clients read."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing can change any more."""
        return self in _TERMINAL


_TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose task it is. Both parts decide: the same principal in two tenants is two owners."""

    tenant: str
    principal: str


@dataclass(frozen=True, slots=True)
class Operation:
    """The request that became a task: enough to run it again on another machine.

    It never changes, and whoever runs the task needs it, but nobody who asks how the task stands. So a `Claim` has it,
    and a `Task` does not.

    `version` says which code began it, if its author tells versions apart: only that may finish it. `accepts` names the
    input kinds that the request declared; no other kind is ever asked (contract 4).
    """

    method: str
    name: str
    params: JSONObject
    version: str = ""
    accepts: frozenset[str] = frozenset()

    @property
    def handler(self) -> str:
        """The name under which workers claim it; a worker claims only what it has a handler for."""
        return f"{self.method}:{self.name}@{self.version}" if self.version else f"{self.method}:{self.name}"


class InputState(StrEnum):
    """How far one question is. SUPERSEDED: nobody waits for the answer any more; the key stays taken."""

    OUTSTANDING = "outstanding"
    ANSWERED = "answered"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One question of a task, under a key that is unique for the task's whole life (contract 4).

    `place` is where the code asked it (`journal`); `deadline` when it goes on without an answer. `awaited`: whether the
    run waits for it, or did the last time that it was put aside; one that it has left behind holds up nothing.
    """

    key: str
    request: JSONObject
    issued_at: int
    state: InputState = InputState.OUTSTANDING
    response: JSON = None
    place: str | None = None
    deadline: int | None = None
    awaited: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A question on its way to the store: what is asked, where in the code, and how long it may stay open."""

    request: JSONObject
    place: str | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A JSON-RPC error, as a failed task carries it."""

    code: int
    message: str
    data: JSON = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a task is at the moment of its creation; the store adds its number, its times and its run.

    `keep_ms`: how long at least a result stays readable after the finish. `max_attempts`: the worker deaths after which
    it fails. `timeout_ms` bounds each run. `key`: the owner's idempotency key, and `digest` what a later call under it
    must be equal in.
    """

    id: str
    owner: Owner
    operation: Operation
    ttl_ms: int | None = None
    keep_ms: int | None = None
    poll_ms: int | None = None
    max_attempts: int = 10
    timeout_ms: int | None = None
    key: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """How a task stands, as its owner may see it, plus what stores need. A snapshot: a newer one replaces it.

    `seq` is the store's own number and never leaves the server. `version` grows by one with every change. `inputs`
    holds the questions that it waits for, in the order of asking, and is empty unless the status is INPUT_REQUIRED.
    """

    seq: int
    id: str
    owner: Owner
    status: Status
    created_at: int
    updated_at: int
    version: int = 1
    message: str | None = None
    ttl_ms: int | None = None
    keep_ms: int | None = None
    poll_ms: int | None = None
    cancel_requested: bool = False
    result: JSONObject | None = None
    error: Failure | None = None
    inputs: tuple[InputRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """The operation returned a result, be it a good one or one that says `isError` (contract 3)."""

    result: JSONObject


@dataclass(frozen=True, slots=True)
class Failed:
    """The operation ended in a JSON-RPC error; `message` becomes the task's status message."""

    error: Failure
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The operation stopped because it was asked to."""


Outcome = Completed | Failed | Cancelled


@dataclass(frozen=True, slots=True)
class Session:
    """One worker process, and THE lease: every run that it has claimed is held as long as this lives.

    `info` says where the process lives (`engine/lease.py` writes and reads it), so that a neighbour can tell at once
    that it died, what it can run, and under which key it seals (`engine/sealers.py`).
    """

    id: str
    expires_at: int
    info: JSONObject = field(default_factory=dict[str, JSON])


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one task, as long as `fence` and `session` are those that the run carries; and what to run.

    Fences come from one counter and only grow: a claim made later always has the larger one. Where a database was set
    back (a backup restored, a standby promoted that had not everything) the counter was too; then the sessions, whose
    ids are drawn at random, still tell two claims of the same fence apart. `at` is the store's time of the claim, by
    which the run judges what has come due. `failures` counts the attempts that ended in an error and `deaths` the
    workers that died holding the run; a parked task that comes back counts as neither. `deadline_at`: when this run has
    to be over.
    """

    task: Task
    operation: Operation
    fence: int
    at: int
    failures: int = 0
    deaths: int = 0
    deadline_at: int | None = None
    session: str = ""

    @property
    def seq(self) -> int:
        return self.task.seq

    @property
    def attempt(self) -> int:
        """Which attempt it is, from 1."""
        return 1 + self.failures + self.deaths


@dataclass(frozen=True, slots=True)
class Demand:
    """What a worker would claim of one handler: `limit` runs at most, of the tenants in turn that come after `after`.

    `after` is the tenant that was served last, or None at first.
    """

    handler: str
    limit: int
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a worker hears when it renews its lease.

    `cancelled`: which of its runs (by task number) somebody asked to cancel. `held`: all runs that the session holds,
    each as its task's number and the fence.
    """

    cancelled: frozenset[int] = frozenset()
    held: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A hint that a task changed. Hints may be lost or repeated; the row's `version` is the truth.

    `runnable`: a worker may claim something now. `cancel`: somebody wants the run to stop.
    """

    task_id: str
    seq: int
    status: Status
    runnable: bool = False
    cancel: bool = False
