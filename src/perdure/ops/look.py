"""What an operator sees of a store: who works, what waits, and how far one task is.

Taken down to plain values first, which is what `--json` prints, and then put into words. Arguments, results, answers,
tokens and messages of tools never get that far; why a task failed does, where Perdure itself says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import anyio

from perdure.domain import ids
from perdure.domain.errors import PerdureError
from perdure.domain.journal import Entry, Verb, in_order
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Failure, InputRequest, InputState, Session, Status, Task
from perdure.domain.policy import is_timer
from perdure.domain.timeline import EventKind, Inspection, Load, RunState
from perdure.engine import lease, sealers, unclaimed
from perdure.store.base import Store
from perdure.store.sealing import SEALED

from . import keys, stores

__all__ = ["inspect", "say_inspection", "say_status", "status"]

T = TypeVar("T")
Plain = dict[str, Any]
"""What JSON can say."""
Sessions = Sequence[tuple[Session, bool]]
"""As `Store.sessions` gives them: each with whether its lease has lapsed."""

_OURS: Final = re.compile(
    r"Internal error"
    r"|The task expired: its ttl ran out before it finished"
    r"|The worker that ran the task died or went silent \d+ times; giving up"
    r"|The tool's code does not agree with the task's journal: at place .+"
    r"|The input key .+ was already used by this task for a different question\..+"
    r"|The journal of a task has at most \d+ entries, and this one is full"
    r"|The value can't be stored as JSON: \w+"
    r"|The tool came to .+ in an asyncio task of its own\..+"
    r"|The step .+ uses \w+: a step is replayed as a whole, so no durable verb can be in it",
    re.DOTALL,
)
"""What Perdure itself says of a task that it fails. A tool may fail one with the same code, so the code does not tell.
What these name besides is names of the tool's code, which its journal shows as well."""
_EVENTS: Final = {
    EventKind.RETRY: "attempt failed: {}",
    EventKind.STEP_RETRY: "step failed: {}",
    EventKind.DEATH: "worker died ({})",
    EventKind.OVERRUN: "ran past its deadline ({})",
    EventKind.CANCEL: "asked to stop",
    EventKind.UNANSWERED: "question timed out: {}",
    EventKind.SETTLED: "external work ended: {}",
}


def status(store: str | Store) -> Plain:
    """The workers, what there is to run for each handler, and what no worker can run.

    Raises:
        SystemExit: the store can't be used; one line says why.
    """

    async def ask(opened: Store) -> Plain:
        sessions, loads = await opened.sessions(), await opened.loads()
        return {
            "store": stores.described(store),
            "workers": [_worker(session, lapsed) for session, lapsed in sessions],
            "handlers": [_load(load) for load in loads],
            "unclaimable": [load.handler for load in unclaimed.unclaimable(loads, sessions)],
        }

    return _ask(store, ask)


def inspect(store: str | Store, task_id: str) -> Plain:
    """One task.

    Raises:
        SystemExit: there is none, or the store can't be used; one line says so.
    """
    if task_id.endswith("…"):
        raise SystemExit(
            f"perdure: {task_id} is the beginning of an id, as logs show it: look the whole of it up in the "
            "table perdure.task of the store (task in SQLite)"
        )

    async def ask(opened: Store) -> Plain:
        return _task(await opened.inspect(ids.parse(task_id)), await opened.sessions(), _now())

    return _ask(store, ask)


def _open(url: str) -> Store:
    """The store, to be looked at. Its keys are not needed: what is sealed is not shown then."""
    ring = keys.from_environment()
    return stores.open_store(url, keys=ring, blind=ring is None, lenient=True)


def _ask(store: str | Store, ask: Callable[[Store], Awaitable[T]]) -> T:
    async def once() -> T:
        if isinstance(store, str):
            stores.require(store)
        opened = _open(store) if isinstance(store, str) else store
        try:
            await opened.open()
            return await ask(opened)
        finally:
            await opened.close()

    try:
        return anyio.run(once)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


# -- plain values ------------------------------------------------------------------------------------------------------


