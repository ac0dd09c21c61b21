"""One task as the verbs see it: a record, with its run and all that belongs to it.

`verbs` works on records and on nothing else. The memory model keeps all of them; PostgreSQL's store loads those that a
batch of verbs is about, and writes back what has changed. What stands in a record is replaced and never changed in
place, so that a copy of it is cheap, and the difference between the two is what a verb did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from perdure.domain import policy
from perdure.domain.journal import Entry, Journal, undone
from perdure.domain.model import Change, InputRequest, Task
from perdure.domain.timeline import Event, RunState

__all__ = ["Record", "Run"]


@dataclass(slots=True)
class Run:
    """What is left to do of an unfinished task, and who does it. Times are milliseconds, as `policy` has them."""

    handler: str
    due_at: int | None
    max_attempts: int
    timeout_ms: int | None
    session: str | None = None
    fence: int = 0
    failures: int = 0
    deaths: int = 0
    deadline_at: int | None = None
    minds_cancel: bool = False

    def is_ready(self, now: int) -> bool:
        """Whether it could be claimed."""
        return self.session is None and self.due_at is not None and self.due_at <= now

    def ready_since(self) -> int:
        """When it came to be due, of a run that is."""
        due_at = self.due_at or 0
        return due_at if policy.is_timer(due_at) else due_at - policy.due_at_once(0)

    def is_timer(self) -> bool:
        """Whether it is due at an instant."""
        return self.due_at is not None and policy.is_timer(self.due_at)

    def wake(self, now: int) -> bool:
        """Make it due at once. Whether that is news: a run that is held, or due at once already, stays as it is."""
        if self.session is not None or (self.due_at is not None and not self.is_timer()):
            return False
        self.due_at = policy.due_at_once(now)
        return True

    def put_aside(self, due_at: int | None) -> None:
        """Nobody holds it any more, and it is due again at `due_at`."""
        self.session, self.deadline_at, self.due_at = None, None, due_at

    def copy(self) -> Run:
        """One to change. Spelled out, since each verb begins with it and `replace` takes several times as long."""
        return Run(
            self.handler,
            self.due_at,
            self.max_attempts,
            self.timeout_ms,
            self.session,
            self.fence,
            self.failures,
            self.deaths,
            self.deadline_at,
            self.minds_cancel,
        )

    def state(self) -> RunState:
        """What operators see of it."""
        return RunState(
            self.handler, self.due_at, self.session, self.fence, self.failures, self.deaths, self.deadline_at
        )


@dataclass(slots=True)
class Record:
    """A task and all that belongs to it. `run` is None once it is over.

    Its operation is not there: no verb looks at it, and `verbs.claim`, which passes it on, is given it.

    `events` are new ones of the timeline, and `changes` what is to be announced; whoever runs a verb takes both away.
    """

    task: Task
    run: Run | None
    journal: Journal = field(default_factory=Journal)
    events: list[Event] = field(default_factory=list[Event])
    changes: list[Change] = field(default_factory=list[Change])

    def copy(self) -> Record:
        """One to change, with nothing to announce yet."""
        return Record(self.task, None if self.run is None else self.run.copy(), self.journal)

    def write(self, *entries: Entry) -> None:
        """Put entries into the journal, each in place of what stands there."""
        written = {entry.place: entry for entry in entries}
        self.journal = replace(self.journal, entries={**self.journal.entries, **written})

    def turn(self, questions: dict[str, InputRequest]) -> None:
        """Questions are as they are in `questions` from now on."""
        if questions:
            self.journal = replace(self.journal, questions={**self.journal.questions, **questions})

    def undo(self, failed: Iterable[str]) -> None:
        """Forget the steps at `failed` and what came after each; what was answered stays answered."""
        entries, questions = self.journal.entries, self.journal.questions
        places = {question.place for question in questions.values() if question.place is not None}
        gone = {place for each in failed for place in undone(places | set(entries), each)}
        self.journal = Journal(
            {place: entry for place, entry in entries.items() if place not in gone},
            {key: replace(one, place=None) if one.place in gone else one for key, one in questions.items()},
        )

    def announce(self, *, runnable: bool = False, cancel: bool = False) -> None:
        """Tell of the task as it is now."""
        task = self.task
        self.changes.append(Change(task.id, task.seq, task.status, runnable, cancel))
