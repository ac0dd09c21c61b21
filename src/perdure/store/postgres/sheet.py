"""A sheet: the records that a batch of verbs is about, locked, and what has to be written once all have been run.

One transaction serves many callers: it locks and loads their tasks together, each verb runs on its record (`verbs`),
and what differs afterwards is written back together. So a batch is a handful of round trips, whatever its size.

Each verb works on a copy, which takes the record's place once the verb is through and what it stored has been encoded;
so one that refuses leaves nothing behind, and two that concern the same task see each other's work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import asyncpg

from perdure.domain import inputs, policy
from perdure.domain.errors import IllegalTransition, PerdureError, Unreadable
from perdure.domain.journal import Entry
from perdure.domain.model import Claim, InputRequest, InputState, Owner, Status, Task
from perdure.domain.timeline import KEPT, Event
from perdure.store import rows
from perdure.store.base import PUT_OFF
from perdure.store.codec import plain
from perdure.store.records import Record, Run
from perdure.store.sealing import Codec

from . import finding, sql
from .access import Access
from .finding import Sought
from .jobs import Done
from .url import Connection

__all__ = [
    "EVERYTHING",
    "Act",
    "Bearer",
    "Held",
    "Named",
    "Need",
    "Sheet",
    "Verb",
    "Writes",
    "never",
    "unfinished",
    "while_open",
]

Act = Callable[[Record | None, int], Any]


Need = Callable[[Task], bool]
"""Whether the questions of a task that stands so are looked at."""


def never(task: Task) -> bool:
    return False


def while_open(task: Task) -> bool:
    """Of a task that is over nobody looks at them."""
    return not task.status.terminal


def asking(task: Task) -> bool:
    """Where they are part of an answer that shows the task."""
    return task.status is Status.INPUT_REQUIRED


def asking_though_cancelled(task: Task) -> bool:
    """The same once it was asked to stop: whoever asks that first makes that it asks nothing any more."""
    return task.cancel_requested and asking(task)


@dataclass(frozen=True, slots=True)
class Verb:
    """One caller's verb: which task it is about, what of it has to be loaded, and what is done.

    `places`: the entries of the journal that `act` looks at; `EVERYTHING` for all. `questions`: whether it looks at the
    questions, which may be unreadable where the rest is not. `act` is given the record and the time, may raise an error
    of the domain, and its value is what the caller gets.
    """

    act: Act
    places: frozenset[str] = frozenset()
    questions: Need = never


@dataclass(frozen=True, slots=True)
class Held(Verb):
    """A verb on a task that its caller has claimed. The record is None if the task is over."""

    claim: Claim = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Bearer:
    """Somebody who says that external work is theirs: where it is in the journal, and what they bring as its token."""

    place: str
    token: str


@dataclass(frozen=True, slots=True)
class Named(Verb):
    """A verb on the task with that id; the owner's, or the bearer's. The record is None if there is no such task."""

    id: str = field(kw_only=True)
    owner: Owner | None = field(kw_only=True)
    bearer: Bearer | None = field(kw_only=True)


EVERYTHING: Final = frozenset({"*"})
"""No place: places are numbers."""


@dataclass(slots=True)
class Writes:
    """Rows to be written, each table's by its key. `codec`: how values are stored."""

    codec: Codec
    tasks: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    runs: dict[int, Run | None] = field(default_factory=dict[int, Run | None])
    inputs: dict[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict[tuple[int, str], tuple[Any, ...]])
    entries: dict[tuple[int, str], tuple[Any, ...] | None] = field(
        default_factory=dict[tuple[int, str], tuple[Any, ...] | None]
    )
    events: list[tuple[int, Event, str]] = field(default_factory=list[tuple[int, Event, str]])
    """Each with its task, and its detail as it is stored."""

    def note(self, before: Record, after: Record) -> None:
        """Take up what differs.

        Raises:
            NotStorable: something in it can't be stored; nothing was taken up.
        """
        of, codec = after.task, self.codec
        seq, rest = of.seq, Writes(codec)
        if after.task is not before.task:
            rest.tasks[seq] = _task_row(of, codec)
        if after.run != before.run:
            rest.runs[seq] = after.run
        known, changed = before.journal.questions, after.journal.questions
        for position, (key, question) in enumerate(changed.items()):
            if known.get(key) is not question:
                rest.inputs[seq, key] = _input_row(of, position, question, codec)
        written = before.journal.entries
        for place, entry in after.journal.entries.items():
            if written.get(place) is not entry:
                rest.entries[seq, place] = _entry_row(of, entry, codec)
        rest.entries |= {(seq, place): None for place in written.keys() - after.journal.entries.keys()}
        rest.events = [
            (seq, event, codec.encode_note(event.kind, event.detail, of.owner, of.id)) for event in after.events
        ]
        self._add(rest)

    def _add(self, more: Writes) -> None:
        self.tasks |= more.tasks
        self.runs |= more.runs
        self.inputs |= more.inputs
        self.entries |= more.entries
        self.events += more.events

    async def flush(self, connection: Connection) -> None:
        """Write all of it, in one round trip as a rule: what a verb changes is in several tables, or in the journal."""
        runs = [_run_row(seq, run) for seq, run in self.runs.items() if run is not None]
        over = [seq for seq, run in self.runs.items() if run is None]
        entries = [row for row in self.entries.values() if row is not None]
        if runs or over or self.tasks or self.inputs:
            rows_ = (runs, 8), (self.tasks.values(), 10), (self.inputs.values(), 10), (entries, 7)
            runs_, tasks, inputs_, entries_ = (_columns(each, width) for each, width in rows_)
            written = await connection.fetchval(sql.FLUSH, *runs_, over, *tasks, *inputs_, *entries_)
            if written != len(self.tasks):
                raise IllegalTransition("A task whose run is locked is already over")
        elif entries:
            await connection.execute(sql.ENTRY_WRITE, *_columns(entries, 7))
        gone = [key for key, row in self.entries.items() if row is None]
        if gone:
            await connection.execute(sql.ENTRY_UNDO, *_columns(gone, 2))
        if self.events:
            await self._flush_events(connection)

    async def _flush_events(self, connection: Connection) -> None:
        turns: dict[int, int] = {}
        events: list[tuple[Any, ...]] = []
        for seq, event, detail in self.events:
            turns[seq] = turns.get(seq, 0) + 1
            events.append((seq, turns[seq], event.at, event.kind.value, detail))
        await connection.execute(sql.EVENT_WRITE, *_columns(events, 5))
        await connection.execute(sql.EVENT_FORGET, [*turns], KEPT)