def _worker(session: Session, lapsed: bool) -> Plain:
    return {
        "session": session.id,
        "host": session.info.get("host"),
        "pid": session.info.get("pid"),
        "state": "gone" if lease.gone(session.info) else "lapsed" if lapsed else "alive",
        "lease_until": session.expires_at,
        "handlers": sorted(unclaimed.handlers_of(session)),
        "sealing": sealers.sealing_of(session),
    }


def _load(load: Load) -> Plain:
    return {
        "handler": load.handler,
        "ready": load.ready,
        "held": load.held,
        "waiting": load.waiting,
        "oldest_ready_ms": load.oldest_ms,
    }


def _task(found: Inspection, sessions: Sessions, now: int) -> Plain:
    task, journal = found.task, found.journal
    entries = [_entry(each, task, now) for each in journal.entries.values()]
    questions = [_question(each, task) for each in journal.questions.values()]
    return {
        "task": task.id,
        "handler": found.operation.handler,
        "status": task.status.value,
        "tool_error": None if task.result == {} else task.result is not None and task.result.get("isError") is True,
        "error": None if task.error is None else _error(task.error),
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "cancel_requested": task.cancel_requested,
        "run": None if found.run is None else _run(found.run, sessions),
        "journal": sorted(entries + questions, key=_in_order),
        "timeline": [{"at": event.at, "kind": event.kind.value, "detail": event.detail} for event in found.events],
    }


def _error(error: Failure) -> Plain:
    """Why a task failed: in words only if they are ours, since what a tool says is between it and its client."""
    if error.code == SEALED:
        return {"code": None, "message": None}
    ours = error.code == INTERNAL_ERROR and error.data is None and _OURS.fullmatch(error.message)
    return {"code": error.code, "message": error.message if ours else None}


def _entry(entry: Entry, task: Task, now: int) -> Plain:
    state, wake_at = entry.state.value, entry.wake_at
    if entry.over:
        wake_at = None
    elif _has_slept(entry, task, now):
        state, wake_at = "over", None
    elif task.status.terminal:
        state, wake_at = "interrupted", None
    return _line(entry.place, entry.verb, entry.name, state, wake_at)


def _has_slept(entry: Entry, task: Task, now: int) -> bool:
    """Nobody writes the end of a sleep down: it is over when its time has come, if its task got that far."""
    if entry.verb is not Verb.SLEEP:
        return False
    until = task.updated_at if task.status.terminal else now
    return task.status is Status.COMPLETED or (entry.wake_at is not None and entry.wake_at <= until)


def _question(question: InputRequest, task: Task) -> Plain:
    state, deadline = question.state.value, None
    if question.state is InputState.SUPERSEDED:
        state = "timed out"
    elif question.state is InputState.OUTSTANDING and task.status.terminal:
        state = "unanswered"
    elif question.state is InputState.OUTSTANDING:
        deadline = question.deadline
    return _line(question.place, Verb.ASK, question.key, state, deadline)


def _line(place: str | None, verb: Verb, name: str, state: str, wake_at: int | None) -> Plain:
    line = {"place": place, "verb": verb.value, "name": name, "state": state}
    return line if wake_at is None else {**line, "wake_at": wake_at}


def _in_order(line: Plain) -> tuple[bool, list[list[int]]]:
    """As the code comes by them; what has no place comes last."""
    place = line["place"]
    return place is None, [] if place is None else in_order(place)


def _run(run: RunState, sessions: Sessions) -> Plain:
    holder = next((_worker(session, lapsed) for session, lapsed in sessions if session.id == run.session), None)
    live = [each for each in (_worker(session, lapsed) for session, lapsed in sessions) if each["state"] == "alive"]
    state = _state(run)
    return {
        "state": state,
        "attempt": 1 + run.failures + run.deaths,
        "failures": run.failures,
        "deaths": run.deaths,
        "session": run.session,
        "process": None if holder is None else {key: holder[key] for key in ("host", "pid", "state")},
        "unclaimable": state == "ready" and not any(run.handler in each["handlers"] for each in live),
        "wake_at": run.due_at if run.due_at is not None and is_timer(run.due_at) else None,
        "deadline_at": run.deadline_at,
    }


