"""`MemoryStore`: the verbs over the tables. `clock` is read once a verb, so that a verb happens at one instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice

from perdure.domain import inputs, lifecycle, operating, policy, timeline
from perdure.domain.errors import IdempotencyKeyReused, LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Journal, Waits
from perdure.domain.model import (
    JSON,
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
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which
from perdure.domain.timeline import Inspection, Load
from perdure.store import verbs
from perdure.store.base import PROMOTED, Listener, Unsubscribe
from perdure.store.clock import Clock, WallClock
from perdure.store.codec import copied, plain
from perdure.store.records import Run

from . import copies
from .tables import Kept, Tables, count, in_turn, listed, load

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
        record = self._owned(owner, task_id)
        verbs.answer(record, responses, self._clock())
        return self._settled(record)

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        record = self._owned(owner, task_id)
        verbs.request_cancel(record, self._clock())
        return self._settled(record)

    async def changed(self, known: Mapping[str, int], owner: Owner | None = None) -> Mapping[str, Task | None]:
        found = {task_id: self._t.ids.get(task_id) for task_id in known}
        tasks = {
            task_id: _standing(record.task) if record and owner in (None, record.task.owner) else None
            for task_id, record in found.items()
        }
        return {id_: task for id_, task in tasks.items() if task is None or task.version != known[id_]}

    def commits_by_others(self) -> int | None:
        return None

    async def page(self, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
        tasks = [record.task for record in self._t.records.values() if record.task.owner == owner]
        tasks = [task for task in tasks if after is None or task.seq < after]
        newest = sorted(tasks, key=lambda task: task.seq, reverse=True)[:limit]
        return tuple(_standing(task) for task in newest)

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
        held = [(record.task, run.fence) for record, run in self._t.runs() if run.session == session_id]
        cancelled = frozenset(task.seq for task, _ in held if task.cancel_requested)
        return Renewal(cancelled, frozenset((task.seq, fence) for task, fence in held))

    async def give_back(self, session_id: str, held: frozenset[tuple[int, int]]) -> int:
        now = self._clock()
        runs = [(record, run) for record, run in self._t.runs() if run.session == session_id]
        still = [(record, run) for record, run in runs if (record.task.seq, run.fence) in held]
        for record, run in still:
            verbs.give_back(record, run, now)
            self._settle(record)
        return len(still)

    async def close_session(self, session_id: str) -> None:
        now = self._clock()
        self._t.sessions.pop(session_id, None)
        for record, run in self._t.runs():
            if run.session == session_id:
                verbs.give_back(record, run, now)
                self._settle(record)

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
            verbs.bury(record, run, timeline.died, now)
            self._settle(record)
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
                claims.append(deepcopy(verbs.claim(record, run, record.operation, session_id, self._t.fence, now)))
                self._settle(record)
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
        timed = verbs.record(record, run, entry, wake_in_ms, note, self._clock())
        self._settle(record)
        return deepcopy(timed)

    async def report(self, claim: Claim, message: str) -> None:
        plain(message)
        record, _ = self._held(claim)
        verbs.report(record, message, self._clock())
        self._settle(record)

    async def park(self, claim: Claim, waits: Waits) -> Task:
        waits = copies.waits(waits)
        record, run = self._held(claim)
        verbs.park(record, run, waits, self._clock())
        return self._settled(record)

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        record, _ = self._held(claim)
        verbs.finish(record, copies.outcome(outcome), self._clock())
        return self._settled(record)

    async def release(self, claim: Claim) -> None:
        record, run = self._held(claim)
        verbs.give_back(record, run, self._clock())
        self._settle(record)

    async def retry(
        self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = (), counted: bool = True
    ) -> Task:
        plain(note)
        record, run = self._held(claim)
        verbs.retry(record, run, claim, delay_ms, note, failed, self._clock(), counted=counted)
        return self._settled(record)

    # -- what other systems say ----------------------------------------------------------------------------------------

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        value = copied(value)
        record = self._by_id(task_id)
        verbs.settle(record, place, token, state, value, self._clock())
        return self._settled(record)

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        plain(message)
        record = self._by_id(task_id)
        verbs.tell(record, place, token, message, self._clock())
        return self._settled(record)

    # -- what operators ask --------------------------------------------------------------------------------------------

    async def inspect(self, task_id: str) -> Inspection:
        record = self._by_id(task_id)
        run = None if record.run is None else record.run.state()
        task, operation, journal = deepcopy((record.task, record.operation, record.journal))
        return Inspection(task, operation, run, journal, tuple(record.timeline))

    async def browse(self, which: Which, after: int | None, limit: int) -> Listing:
        now = self._clock()
        looked_at, end = self._t.newest(after, limit, unfinished=which.unfinished)
        meant = [record for record in looked_at if which.means(record.task, record.operation, now)]
        return Listing(tuple(listed(record) for record in meant), end)

    async def find_by_prefix(self, prefix: str, most: int) -> tuple[Listed, ...]:
        ids = sorted(task_id for task_id in self._t.ids if task_id.startswith(prefix))
        return tuple(listed(self._t.ids[task_id]) for task_id in ids[:most])

    async def tally(self, after: int | None, limit: int) -> Tally:
        looked_at, end = self._t.newest(after, limit)
        return Tally(count(looked_at), end)

    async def hasten(self, task_id: str) -> Hastened:
        record, now = self._by_id(task_id), self._clock()
        woken, promised = operating.woken(record.journal, now), operating.deadlines(record.journal)
        done = verbs.hasten(record, now, naps=bool(woken), promised=promised)
        if done is Hastened.DUE:
            record.write(*woken)
        self._settle(record)
        return done

    async def discard(self, task_ids: Collection[str], *, tombstone_ms: int) -> int:
        named = [self._t.ids[task_id] for task_id in set(task_ids) if task_id in self._t.ids]
        return self._bury([record for record in named if record.run is None], self._clock() + tombstone_ms)

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

    async def unfinished(self, owner: Owner, most: int) -> int:
        return min(most, sum(record.task.owner == owner for record, _ in self._t.runs()))

    # -- housekeeping --------------------------------------------------------------------------------------------------

    async def expire(self, limit: int) -> int:
        now = self._clock()
        overdue = [record for record, _ in self._t.runs() if _expired(record.task, now)]
        overdue = sorted(overdue, key=_expiry)[:limit]
        for record in overdue:
            verbs.expire(record, now)
            self._settle(record)
        return len(overdue)

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        now = self._clock()
        late = self._t.past_deadline(now - late_ms)[:limit]
        for record, run in late:
            verbs.bury(record, run, timeline.overran, now)
            self._settle(record)
        return len(late)

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        now = self._clock()
        for task_id in [task_id for task_id, (_, until) in self._t.tombstones.items() if until <= now][:limit]:
            del self._t.tombstones[task_id]
        records = self._t.records.values()
        over = [record for record in records if record.run is None and _expired(record.task, now - linger_ms)]
        return self._bury(sorted(over, key=_expiry)[:limit], now + tombstone_ms)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _created(self, new: NewTask) -> Kept:
        now = self._clock()
        self._t.seq += 1
        task = lifecycle.created(self._t.seq, new, now)
        run = Run(new.operation.handler, policy.due_at_once(now), new.max_attempts, new.timeout_ms)
        record = Kept(task, run, operation=new.operation, key=new.key, digest=new.digest)
        self._t.remember(record)
        verbs.begin(record)
        self._settle(record)
        return record

    def _recalled(self, owner: Owner, key: str, digest: str | None) -> Kept | None:
        record = self._t.keys.get((owner, key))
        if record is not None and record.digest != digest:
            raise IdempotencyKeyReused
        return record

    def _owned(self, owner: Owner, task_id: str) -> Kept:
        record = self._t.ids.get(task_id)
        if record is not None and record.task.owner == owner:
            return record
        buried_owner, until = self._t.tombstones.get(task_id, (None, 0))
        if buried_owner == owner and until > self._clock():
            raise TaskExpired
        raise TaskNotFound

    def _bury(self, over: Sequence[Kept], until: int) -> int:
        for record in over:
            self._t.forget(record)
            self._t.tombstones[record.task.id] = (record.task.owner, until)
        return len(over)

    def _by_id(self, task_id: str) -> Kept:
        record = self._t.ids.get(task_id)
        if record is None:
            raise TaskNotFound
        return record

    def _held(self, claim: Claim) -> tuple[Kept, Run]:
        record = self._t.records.get(claim.seq)
        run = verbs.held(record, claim)
        return self._t.records[claim.seq], run

    def _settled(self, record: Kept) -> Task:
        """The task as it is after a verb."""
        self._settle(record)
        return deepcopy(record.task)

    def _settle(self, record: Kept) -> None:
        """Take away what a verb has left to be told."""
        record.timeline.extend(record.events)
        changes = record.changes[:]
        record.events.clear()
        record.changes.clear()
        for change in changes:
            for listener in tuple(self._listeners):
                listener(change)


def _expiry(record: Kept) -> tuple[int, int]:
    return (policy.expires_at(record.task.created_at, record.task.ttl_ms) or 0, record.task.seq)


def _expired(task: Task, now: int) -> bool:
    expires_at = policy.expires_at(task.created_at, task.ttl_ms)
    return expires_at is not None and expires_at <= now


def _standing(task: Task) -> Task:
    """How it stands, without what may be large."""
    return replace(task, result=None, error=None, inputs=())
