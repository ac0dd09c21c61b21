"""`MemoryStore`: the verbs over the tables. `clock` is read once a verb, so that a verb happens at one instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice

from perdure.domain import inputs, lifecycle, policy, timeline, waiting
from perdure.domain.errors import AlreadySettled, IdempotencyKeyReused, LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Journal, Waits, settled
from perdure.domain.model import (
    JSON,
    Change,
    Claim,
    Demand,
    InputRequest,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Renewal,
    Session,
    Task,
)
from perdure.domain.timeline import Event, EventKind, Inspection, Load
from perdure.store.base import PROMOTED, Listener, Unsubscribe
from perdure.store.clock import Clock, WallClock
from perdure.store.codec import plain

from . import copies
from .tables import Record, Run, Tables, in_turn, load

__all__ = ["MemoryStore"]


class MemoryStore:
    """A `Store` in this process's memory. `clock` is the store's one source of time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or WallClock()
        self._t = Tables()
        self._listeners: list[Listener] = []

    # -- lifetime ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def subscribe(self, listener: Listener) -> Unsubscribe:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    async def create(self, new: NewTask) -> Task:
        new = copies.new_task(new)
        if new.id in self._t.ids:
            return deepcopy(self._owned(new.owner, new.id).task)
        known = None if new.key is None else self._recalled(new.owner, new.key, new.digest)
        return deepcopy(self._created(new).task if known is None else known.task)

    async def recall(self, owner: Owner, key: str, digest: str) -> Task | None:
        record = self._recalled(owner, key, digest)
        return None if record is None else deepcopy(record.task)

    async def get(self, owner: Owner, task_id: str) -> Task:
        return deepcopy(self._owned(owner, task_id).task)

    async def open_questions(self, owner: Owner, task_id: str) -> tuple[InputRequest, ...]:
        record = self._owned(owner, task_id)
        if record.task.status.terminal:
            return ()
        return deepcopy(inputs.outstanding(record.journal.questions))

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        record, now = self._owned(owner, task_id), self._clock()
        accepted = inputs.accept(record.journal.questions, responses)
        if record.task.status.terminal or not accepted:
            return deepcopy(record.task)
        # What is ignored is ignored whatever its value is (contract 4), also one that can't be stored.
        answered = {key: replace(each, response=copies.json(each.response)) for key, each in accepted.items()}
        record.journal = replace(record.journal, questions={**record.journal.questions, **answered})
        event = lifecycle.on_answers(record.task, inputs.awaited(record.journal.questions))
        if isinstance(event, lifecycle.Resume) and record.run is not None:
            record.run.wake(now)
        if event is not None:
            self._apply(record, event, now, runnable=isinstance(event, lifecycle.Resume))
        return deepcopy(record.task)

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        record, now = self._owned(owner, task_id), self._clock()
        run = record.run
        if run is None:
            return deepcopy(record.task)
        held = run.session is not None
        event = lifecycle.on_cancel(record.task, held=held, minded=run.minds_cancel)
        if event is not None:
            record.events.append(timeline.cancelled(now))
            run.wake(now)
            self._apply(record, event, now, runnable=run.minds_cancel and not held)
        return deepcopy(record.task)

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        self._t.session += 1
        session = Session(f"s{self._t.session}", self._clock() + lease_ms, copies.json_object(info))
        self._t.sessions[session.id] = session
        return deepcopy(session)

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        session = self._t.sessions.get(session_id)
        if session is None:
            raise LeaseLost
        self._t.sessions[session_id] = replace(session, expires_at=self._clock() + lease_ms)
        tasks = (record.task for record, run in self._t.runs() if run.session == session_id)
        return Renewal(frozenset(task.seq for task in tasks if task.cancel_requested))

    async def close_session(self, session_id: str) -> None:
        now = self._clock()
        self._t.sessions.pop(session_id, None)
        for record, run in self._t.runs():
            if run.session == session_id:
                self._give_back(record, run, now)

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        now = self._clock()
        return tuple((deepcopy(session), session.expires_at <= now) for session in self._t.sessions.values())

    async def take_over(self, gone: Collection[str] = (), *, keep: Collection[str] = ()) -> int:
        now = self._clock()
        dead = {s.id for s in self._t.sessions.values() if s.id not in keep and (s.expires_at <= now or s.id in gone)}
        for session_id in dead:
            del self._t.sessions[session_id]
        lost = [(record, run) for record, run in self._t.runs() if run.session in dead]
        for record, run in lost:
            self._bury(record, run, timeline.died, now)
        return len(lost)

    async def claim(self, session_id: str, demands: Sequence[Demand], limit: int) -> tuple[Claim, ...]:
        now = self._clock()
        session = self._t.sessions.get(session_id)
        if session is None or session.expires_at <= now:
            raise LeaseLost
        self._t.promote_timers(now, PROMOTED)
        claims: list[Claim] = []
        for demand in demands:
            share = max(0, min(demand.limit, limit - len(claims)))
            for record, run in islice(in_turn(self._t.ready(demand.handler), demand.after), share):
                # The fence is drawn when there is something to claim; all claims of one call share it.
                if not claims:
                    self._t.fence += 1
                claims.append(self._claimed(record, run, session_id, now))
        return tuple(claims)

    async def journal(self, claim: Claim) -> Journal:
        record = self._t.records.get(claim.seq)
        return Journal() if record is None else deepcopy(record.journal)

    async def record(
        self, claim: Claim, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None
    ) -> Entry:
        entry = copies.entry(entry)
        plain(note or "")
        record, run = self._held(claim)
        now = self._clock()
        entry = waiting.timed(entry, wake_in_ms, now)
        record.journal = replace(record.journal, entries={**record.journal.entries, entry.place: entry})
        run.minds_cancel = run.minds_cancel or entry.minds_cancel
        if note is not None:
            record.events.append(Event(now, EventKind.STEP_RETRY, note))
        return deepcopy(entry)

    async def report(self, claim: Claim, message: str) -> None:
        plain(message)
        record, _ = self._held(claim)
        self._apply(record, lifecycle.Report(message), self._clock())

    async def park(self, claim: Claim, waits: Waits) -> Task:
        waits = copies.waits(waits)
        record, run = self._held(claim)
        now = self._clock()
        before = record.journal
        questions = {**before.questions, **inputs.admit(before.questions, waits.asked, now)}
        questions |= inputs.turned(questions, waits.asked)
        journal = Journal({**before.entries, **waiting.begun(waits, now)}, questions)
        due_at = waiting.due_at(waits, journal, now, cancelled=record.task.cancel_requested)
        ready = due_at is not None and not policy.is_timer(due_at)
        event = lifecycle.on_park(record.task, inputs.awaited(questions), ready=ready, minded=waits.minds_cancel)
        if isinstance(event, lifecycle.Finish):
            return deepcopy(self._apply(record, event, now))
        record.journal = journal
        run.put_aside(due_at)
        run.minds_cancel = waits.minds_cancel
        if event is not None:
            self._apply(record, event, now)
        elif ready:
            self._announce(record.task, runnable=True)
        return deepcopy(record.task)

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        record, _ = self._held(claim)
        return deepcopy(self._apply(record, lifecycle.Finish(copies.outcome(outcome)), self._clock()))

    async def release(self, claim: Claim) -> None:
        record, run = self._held(claim)
        self._give_back(record, run, self._clock())

    async def retry(self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = ()) -> Task:
        plain(note)
        record, run = self._held(claim)
        minded = run.minds_cancel and not claim.task.cancel_requested
        now, end = self._clock(), lifecycle.on_free(record.task, minded=minded)
        if end is not None:
            return deepcopy(self._apply(record, end, now))
        record.events.append(Event(now, EventKind.RETRY, note))
        record.undo(failed)
        run.failures += 1
        run.put_aside(now + delay_ms)
        if record.task.cancel_requested and run.wake(now):
            self._announce(record.task, runnable=True)
        return deepcopy(record.task)

    # -- what other systems say ----------------------------------------------------------------------------------------

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        value = copies.json(value)
        record, entry = self._external(task_id, place)
        now, after = self._clock(), settled(entry, token, state, value)
        if after is not None and record.run is None:
            raise AlreadySettled
        if after is not None:
            record.journal = replace(record.journal, entries={**record.journal.entries, place: after})
            record.events.append(timeline.settled(now, after))
            if record.run is not None and record.run.wake(now):
                self._announce(record.task, runnable=True)
        return deepcopy(record.task)

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        plain(message)
        record, entry = self._external(task_id, place)
        # What a settlement would come to says all there is to know: whether the token is right, and whether it is over.
        if settled(entry, token, EntryState.DONE, None) is None or record.task.status.terminal:
            raise AlreadySettled
        event = lifecycle.on_tell(record.task, message)
        if event is not None:
            self._apply(record, event, self._clock())
        return deepcopy(record.task)

    # -- what operators ask --------------------------------------------------------------------------------------------

    async def inspect(self, task_id: str) -> Inspection:
        record = self._t.ids.get(task_id)
        if record is None:
            raise TaskNotFound
        run = None if record.run is None else record.run.state()
        return Inspection(deepcopy(record.task), run, deepcopy(record.journal), tuple(record.events))

    async def loads(self) -> tuple[Load, ...]:
        now = self._clock()
        by_handler: dict[str, list[Run]] = {}
        for _, run in self._t.runs():
            by_handler.setdefault(run.handler, []).append(run)
        return tuple(load(handler, runs, now) for handler, runs in sorted(by_handler.items()))

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        now = self._clock()
        ready = (record.task.owner.tenant for record, run in self._t.runs() if run.is_ready(now))
        return Counter(islice((each for each in ready if tenant in (None, each)), most))

    # -- housekeeping --------------------------------------------------------------------------------------------------

    async def expire(self, limit: int) -> int:
        now = self._clock()
        overdue = [record for record, _ in self._t.runs() if _expired(record.task, now)]
        overdue = sorted(overdue, key=_expiry)[:limit]
        for record in overdue:
            self._apply(record, lifecycle.Expire(), now)
        return len(overdue)

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        now = self._clock()
        late = self._t.past_deadline(now - late_ms)[:limit]
        for record, run in late:
            self._bury(record, run, timeline.overran, now)
        return len(late)

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        now = self._clock()
        for task_id in [task_id for task_id, (_, until) in self._t.tombstones.items() if until <= now][:limit]:
            del self._t.tombstones[task_id]
        records = self._t.records.values()
        over = [record for record in records if record.run is None and _expired(record.task, now - linger_ms)]
        over = sorted(over, key=_expiry)[:limit]
        for record in over:
            self._t.forget(record)
            self._t.tombstones[record.task.id] = (record.task.owner, now + tombstone_ms)
        return len(over)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _created(self, new: NewTask) -> Record:
        now = self._clock()
        self._t.seq += 1
        task = lifecycle.created(self._t.seq, new, now)
        run = Run(task.operation.handler, policy.due_at_once(now), new.max_attempts, new.timeout_ms)
        record = Record(task, new.key, new.digest, run)
        self._t.remember(record)
        self._announce(task, runnable=True)
        return record

    def _recalled(self, owner: Owner, key: str, digest: str | None) -> Record | None:
        record = self._t.keys.get((owner, key))
        if record is not None and record.digest != digest:
            raise IdempotencyKeyReused
        return record

    def _owned(self, owner: Owner, task_id: str) -> Record:
        record = self._t.ids.get(task_id)
        if record is not None and record.task.owner == owner:
            return record
        buried_owner, until = self._t.tombstones.get(task_id, (None, 0))
        if buried_owner == owner and until > self._clock():
            raise TaskExpired
        raise TaskNotFound

    def _external(self, task_id: str, place: str) -> tuple[Record, Entry]:
        record = self._t.ids.get(task_id)
        if record is None or place not in record.journal.entries:
            raise TaskNotFound
        return record, record.journal.entries[place]

    def _held(self, claim: Claim) -> tuple[Record, Run]:
        record = self._t.records.get(claim.seq)
        run = None if record is None else record.run
        if record is None or run is None or run.session is None or run.fence != claim.fence:
            raise LeaseLost
        return record, run

    def _claimed(self, record: Record, run: Run, session_id: str, now: int) -> Claim:
        self._give_up_questions(record, now)
        run.session, run.fence = session_id, self._t.fence
        run.deadline_at = None if run.timeout_ms is None else now + run.timeout_ms
        return Claim(deepcopy(record.task), run.fence, now, run.failures, run.deaths, run.deadline_at)

    def _give_up_questions(self, record: Record, now: int) -> None:
        """A worker goes on with the task, and waits no longer for what has had its time."""
        given_up = inputs.unanswered(record.journal.questions, now)
        record.journal = replace(record.journal, questions={**record.journal.questions, **given_up})
        record.events.extend(timeline.unanswered(now, question) for question in given_up.values())
        event = lifecycle.on_claim(record.task)
        if event is not None:
            self._apply(record, event, now)

    def _bury(self, record: Record, run: Run, event: Callable[[int, int, int], Event], now: int) -> None:
        """The worker that held it is dead, or as good as dead."""
        run.deaths += 1
        record.events.append(event(now, run.deaths, run.max_attempts))
        end = lifecycle.on_death(record.task, run.deaths, run.max_attempts, minded=run.minds_cancel)
        self._free(record, run, end, now)

    def _give_back(self, record: Record, run: Run, now: int) -> None:
        self._free(record, run, lifecycle.on_free(record.task, minded=run.minds_cancel), now)

    def _free(self, record: Record, run: Run, end: lifecycle.Finish | None, now: int) -> None:
        """Nobody runs it now: its end, or else somebody may run it at once."""
        if end is not None:
            self._apply(record, end, now)
            return
        run.put_aside(policy.due_at_once(now))
        self._announce(record.task, runnable=True)

    def _apply(self, record: Record, event: lifecycle.Event, now: int, *, runnable: bool = False) -> Task:
        record.task = lifecycle.apply(record.task, event, now)
        if record.task.status.terminal:
            record.run = None
        self._announce(record.task, runnable=runnable, cancel=isinstance(event, lifecycle.RequestCancel))
        return record.task

    def _announce(self, task: Task, *, runnable: bool = False, cancel: bool = False) -> None:
        for listener in tuple(self._listeners):
            listener(Change(task.id, task.seq, task.status, runnable, cancel))


def _expiry(record: Record) -> tuple[int, int]:
    return (policy.expires_at(record.task.created_at, record.task.ttl_ms) or 0, record.task.seq)


def _expired(task: Task, now: int) -> bool:
    expires_at = policy.expires_at(task.created_at, task.ttl_ms)
    return expires_at is not None and expires_at <= now
