"""What an operator sees of a store: who works, what waits, and how far one task is.

Taken down to plain values first, which is what `--json` prints, and then put into words. Arguments, results, answers,
tokens and messages of tools never get that far.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import anyio

from perdure.domain import ids
from perdure.domain.errors import PerdureError
from perdure.domain.journal import in_order
from perdure.domain.model import Session
from perdure.domain.policy import is_timer
from perdure.domain.timeline import Inspection, Queue, RunState
from perdure.engine import lease, unclaimed
from perdure.store.base import Store

from . import stores

__all__ = ["inspect", "say_inspection", "say_status", "status"]

T = TypeVar("T")
Plain = dict[str, Any]
"""What JSON can say."""


def status(store: str | Store) -> Plain:
    """The workers, the queues, and what no worker can run.

    Raises:
        SystemExit: the store can't be used; one line says why.
    """

    async def ask(opened: Store) -> Plain:
        sessions, queues = await opened.sessions(), await opened.queues()
        return {
            "store": stores.described(store),
            "workers": [_worker(session, lapsed) for session, lapsed in sessions],
            "queues": [_queue(queue) for queue in queues],
            "unclaimable": [queue.handler for queue in unclaimed.unclaimable(queues, sessions)],
        }

    return _ask(store, ask)


def inspect(store: str | Store, task_id: str) -> Plain:
    """One task.

    Raises:
        SystemExit: there is none, or the store can't be used; one line says so.
    """

    async def ask(opened: Store) -> Plain:
        return _task(await opened.inspect(ids.parse(task_id)))

    return _ask(store, ask)


def _ask(store: str | Store, ask: Callable[[Store], Awaitable[T]]) -> T:
    async def once() -> T:
        if isinstance(store, str):
            stores.require(store)
        opened = stores.open_store(store) if isinstance(store, str) else store
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
    }


def _queue(queue: Queue) -> Plain:
    return {
        "handler": queue.handler,
        "ready": queue.ready,
        "held": queue.held,
        "waiting": queue.waiting,
        "oldest_ms": queue.oldest_ms,
    }


def _task(found: Inspection) -> Plain:
    task, journal = found.task, found.journal
    entries = sorted(journal.entries.values(), key=lambda entry: in_order(entry.place))
    return {
        "task": task.id,
        "handler": task.operation.handler,
        "status": task.status.value,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "cancel_requested": task.cancel_requested,
        "run": None if found.run is None else _run(found.run),
        "steps": [
            {"place": each.place, "verb": each.verb.value, "name": each.name, "state": each.state.value}
            | ({} if each.wake_at is None else {"wake_at": each.wake_at})
            for each in entries
        ],
        "questions": [
            {"key": each.key, "state": each.state.value} | ({} if each.place is None else {"place": each.place})
            for each in journal.questions.values()
        ],
        "timeline": [{"at": event.at, "kind": event.kind.value, "detail": event.detail} for event in found.events],
    }


def _run(run: RunState) -> Plain:
    return {
        "state": _state(run),
        "attempt": 1 + run.failures + run.deaths,
        "failures": run.failures,
        "deaths": run.deaths,
        "session": run.session,
        "wake_at": run.due_at if run.due_at is not None and is_timer(run.due_at) else None,
        "deadline_at": run.deadline_at,
    }


def _state(run: RunState) -> str:
    """In the words of the queues."""
    if run.session is not None:
        return "held"
    return "waiting" if run.due_at is None or is_timer(run.due_at) else "ready"


# -- words -------------------------------------------------------------------------------------------------------------


def say_status(found: Plain) -> Iterator[str]:
    """The lines of a status."""
    yield f"store {found['store']}"
    yield ""
    now = round(time.time() * 1000)
    rows = [
        (each["session"], f"{each['host']}:{each['pid']}", _lease(each, now), ", ".join(each["handlers"]) or "nothing")
        for each in found["workers"]
    ]
    yield from _table(("worker", "process", "lease", "runs"), rows, empty="no worker")
    yield ""
    rows = [
        (each["handler"], *(str(each[count]) for count in ("ready", "held", "waiting")), _span(each["oldest_ms"]))
        for each in found["queues"]
    ]
    yield from _table(("queue", "ready", "held", "waiting", "oldest"), rows, empty="no task")
    for handler in found["unclaimable"]:
        yield f"unclaimable: no worker has {handler}"


def say_inspection(found: Plain) -> Iterator[str]:
    """The lines of an inspection."""
    run = found["run"]
    yield f"task      {found['task']}"
    yield f"tool      {found['handler']}"
    yield f"status    {found['status']}{', asked to stop' if found['cancel_requested'] else ''}"
    yield f"created   {_instant(found['created_at'])}"
    yield f"changed   {_instant(found['updated_at'])}"
    if run is not None:
        yield f"attempt   {run['attempt']} (failures {run['failures']}, deaths of workers {run['deaths']})"
        yield f"run       {_where(run)}"
    yield ""
    rows = [(each["place"], each["verb"], each["name"], _until(each)) for each in found["steps"]]
    yield from _table(("place", "verb", "name", "state"), rows, empty="no step")
    yield ""
    rows = [(each["key"], each["state"]) for each in found["questions"]]
    yield from _table(("question", "state"), rows, empty="no question")
    yield ""
    rows = [(_instant(each["at"]), each["kind"], each["detail"]) for each in found["timeline"]]
    yield from _table(("at", "event", "detail"), rows, empty="no event")


def _lease(worker: Plain, now: int) -> str:
    match worker["state"]:
        case "gone":
            return "process gone"
        case "lapsed":
            return "lapsed"
        case _:
            return f"{_span(max(0, worker['lease_until'] - now))} left"


def _where(run: Plain) -> str:
    if run["session"] is not None:
        return f"held by {run['session']}"
    return run["state"] if run["wake_at"] is None else f"{run['state']} until {_instant(run['wake_at'])}"


def _until(step: Plain) -> str:
    return f"{step['state']}, until {_instant(step['wake_at'])}" if "wake_at" in step else step["state"]


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
