"""THE state machine. Everything that decides a task's status is in this file.

The theory. A task is created `working`. It leaves that status for `input_required` when its code has asked something
and can't go on, comes back when every question that it waits for is answered or there is another reason to go on (a
time has come, work elsewhere is over, it is to hear of its cancellation), and ends in one of three terminal statuses.
Terminal means terminal: no event has an arrow out of there, so whichever terminal write commits first wins and all
later ones learn that they lost. A request to cancel is not a status: it is an intent that is stored beside it
(`cancel_requested`), and what the work then does decides where the task ends (the specification calls this
cooperative).

The machine is the table `TRANSITIONS`; `apply` is its only interpreter. The property tests are made from the table,
and so are the drawing and the arrows of `docs/state_machine.md`. Stores call `apply` inside their transactions; none of
them knows a status transition of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, assert_never

from . import policy, verdicts
from .errors import IllegalTransition
from .model import Cancelled, Completed, Failed, Failure, InputRequest, NewTask, Outcome, Status, Task

__all__ = [
    "INTERNAL_ERROR",
    "TRANSITIONS",
    "Ask",
    "Event",
    "Expire",
    "Finish",
    "Kind",
    "Partial",
    "Report",
    "RequestCancel",
    "Resume",
    "apply",
    "created",
    "exhausted",
    "on_answers",
    "on_cancel",
    "on_claim",
    "on_death",
    "on_free",
    "on_park",
    "on_tell",
]

INTERNAL_ERROR: Final = -32603
"""JSON-RPC's code for an internal error; what expiry and exhausted attempts synthesize (contract 3)."""


class Kind(StrEnum):
    """The names of the events, as the table and the documentation use them."""

    REPORT = "report"
    ASK = "ask"
    PARTIAL = "partial"
    RESUME = "resume"
    REQUEST_CANCEL = "request_cancel"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


_W, _I = Status.WORKING, Status.INPUT_REQUIRED
_COMPLETED, _FAILED, _CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED

TRANSITIONS: Final[Mapping[tuple[Status, Kind], Status]] = MappingProxyType(
    {
        (_W, Kind.REPORT): _W,
        (_W, Kind.ASK): _I,
        (_W, Kind.REQUEST_CANCEL): _W,
        (_W, Kind.COMPLETE): _COMPLETED,
        (_W, Kind.FAIL): _FAILED,
        (_W, Kind.CANCEL): _CANCELLED,
        (_W, Kind.EXPIRE): _FAILED,
        (_I, Kind.PARTIAL): _I,
        (_I, Kind.RESUME): _W,
        (_I, Kind.REQUEST_CANCEL): _W,
        (_I, Kind.CANCEL): _CANCELLED,
        (_I, Kind.EXPIRE): _FAILED,
    }
)
"""(status, event) -> status. A pair that is missing is illegal.

Nobody runs while a task is `input_required` (it is parked), so progress and results can't come from there, and a
request to cancel it is carried out at once: CANCEL. Only a task whose code has something to do about it (it waits for
work elsewhere, which is to be stopped as well) is woken instead: REQUEST_CANCEL."""


@dataclass(frozen=True, slots=True)
class Report:
    """The work says how far it is. The message may be shown to people."""

    kind: ClassVar[Kind] = Kind.REPORT

    message: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The work can't go on without answers. `outstanding` are all questions that it waits for, never none."""

    kind: ClassVar[Kind] = Kind.ASK

    outstanding: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Partial:
    """Some answers came, and `outstanding` are still missing."""

    kind: ClassVar[Kind] = Kind.PARTIAL

    outstanding: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """The work goes on: the last question that it waits for was answered, or a time that it waits for has come."""

    kind: ClassVar[Kind] = Kind.RESUME


@dataclass(frozen=True, slots=True)
class RequestCancel:
    """Somebody asked a task to stop, and its code is to hear of it."""

    kind: ClassVar[Kind] = Kind.REQUEST_CANCEL


@dataclass(frozen=True, slots=True)
class Finish:
    """The work ended, one way or another."""

    outcome: Outcome

    @property
    def kind(self) -> Kind:
        return _ENDS[type(self.outcome)]


@dataclass(frozen=True, slots=True)
class Expire:
    """The ttl ran out before the work ended (contract 9)."""

    kind: ClassVar[Kind] = Kind.EXPIRE


_ENDS: Final = MappingProxyType({Completed: Kind.COMPLETE, Failed: Kind.FAIL, Cancelled: Kind.CANCEL})

Event = Report | Ask | Partial | Resume | RequestCancel | Finish | Expire

_EXPIRED = Failed(
    Failure(INTERNAL_ERROR, verdicts.EXPIRED),
    "Expired: the ttl ran out before the task finished",
)