def _state(run: RunState) -> str:
    """In the words of the loads."""
    if run.session is not None:
        return "held"
    return "waiting" if run.due_at is None or is_timer(run.due_at) else "ready"


# -- words -------------------------------------------------------------------------------------------------------------


def say_status(found: Plain) -> Iterator[str]:
    """The lines of a status."""
    yield f"store {found['store']}"
    yield ""
    now = _now()
    rows = [
        (each["session"], f"{each['host']}:{each['pid']}", _lease(each, now), ", ".join(each["handlers"]) or "nothing")
        for each in found["workers"]
    ]
    yield from _table(("worker", "process", "lease", "runs"), rows, empty="no worker")
    yield ""
    rows = [
        (each["handler"], *(str(each[count]) for count in ("ready", "held", "waiting")), _span(each["oldest_ready_ms"]))
        for each in found["handlers"]
    ]
    yield from _table(("handler", "ready", "held", "waiting", "oldest ready"), rows, empty="no open task")
    for handler in found["unclaimable"]:
        yield f"unclaimable: no worker has {handler}"
    live = ((each["sealing"], f"{each['host']}:{each['pid']}") for each in found["workers"] if each["state"] == "alive")
    yield from map(_printable, sealers.summary(live))


def say_inspection(found: Plain) -> Iterator[str]:
    """The lines of an inspection."""
    run = found["run"]
    yield f"task      {found['task']}"
    yield f"tool      {found['handler']}"
    yield ", ".join((f"status    {found['status']}", *_remarks(found)))
    if found["error"] is not None:
        yield f"error     {_why(found['error'])}"
    yield f"created   {_instant(found['created_at'])}"
    yield f"changed   {_instant(found['updated_at'])}"
    if run is not None:
        yield f"attempt   {run['attempt']} (failures {run['failures']}, deaths of workers {run['deaths']})"
        yield f"run       {_where(run, found['handler'])}"
    yield ""
    rows = [(each["place"] or "-", each["verb"], each["name"], _until(each)) for each in found["journal"]]
    yield from _table(("place", "verb", "name", "state"), rows, empty="no step or question")
    yield ""
    rows = [(_instant(each["at"]), _EVENTS[each["kind"]].format(each["detail"])) for each in found["timeline"]]
    yield from _table(("at", "event"), rows, empty="no event")


def _lease(worker: Plain, now: int) -> str:
    match worker["state"]:
        case "gone":
            return "process gone"
        case "lapsed":
            return "lapsed"
        case _:
            return f"{_span(max(0, worker['lease_until'] - now))} left"


def _remarks(task: Plain) -> Iterator[str]:
    if task["tool_error"]:
        yield "tool error"
    if task["cancel_requested"]:
        yield "asked to stop"


def _why(error: Plain) -> str:
    if error["code"] is None:
        return "sealed"
    if error["message"] is None:
        return f"{error['code']}, the tool's own"
    return _printable(f"{error['code']}: {error['message']}")


def _where(run: Plain, handler: str) -> str:
    if run["session"] is not None:
        return _printable(f"held by {run['session']}{_holder(run['process'])}")
    if run["unclaimable"]:
        return _printable(f"{run['state']}, and no worker has {handler}")
    return run["state"] if run["wake_at"] is None else f"{run['state']} until {_instant(run['wake_at'])}"


def _holder(process: Plain | None) -> str:
    if process is None:
        return ""
    state = {"gone": ", process gone", "lapsed": ", lease lapsed"}.get(process["state"], "")
    return f" ({process['host']}:{process['pid']}{state})"


def _until(line: Plain) -> str:
    return f"{line['state']}, until {_instant(line['wake_at'])}" if "wake_at" in line else line["state"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> Iterator[str]:
    """Rows under their head, in columns; only the word `empty` if there are none."""
    rows = [[_printable(cell) for cell in row] for row in rows]
    if not rows:
        yield empty
        return
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _printable(text: str) -> str:
    """On one line, and without what a terminal would take for a command: names and notes are anybody's."""
    return "".join(each if each.isprintable() else " " for each in text)


def _now() -> int:
    return round(time.time() * 1000)


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _span(span_ms: int | None) -> str:
    if span_ms is None:
        return "-"
    seconds = span_ms / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
