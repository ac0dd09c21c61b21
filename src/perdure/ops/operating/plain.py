"""What is found, as plain values: what `--json` prints, and what is put into words. Nothing in them is content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.domain import policy, verdicts
from perdure.domain.journal import Entry, Verb, in_order
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Failure, InputRequest, InputState, Owner, Session, Status, Task
from perdure.domain.operating import Count, Listed
from perdure.domain.timeline import Inspection, Load, RunState
from perdure.engine import lease, sealers, unclaimed
from perdure.store.sealing import SEALED

__all__ = ["Plain", "Sessions", "inspection", "listed", "load", "stats", "worker"]

Plain = dict[str, Any]
"""What JSON can say."""
Sessions = Sequence[tuple[Session, bool]]
"""As `Store.sessions` gives them: each with whether its lease has lapsed."""


def worker(session: Session, lapsed: bool) -> Plain:
    return {
        "session": session.id,
        "host": session.info.get("host"),
        "pid": session.info.get("pid"),
        "state": "gone" if lease.gone(session.info) else "lapsed" if lapsed else "alive",
        "lease_until": session.expires_at,
        "tools": sorted(unclaimed.handlers_of(session)),
        "sealing": sealers.sealing_of(session),
    }


def load(each: Load) -> Plain:
    return {
        "tool": each.handler,
        "ready": each.ready,
        "held": each.held,
        "waiting": each.waiting,
        "oldest_ready_ms": each.oldest_ms,
    }


def listed(each: Listed) -> Plain:
    """A task in a list."""
    return {
        "task": each.id,
        "tool": each.handler,
        "owner": _owner(each.owner),
        "status": each.status.value,
        "created_at": each.created_at,
        "updated_at": each.updated_at,
        "expires_at": each.expires_at,
        "cancel_requested": each.cancel_requested,
        "run": None if each.run is None else _standing(each.run),
    }


def stats(counts: Iterable[Count], loads: Iterable[Load]) -> list[Plain]:
    """What there is of each handler: how many tasks by status, since when the oldest unfinished one, its load."""
    by_handler: dict[str, Plain] = {}
    for each in counts:
        row = by_handler.setdefault(each.handler, _nothing_of(each.handler))
        row[each.status.value] += each.count
        if not each.status.terminal:
            row["oldest_unfinished_at"] = min(each.oldest_at, row["oldest_unfinished_at"] or each.oldest_at)
    for each in loads:
        by_handler.setdefault(each.handler, _nothing_of(each.handler)).update(load(each))
    return [row for _, row in sorted(by_handler.items())]


def _nothing_of(handler: str) -> Plain:
    statuses = {status.value: 0 for status in Status}
    return {**load(Load(handler, 0, 0, 0, None)), **statuses, "oldest_unfinished_at": None}


def _owner(of: Owner) -> Plain:
    return {"tenant": of.tenant, "principal": of.principal}


def inspection(found: Inspection, sessions: Sessions, now: int) -> Plain:
    task, journal = found.task, found.journal
    entries = [_entry(each, task, now) for each in journal.entries.values()]
    questions = [_question(each, task) for each in journal.questions.values()]
    return {
        "task": task.id,
        "tool": found.operation.handler,
        "owner": _owner(task.owner),
        "status": task.status.value,
        "tool_error": None if task.result == {} else task.result is not None and task.result.get("isError") is True,
        "error": None if task.error is None else _error(task.error),
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "ttl_ms": task.ttl_ms,
        "expires_at": policy.expires_at(task.created_at, task.ttl_ms),
        "cancel_requested": task.cancel_requested,
        "run": None if found.run is None else _run(found.run, sessions),
        "journal": sorted(entries + questions, key=_in_order),
        "timeline": [{"at": event.at, "kind": event.kind.value, "detail": event.detail} for event in found.events],
    }


def _error(error: Failure) -> Plain:
    """Why a task failed: in words only if they are ours, since what a tool says is between it and its client."""
    if error.code == SEALED:
        return {"code": None, "message": None}
    ours = error.code == INTERNAL_ERROR and error.data is None and verdicts.is_ours(error.message)
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
    holder = next((worker(session, lapsed) for session, lapsed in sessions if session.id == run.session), None)
    live = [each for each in (worker(session, lapsed) for session, lapsed in sessions) if each["state"] == "alive"]
    standing = _standing(run)
    return {
        **standing,
        "process": None if holder is None else {key: holder[key] for key in ("host", "pid", "state")},
        "unclaimable": standing["state"] == "ready" and not any(run.handler in each["tools"] for each in live),
    }


def _standing(run: RunState) -> Plain:
    timer = run.due_at is not None and policy.is_timer(run.due_at)
    return {
        "state": _state(run),
        "attempt": 1 + run.failures + run.deaths,
        "failures": run.failures,
        "deaths": run.deaths,
        "session": run.session,
        "wake_at": run.due_at if timer else None,
        "deadline_at": run.deadline_at,
    }


def _state(run: RunState) -> str:
    """In the words of the loads."""
    if run.session is not None:
        return "held"
    return "waiting" if run.due_at is None or policy.is_timer(run.due_at) else "ready"
