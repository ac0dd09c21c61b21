"""The verbs that concern one task, each a decision about its record at one instant.

`lifecycle`, `inputs`, `journal` and `waiting` decide; what is here puts their answers into the record. No verb knows
where records come from: the memory model calls these functions on what it keeps, PostgreSQL's store on what it has
locked. SQLite's, which has its statements to itself, says the same in SQL, and the tests hold the two against each
other.

A verb that refuses has changed nothing. Values are copied by whoever calls: what these functions store is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from perdure.domain import inputs, lifecycle, policy, timeline, waiting
from perdure.domain.errors import AlreadySettled, LeaseLost, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Journal, Waits, repeated, settled
from perdure.domain.model import JSON, Claim, Operation, Outcome
from perdure.domain.operating import Hastened, on_hasten
from perdure.domain.timeline import Event, EventKind

from .codec import copied
from .records import Record, Run

__all__ = [
    "answer",
    "begin",
    "bury",
    "claim",
    "expire",
    "finish",
    "give_back",
    "hasten",
    "held",
    "park",
    "record",
    "report",
    "request_cancel",
    "retry",
    "settle",
    "tell",
]

# -- what clients ask --------------------------------------------------------------------------------------------------


def begin(task: Record) -> None:
    """A task was made: it may be run."""
    task.announce(runnable=True)


def answer(task: Record, responses: Mapping[str, JSON], now: int) -> None:
    accepted = inputs.accept(task.journal.questions, responses)
    if task.task.status.terminal or not accepted:
        return
    # What is ignored is ignored whatever its value is (contract 4), also one that can't be stored.
    task.turn({key: replace(each, response=copied(each.response)) for key, each in accepted.items()})
    event = lifecycle.on_answers(task.task, inputs.awaited(task.journal.questions))
    resumed = isinstance(event, lifecycle.Resume)
    if resumed and task.run is not None:
        task.run.wake(now)
    if event is not None:
        _apply(task, event, now, runnable=resumed)


def request_cancel(task: Record, now: int) -> None:
    run = task.run
    if run is None:
        return
    held = run.session is not None
    event = lifecycle.on_cancel(task.task, held=held, minded=run.minds_cancel)
    if event is not None:
        task.events.append(timeline.cancelled(now))
        run.wake(now)
        _apply(task, event, now, runnable=run.minds_cancel and not held)


# -- what workers ask --------------------------------------------------------------------------------------------------


def claim(task: Record, run: Run, operation: Operation, session_id: str, fence: int, now: int) -> Claim:
    """A worker takes the run, and goes on without the answers whose time has run out."""
    given_up = inputs.unanswered(task.journal.questions, now)
    task.turn(given_up)
    task.events.extend(timeline.unanswered(now, question) for question in given_up.values())
    event = lifecycle.on_claim(task.task)
    if event is not None:
        _apply(task, event, now)
    run.session, run.fence = session_id, fence
    run.deadline_at = None if run.timeout_ms is None else now + run.timeout_ms
    return Claim(task.task, operation, fence, now, run.failures, run.deaths, run.deadline_at, session_id)


def held(task: Record | None, by: Claim) -> Run:
    """The run that the claim still holds.

    Raises:
        LeaseLost: it holds it no longer. A released run keeps its last fence, but nobody holds it.
    """
    run = None if task is None else task.run
    if run is None or run.session is None or (run.session, run.fence) != (by.session, by.fence):
        raise LeaseLost
    return run


def record(task: Record, run: Run, entry: Entry, wake_in_ms: int | None, note: str | None, now: int) -> Entry:
    if (known := repeated(entry, task.journal.entries.get(entry.place))) is not None:
        return known
    timed = waiting.timed(entry, wake_in_ms, now)
    task.write(timed)
    run.minds_cancel = run.minds_cancel or timed.minds_cancel
    if note is not None:
        task.events.append(Event(now, EventKind.STEP_RETRY, note))
    return timed


def report(task: Record, message: str, now: int) -> None:
    _apply(task, lifecycle.Report(message), now)


def park(task: Record, run: Run, waits: Waits, now: int) -> None:
    before = task.journal
    questions = {**before.questions, **inputs.admit(before.questions, waits.asked, now)}
    questions |= inputs.turned(questions, waits.asked)
    journal = Journal({**before.entries, **waiting.begun(waits, now)}, questions)
    due_at = waiting.due_at(waits, journal, now, cancelled=task.task.cancel_requested)
    ready = due_at is not None and not policy.is_timer(due_at)
    event = lifecycle.on_park(task.task, inputs.awaited(questions), ready=ready, minded=waits.minds_cancel)
    if isinstance(event, lifecycle.Finish):
        _apply(task, event, now)
        return
    task.journal = journal
    run.put_aside(due_at)
    run.minds_cancel = waits.minds_cancel
    if event is not None:
        _apply(task, event, now)
    elif ready:
        task.announce(runnable=True)


def finish(task: Record, outcome: Outcome, now: int) -> None:
    _apply(task, lifecycle.Finish(outcome), now)


def give_back(task: Record, run: Run, now: int) -> None:
    """The run comes back unfinished, with its attempt unchanged."""
    _free(task, run, lifecycle.on_free(task.task, minded=run.minds_cancel), now)


def retry(
    task: Record, run: Run, by: Claim, delay_ms: int, note: str, failed: Collection[str], now: int, *, counted: bool
) -> None:
    minded = run.minds_cancel and not by.task.cancel_requested
    end = lifecycle.on_free(task.task, minded=minded)
    if end is not None:
        _apply(task, end, now)
        return
    task.events.append(Event(now, EventKind.RETRY, note))
    task.undo(failed)
    run.failures += counted
    run.put_aside(now + delay_ms)
    if task.task.cancel_requested and run.wake(now):
        task.announce(runnable=True)


# -- what other systems say --------------------------------------------------------------------------------------------


def settle(task: Record, place: str, token: str, state: EntryState, value: JSON, now: int) -> None:
    after = settled(_work(task, place), token, state, value)
    if after is None:
        return
    if task.run is None:
        raise AlreadySettled
    task.write(after)
    task.events.append(timeline.settled(now, after))
    if task.run.wake(now):
        task.announce(runnable=True)


def tell(task: Record, place: str, token: str, message: str, now: int) -> None:
    # What a settlement would come to says all there is to know: whether the token is right, and whether it is over.
    if settled(_work(task, place), token, EntryState.DONE, None) is None or task.task.status.terminal:
        raise AlreadySettled
    event = lifecycle.on_tell(task.task, message)
    if event is not None:
        _apply(task, event, now)


def _work(task: Record, place: str) -> Entry:
    if place not in task.journal.entries:
        raise TaskNotFound
    return task.journal.entries[place]


# -- what operators ask ------------------------------------------------------------------------------------------------


def hasten(task: Record, now: int, *, naps: bool, promised: Collection[int]) -> Hastened:
    """Make the run due. The caller cuts the naps short (`operating.woken`): it may not be able to read their values."""
    run = task.run
    if run is None:
        return Hastened.OVER
    done = on_hasten(run.due_at, now, held=run.session is not None, naps=naps, promised=promised)
    if done is Hastened.DUE:
        run.wake(now)
        task.events.append(timeline.hastened(now))
        task.announce(runnable=True)
    return done


# -- housekeeping ------------------------------------------------------------------------------------------------------


def bury(task: Record, run: Run, event: Callable[[int, int, int], Event], now: int) -> None:
    """The worker that held the run is dead, or as good as dead; `event` is what the timeline says of it."""
    run.deaths += 1
    task.events.append(event(now, run.deaths, run.max_attempts))
    end = lifecycle.on_death(task.task, run.deaths, run.max_attempts, minded=run.minds_cancel)
    _free(task, run, end, now)


def expire(task: Record, now: int) -> None:
    """The ttl ran out."""
    _apply(task, lifecycle.Expire(), now)


# -- inside ------------------------------------------------------------------------------------------------------------


def _free(task: Record, run: Run, end: lifecycle.Finish | None, now: int) -> None:
    """Nobody runs it now: its end, or else somebody may run it at once."""
    if end is not None:
        _apply(task, end, now)
        return
    run.put_aside(policy.due_at_once(now))
    task.announce(runnable=True)


def _apply(task: Record, event: lifecycle.Event, now: int, *, runnable: bool = False) -> None:
    """Write what the state machine makes of the event. A run ends with its task."""
    task.task = lifecycle.apply(task.task, event, now)
    if task.task.status.terminal:
        task.run = None
    task.announce(runnable=runnable, cancel=isinstance(event, lifecycle.RequestCancel))
