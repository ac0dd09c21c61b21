"""What a worker writes under its fence: entries of the journal, messages, waits, outcomes (see `shared`).

Each verb looks at the fence first, and raises `LeaseLost` before it has written anything. Values come as they are
stored where they are sure to be, so that one that can't be fails before the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perdure.domain import inputs, lifecycle, policy, waiting
from perdure.domain.inputs import Questions
from perdure.domain.journal import Entry, Journal, Waits, repeated, undone
from perdure.domain.model import JSON, Claim, Outcome, Task
from perdure.domain.timeline import Event, EventKind
from perdure.store import rows
from perdure.store.codec import encode

from . import shared, sql
from .writer import Transaction

__all__ = ["finish", "park", "record", "release", "report", "retry"]


def record(
    tx: Transaction, claim: Claim, entry: Entry, value: str, wake_in_ms: int | None, note: str | None, now: int
) -> Entry:
    shared.hold(tx, claim)
    if (known := repeated(entry, _recorded(tx, claim.task, entry))) is not None:
        return known
    timed = waiting.timed(entry, wake_in_ms, now)
    shared.write(tx, claim.seq, timed, value)
    if timed.minds_cancel:
        tx.run(sql.RUN_MIND, claim.seq)
    if note is not None:
        shared.note(tx, claim.task, Event(now, EventKind.STEP_RETRY, note))
    return timed


def _recorded(tx: Transaction, task: Task, entry: Entry) -> Entry | None:
    """What is there in the place of `entry`, where that matters."""
    return _entries(tx, task, {entry.place}).get(entry.place) if entry.retrying else None


def report(tx: Transaction, claim: Claim, message: str, now: int) -> None:
    shared.apply(tx, shared.held(tx, claim), lifecycle.Report(message), now)


def park(
    tx: Transaction, claim: Claim, waits: Waits, requests: Mapping[str, str], values: Mapping[str, str], now: int
) -> Task:
    """`requests` are the questions that are asked, by key, and `values` those of the entries, by place; as stored."""
    task = shared.held(tx, claim)
    before = shared.questions(tx, task)
    asked, begun = inputs.admit(before, waits.asked, now), waiting.begun(waits, now)
    turned = inputs.turned({**before, **asked}, waits.asked)
    questions = {**before, **asked, **turned}
    journal = Journal({**_entries(tx, task, waits.places), **begun}, questions)
    due_at = waiting.due_at(waits, journal, now, cancelled=task.cancel_requested)
    ready = due_at is not None and not policy.is_timer(due_at)
    event = lifecycle.on_park(task, inputs.awaited(questions), ready=ready, minded=waits.minds_cancel)
    if isinstance(event, lifecycle.Finish):
        return shared.apply(tx, task, event, now)
    tx.run(sql.RUN_PARK, due_at, int(waits.minds_cancel), claim.seq)
    for place, entry in begun.items():
        shared.write(tx, claim.seq, entry, values[place])
    _ask(tx, claim.seq, asked, len(before), requests)
    for key, question in turned.items():
        tx.run(sql.INPUT_TURN, int(question.awaited), claim.seq, key)
    if event is not None:
        return shared.apply(tx, task, event, now)
    if ready:
        shared.announce(tx, task, runnable=True)
    return task


def _entries(tx: Transaction, task: Task, places: Collection[str]) -> dict[str, Entry]:
    """Those that are waited for, of what may be thousands."""
    return rows.entries(tx.all(sql.ENTRY_AT, task.seq, encode([*places])), task, tx.codec) if places else {}


def _ask(tx: Transaction, seq: int, asked: Questions, first: int, requests: Mapping[str, str]) -> None:
    for position, (key, question) in enumerate(asked.items(), first):
        values = (requests[key], question.issued_at, question.place, question.deadline)
        tx.run(sql.INPUT_INSERT, seq, key, position, *values)


def finish(tx: Transaction, claim: Claim, outcome: Outcome, now: int) -> Task:
    return shared.apply(tx, shared.held(tx, claim), lifecycle.Finish(outcome), now)


def release(tx: Transaction, claim: Claim, now: int) -> None:
    task = shared.held(tx, claim)
    shared.free(tx, task, lifecycle.on_free(task, minded=shared.minds(tx, claim.seq)), now)


def retry(
    tx: Transaction, claim: Claim, delay_ms: int, note: str, failed: Collection[str], now: int, *, counted: bool
) -> Task:
    task = shared.held(tx, claim)
    minded = not claim.task.cancel_requested and shared.minds(tx, claim.seq)
    end = lifecycle.on_free(task, minded=minded)
    if end is not None:
        return shared.apply(tx, task, end, now)
    tx.run(sql.RUN_FREE, now + delay_ms, int(counted), 0, claim.seq)
    if failed:
        _undo(tx, task, failed)
    shared.note(tx, task, Event(now, EventKind.RETRY, note))
    if task.cancel_requested and shared.wake(tx, claim.seq, now):
        shared.announce(tx, task, runnable=True)
    return task


def _undo(tx: Transaction, task: Task, failed: Collection[str]) -> None:
    """Forget the steps that failed and what came after them; what was answered stays answered."""
    places = {place for (place,) in tx.all(sql.ENTRY_PLACES, task.seq)}
    places |= {question.place for question in shared.questions(tx, task).values() if question.place is not None}
    gone: list[JSON] = [*frozenset[str]().union(*(undone(places, place) for place in failed))]
    tx.run(sql.ENTRY_UNDO, task.seq, encode(gone))
    tx.run(sql.INPUT_UNPLACE, task.seq, encode(gone))