@dataclass(slots=True)
class Sheet:
    """Locked records by number, and the time at which they were locked.

    `unread`: the runs that are locked of tasks whose rows can't be read, and which are no records. `unreadable`: those,
    and the tasks of which something else was asked for that can't be read here, each with why. `named`: number and
    owner of each task by its id, whether or not it can be read.
    """

    access: Access
    now: int = 0
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    unread: dict[int, Run] = field(default_factory=dict[int, Run])
    named: dict[str, tuple[int, Owner]] = field(default_factory=dict[str, tuple[int, Owner]])
    unreadable: dict[int, Unreadable] = field(default_factory=dict[int, Unreadable])
    writes: Writes = field(init=False)

    def __post_init__(self) -> None:
        self.writes = Writes(self.access.codec)

    # -- loading -------------------------------------------------------------------------------------------------------

    async def lock(self, seqs: Iterable[int]) -> None:
        """Lock and load unfinished tasks; the others are left out."""
        self._take_up(await self.access.connection.fetch(sql.LOCK, self.access.clock, [*seqs]))

    def _take_up(self, locked: Iterable[Any]) -> None:
        for row in locked:
            self.now, run = row[0], Run(*row[1:11])
            tenant, principal, seq, id_ = row[11:15]
            self.named[id_] = seq, Owner(tenant, principal)
            with self._readable(seq):
                self.records[seq] = Record(rows.task(row[11:], self.access.codec), run)
            if seq in self.unreadable:
                self.unread[seq] = run

    async def lock_named(self, sought: Collection[Sought]) -> None:
        """The same for tasks that are known by their ids, as far as one of those who seek them may have them."""
        self._take_up(await self.access.connection.fetch(sql.LOCK_NAMED, self.access.clock, *finding.columns(sought)))

    async def lock_held(self, claims: Iterable[Claim]) -> None:
        """The same for tasks that the callers know, by their claims, as they were some time ago."""
        known = {claim.seq: claim.task for claim in claims}
        for row in await self.access.connection.fetch(sql.LOCK_HELD, self.access.clock, [*known]):
            self.now, seq = row[0], row[1]
            with self._readable(seq):
                task = rows.refreshed(known[seq], row[12:], self.access.codec)
                self.records[seq] = Record(task, Run(*row[2:12]))

    def take_up_over(self, row: Any) -> None:
        """A task that is over, as `finding.rows_of` found it. Without a lock: it can't change any more."""
        seq: int = row["seq"]
        self.named[row["id"]] = seq, Owner(row["tenant"], row["principal"])
        with self._readable(seq):
            self.records[seq] = Record(finding.with_questions(row, self.access.codec), None)

    async def load_questions(self, seqs: Sequence[int]) -> None:
        for seq, found in finding.grouped(await self.access.connection.fetch(sql.INPUT_ALL, seqs)).items():
            record = self.records[seq]
            with self._readable(seq):
                questions = rows.questions(found, record.task, self.access.codec)
                record.journal = replace(record.journal, questions=questions)
                if record.task.status is Status.INPUT_REQUIRED:
                    record.task = replace(record.task, inputs=inputs.awaited(questions))

    async def load_entries(self, wanted: Sequence[tuple[int, str]], all_of: Sequence[int]) -> None:
        found: list[asyncpg.Record] = []
        if wanted:
            found += await self.access.connection.fetch(sql.ENTRY_AT, *_columns(wanted, 2))
        if all_of:
            found += await self.access.connection.fetch(sql.ENTRY_ALL, all_of)
        for seq, entries in finding.grouped(found).items():
            record = self.records[seq]
            with self._readable(seq):
                read = rows.entries(entries, record.task, self.access.codec)
                record.journal = replace(record.journal, entries={**record.journal.entries, **read})

    async def load_for(self, verbs: Iterable[tuple[int, Verb]]) -> None:
        """What verbs look at besides the tasks and their runs."""
        there = [(seq, verb) for seq, verb in verbs if seq in self.records]
        questions = {seq for seq, verb in there if verb.questions(self.records[seq].task)}
        all_of = {seq for seq, verb in there if verb.places is EVERYTHING}
        wanted = {(seq, place) for seq, verb in there for place in verb.places if seq not in all_of}
        if questions:
            await self.load_questions([*questions])
        if wanted or all_of:
            await self.load_entries([*wanted], [*all_of])

    @contextmanager
    def _readable(self, seq: int) -> Generator[None]:
        """A block that reads what a task has on record. If it can't, that is no other task's concern."""
        try:
            yield
        except Unreadable as error:
            self.unreadable[seq] = error

    # -- running and writing -------------------------------------------------------------------------------------------

    def run(self, seq: int, act: Act) -> Done:
        """Run a verb on a task."""
        if seq in self.unreadable:
            return Done(error=self.unreadable[seq])
        record = self.records.get(seq)
        try:
            if record is None:
                return Done(act(None, self.now))
            draft = record.copy()
            value = act(draft, self.now)
            self.writes.note(record, draft)
        except PerdureError as error:
            return Done(error=error)
        self.records[seq] = draft
        return Done(value, changes=draft.changes)

    def run_of(self, seq: int) -> Run | None:
        """The run of a task that was locked, whether or not the task can be read."""
        record = self.records.get(seq)
        return self.unread.get(seq) if record is None else record.run

    def free(self, seq: int, act: Act) -> Done:
        """Run a verb by which a worker comes to have the run no more. If the task can't be read, it is put off."""
        if seq not in self.unread:
            return self.run(seq, act)
        self.put_off(seq, self.unread[seq])
        return Done()

    def put_off(self, seq: int, run: Run) -> None:
        """Leave a run to whoever can read its task, or to a later time."""
        run.put_aside(self.now + PUT_OFF)
        self.writes.runs[seq] = run

    async def flush(self) -> None:
        """Write what the verbs have changed."""
        await self.writes.flush(self.access.connection)


