"""The reference model: every verb in its plainest form, over dictionaries.

The oracle of the property tests, and a store for unit tests. Nothing in it is durable and one process is all it serves,
so it is not for production. What a reader should look for here is the meaning of a verb; the backends may only be
faster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import assert_never

from perdure.domain import inputs, lifecycle, policy
from perdure.domain.errors import LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.inputs import Journal
from perdure.domain.model import (
    JSON,
    Cancelled,
    Change,
    Claim,
    Completed,
    Failed,
    InputRequest,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Renewal,
    Session,
    Status,
    Task,
)

from .base import Listener, Unsubscribe
from .clock import Clock, WallClock
from .codec import decode, decode_object, encode, plain

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Run:
    handler: str
    max_attempts: int
    due_at: int | None
    session: str | None = None
    fence: int = 0
    attempt: int = 1


@dataclass(slots=True)
class _Tables:
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    ids: dict[str, int] = field(default_factory=dict[str, int])
    runs: dict[int, _Run] = field(default_factory=dict[int, _Run])
    journals: dict[int, dict[str, InputRequest]] = field(default_factory=dict[int, dict[str, InputRequest]])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    tombstones: dict[str, tuple[Owner, int]] = field(default_factory=dict[str, tuple[Owner, int]])
    seq: int = 0
    fence: int = 0
    session: int = 0


class MemoryStore:
    """A `Store` in this process's memory. `clock` is the store's one source of time.

    Values are copied on their way in by encoding, as the backends do it, and on their way out, so that nobody holds a
    part of the tables.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or WallClock()
        self._t = _Tables()
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
        new = replace(new, operation=replace(new.operation, params=decode_object(encode(new.operation.params))))
        if new.id in self._t.ids:
            return deepcopy(self._owned(new.owner, new.id))
        self._t.seq += 1
        task = lifecycle.created(self._t.seq, new, self._clock())
        self._t.tasks[task.seq] = task
        self._t.ids[task.id] = task.seq
        self._t.runs[task.seq] = _Run(
            task.operation.handler, new.max_attempts, due_at=policy.due_at_once(task.created_at)
        )
        self._t.journals[task.seq] = {}
        self._announce(task, runnable=True)
        return deepcopy(task)

    async def get(self, owner: Owner, task_id: str) -> Task:
        return deepcopy(self._owned(owner, task_id))

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        task = self._owned(owner, task_id)
        journal = self._t.journals[task.seq]
        accepted = inputs.accept(journal, responses)
        if task.status is not Status.INPUT_REQUIRED or not accepted:
            return deepcopy(task)
        # What is ignored is ignored whatever its value is (contract 4), also one that can't be stored.
        journal |= {key: replace(entry, response=decode(encode(entry.response))) for key, entry in accepted.items()}
        still = inputs.outstanding(journal)
        if not still:
            self._t.runs[task.seq].due_at = policy.due_at_once(self._clock())
        return deepcopy(self._apply(task, lifecycle.on_answers(still)))

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        task = self._owned(owner, task_id)
        run = self._t.runs.get(task.seq)
        event = lifecycle.on_cancel(task, held=run is not None and run.session is not None)
        return deepcopy(task if event is None else self._apply(task, event))

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        self._t.session += 1
        session = Session(f"s{self._t.session}", self._clock() + lease_ms, decode_object(encode(info)))
        self._t.sessions[session.id] = session
        return deepcopy(session)

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        session = self._t.sessions.get(session_id)
        if session is None:
            raise LeaseLost
        self._t.sessions[session_id] = replace(session, expires_at=self._clock() + lease_ms)
        held = {seq for seq, run in self._t.runs.items() if run.session == session_id}
        return Renewal(frozenset(seq for seq in held if self._t.tasks[seq].cancel_requested))

    async def close_session(self, session_id: str) -> None:
        self._t.sessions.pop(session_id, None)
        for seq, run in tuple(self._t.runs.items()):
            if run.session == session_id:
                self._free(seq, run, lifecycle.on_free(self._t.tasks[seq]))

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        now = self._clock()
        return tuple((deepcopy(session), session.expires_at <= now) for session in self._t.sessions.values())

    async def take_over(self, gone: Collection[str] = (), *, keep: str = "") -> int:
        now = self._clock()
        dead = {s.id for s in self._t.sessions.values() if s.id != keep and (s.expires_at <= now or s.id in gone)}
        for session_id in dead:
            del self._t.sessions[session_id]
        held = [(seq, run) for seq, run in self._t.runs.items() if run.session in dead]
        for seq, run in held:
            end = lifecycle.on_death(self._t.tasks[seq], run.attempt, run.max_attempts)
            run.attempt += 1
            self._free(seq, run, end)
        return len(held)

    async def claim(self, session_id: str, handlers: Sequence[str], limit: int) -> tuple[Claim, ...]:
        now = self._clock()
        session = self._t.sessions.get(session_id)
        if session is None or session.expires_at <= now:
            raise LeaseLost
        due = [seq for handler in dict.fromkeys(handlers) for seq in self._due(handler, now)][:limit]
        if due:
            self._t.fence += 1
        return tuple(self._claimed(seq, session_id) for seq in due)

    async def journal(self, claim: Claim) -> Journal:
        return deepcopy(self._t.journals.get(claim.seq, {}))

    async def report(self, claim: Claim, message: str) -> None:
        plain(message)
        self._held(claim)
        self._apply(self._t.tasks[claim.seq], lifecycle.Report(message))

    async def park(self, claim: Claim, asked: Mapping[str, JSONObject]) -> Task:
        copies = {plain(key): decode_object(encode(request)) for key, request in asked.items()}
        run, task = self._held(claim), self._t.tasks[claim.seq]
        journal = self._t.journals[claim.seq]
        entered = inputs.admit(journal, copies, self._clock())
        event = lifecycle.on_park(task, inputs.outstanding(journal | entered))
        if isinstance(event, lifecycle.Finish):
            return deepcopy(self._apply(task, event))
        journal.update(entered)
        if event is None:
            self._free(claim.seq, run, None)
            return deepcopy(task)
        run.session, run.due_at = None, None
        return deepcopy(self._apply(task, event))

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        self._held(claim)
        return deepcopy(self._apply(self._t.tasks[claim.seq], lifecycle.Finish(_copied(outcome))))

    async def release(self, claim: Claim) -> None:
        self._free(claim.seq, self._held(claim), lifecycle.on_free(self._t.tasks[claim.seq]))

    # -- housekeeping --------------------------------------------------------------------------------------------------

    async def expire(self, limit: int) -> int:
        now = self._clock()
        overdue = [task for task in self._t.tasks.values() if not task.status.terminal and _expired(task, now)]
        overdue = sorted(overdue, key=_expiry)[:limit]
        for task in overdue:
            self._apply(task, lifecycle.Expire())
        return len(overdue)

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        now = self._clock()
        for task_id in [task_id for task_id, (_, until) in self._t.tombstones.items() if until <= now][:limit]:
            del self._t.tombstones[task_id]
        over = [task for task in self._t.tasks.values() if task.status.terminal and _expired(task, now - linger_ms)]
        over = sorted(over, key=_expiry)[:limit]
        for task in over:
            del self._t.tasks[task.seq], self._t.ids[task.id], self._t.journals[task.seq]
            self._t.tombstones[task.id] = (task.owner, now + tombstone_ms)
        return len(over)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _owned(self, owner: Owner, task_id: str) -> Task:
        task = self._t.tasks.get(self._t.ids.get(task_id, 0))
        if task is not None and task.owner == owner:
            return task
        buried_owner, until = self._t.tombstones.get(task_id, (None, 0))
        if buried_owner == owner and until > self._clock():
            raise TaskExpired
        raise TaskNotFound

    def _held(self, claim: Claim) -> _Run:
        run = self._t.runs.get(claim.seq)
        if run is None or run.session is None or run.fence != claim.fence:
            raise LeaseLost
        return run

    def _due(self, handler: str, now: int) -> list[int]:
        """The runs that a worker with this handler may take, oldest first."""
        return [
            seq
            for _, seq in sorted(
                (run.due_at, seq)
                for seq, run in self._t.runs.items()
                if run.handler == handler and run.session is None and run.due_at is not None and run.due_at <= now
            )
        ]

    def _claimed(self, seq: int, session_id: str) -> Claim:
        run = self._t.runs[seq]
        run.session, run.fence = session_id, self._t.fence
        return Claim(deepcopy(self._t.tasks[seq]), run.fence, run.attempt)

    def _free(self, seq: int, run: _Run, end: lifecycle.Finish | None) -> None:
        """Nobody runs it now: its end, or else somebody may run it at once."""
        if end is not None:
            self._apply(self._t.tasks[seq], end)
            return
        run.session, run.due_at = None, policy.due_at_once(self._clock())
        self._announce(self._t.tasks[seq], runnable=True)

    def _apply(self, task: Task, event: lifecycle.Event) -> Task:
        changed = lifecycle.apply(task, event, self._clock())
        self._t.tasks[task.seq] = changed
        if changed.status.terminal:
            del self._t.runs[task.seq]
        self._announce(
            changed,
            runnable=isinstance(event, lifecycle.Resume),
            cancel=isinstance(event, lifecycle.RequestCancel),
        )
        return changed

    def _announce(self, task: Task, *, runnable: bool = False, cancel: bool = False) -> None:
        for listener in tuple(self._listeners):
            listener(Change(task.id, task.seq, task.status, runnable, cancel))


def _copied(outcome: Outcome) -> Outcome:
    match outcome:
        case Completed(result):
            return Completed(decode_object(encode(result)))
        case Failed(error, message):
            error = replace(error, message=plain(error.message), data=decode(encode(error.data)))
            return Failed(error, None if message is None else plain(message))
        case Cancelled():
            return outcome
        case _ as never:
            assert_never(never)


def _expiry(task: Task) -> tuple[int, int]:
    return (policy.expires_at(task.created_at, task.ttl_ms) or 0, task.seq)


def _expired(task: Task, now: int) -> bool:
    expires_at = policy.expires_at(task.created_at, task.ttl_ms)
    return expires_at is not None and expires_at <= now