def created(seq: int, new: NewTask, now: int) -> Task:
    """The task that `new` becomes; its first status is always `working`."""
    return Task(
        seq=seq,
        id=new.id,
        owner=new.owner,
        status=Status.WORKING,
        created_at=now,
        updated_at=now,
        ttl_ms=new.ttl_ms,
        keep_ms=new.keep_ms,
        poll_ms=new.poll_ms,
    )


def exhausted(deaths: int) -> Failed:
    """How a task ends whose workers died `deaths` times.

    Nobody can say why they did, only that going on would kill the next one too.
    """
    text = verdicts.DIED.format(deaths=deaths)
    return Failed(Failure(INTERNAL_ERROR, text), text)


# Which event a store's verb comes to. Stores ask here and write what they are told, so that two backends can't decide
# differently; None means that the status stays as it is.


def on_answers(task: Task, outstanding: tuple[InputRequest, ...]) -> Partial | Resume | None:
    """Answers were accepted, and `outstanding` are still missing of those that the run waits for.

    None: the work goes on already, since something else woke it, and will find them.
    """
    if task.status is not Status.INPUT_REQUIRED:
        return None
    return Partial(outstanding) if outstanding else Resume()


def on_claim(task: Task) -> Resume | None:
    """A worker takes the run. None: the task is `working` as it is."""
    return Resume() if task.status is Status.INPUT_REQUIRED else None


def on_cancel(task: Task, *, held: bool, minded: bool) -> RequestCancel | Finish | None:
    """Somebody asks the task to stop.

    `held`: a worker is running it, and its code decides. `minded`: its code wants to hear of it.
    """
    if task.status.terminal or task.cancel_requested:
        return None
    return RequestCancel() if held or minded else Finish(Cancelled())


def on_park(
    task: Task, outstanding: tuple[InputRequest, ...], *, ready: bool, minded: bool = False
) -> Ask | Finish | None:
    """The run can't go on for now. `ready`: something that it waits for has come meanwhile.

    `minded`: its code wants to hear of a cancellation, and one that has come is such a thing (`waiting.due_at`). None:
    it waits for nobody's answer, so the status stays.
    """
    if task.cancel_requested and not minded:
        return Finish(Cancelled())
    return Ask(outstanding) if outstanding and not ready else None


def on_tell(task: Task, message: str) -> Report | None:
    """Work elsewhere says how far it is. None: the task asks something just now, and its client is to see that."""
    return Report(message) if task.status is Status.WORKING else None


def on_free(task: Task, *, minded: bool = False) -> Finish | None:
    """The run came back unfinished. None: somebody else may run it.

    `minded`: its code wants to hear of a cancellation, so one that has come is a reason to run it.
    """
    return Finish(Cancelled()) if task.cancel_requested and not minded else None


def on_death(task: Task, deaths: int, max_attempts: int, *, minded: bool = False) -> Finish | None:
    """The worker that held the run is dead, and was number `deaths`. None: it may be tried again.

    `minded`: as `on_free`, as long as it may be tried at all.
    """
    if deaths < max_attempts:
        return on_free(task, minded=minded)
    return Finish(Cancelled()) if task.cancel_requested else Finish(exhausted(deaths))


def apply(task: Task, event: Event, now: int) -> Task:
    """The task after `event` at `now`.

    `version` grows by one. `updated_at` never runs backwards, whatever the clock does.

    Raises:
        IllegalTransition: the table has no such arrow.
    """
    target = TRANSITIONS.get((task.status, event.kind))
    if target is None:
        raise IllegalTransition(f"A task that is {task.status} has no transition for {event.kind}")
    moved = replace(task, status=target, version=task.version + 1, updated_at=max(now, task.updated_at))
    return _carry(moved, event)


def _carry(moved: Task, event: Event) -> Task:
    """What the event brings along besides the status."""
    match event:
        case Report(message):
            return replace(moved, message=message)
        case Ask(outstanding) | Partial(outstanding):
            return replace(moved, inputs=outstanding)
        case Resume():
            return replace(moved, inputs=())
        case RequestCancel():
            return replace(moved, cancel_requested=True, inputs=())
        case Expire():
            return _finished(moved, _EXPIRED)
        case Finish(outcome):
            return _finished(moved, outcome)
        case _ as never:
            assert_never(never)


def _finished(moved: Task, outcome: Outcome) -> Task:
    ttl_ms = policy.extended_ttl(moved.ttl_ms, moved.keep_ms, created_at=moved.created_at, finished_at=moved.updated_at)
    # A message tells of the present state; what the work last said of its progress is no longer that.
    over = replace(moved, inputs=(), message=None, ttl_ms=ttl_ms)
    match outcome:
        case Completed(result):
            return replace(over, result=result)
        case Failed(error, message):
            return replace(over, error=error, message=message or error.message)
        case Cancelled():
            return over
        case _ as never:
            assert_never(never)