def unfinished(task: Record | None) -> tuple[Record, Run]:
    """A record that was locked, and its run."""
    assert task is not None and task.run is not None  # noqa: S101, PT018 - only unfinished tasks are locked
    return task, task.run


# -- rows to be written, in the order of the statements' arrays --------------------------------------------------------


def _columns(rows_: Collection[Sequence[Any]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows_, strict=True)] if rows_ else [[]] * width


def _task_row(task: Task, codec: Codec) -> tuple[Any, ...]:
    return (
        task.seq,
        task.status.value,
        rows.stored_message(task, codec),
        task.version,
        task.updated_at,
        task.ttl_ms,
        policy.expires_at(task.created_at, task.ttl_ms),
        task.cancel_requested,
        *rows.stored_end(task, codec),
    )


def _run_row(seq: int, run: Run) -> tuple[Any, ...]:
    return (
        seq, run.due_at, run.session, run.fence, run.failures, run.deaths, run.deadline_at, run.minds_cancel,
    )  # fmt: skip


def _input_row(of: Task, position: int, question: InputRequest, codec: Codec) -> tuple[Any, ...]:
    key, owner, id_ = plain(question.key), of.owner, of.id
    answered = question.state is InputState.ANSWERED
    return (
        of.seq,
        key,
        position,
        codec.encode(question.request, owner, id_, "request", key),
        question.issued_at,
        question.state.value,
        # An answer may be JSON's null, which is not the same as none.
        codec.encode(question.response, owner, id_, "response", key) if answered else None,
        None if question.place is None else plain(question.place),
        question.deadline,
        question.awaited,
    )


def _entry_row(of: Task, entry: Entry, codec: Codec) -> tuple[Any, ...]:
    place, name = plain(entry.place), plain(entry.name)
    value = codec.encode(entry.value, of.owner, of.id, "entry", place)
    return of.seq, place, entry.verb.value, name, entry.state.value, value, entry.wake_at
