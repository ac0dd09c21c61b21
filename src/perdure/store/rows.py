"""Rows of a database to domain values and back: what the backends that speak SQL have in common.

They give the columns the same names and order, write JSON as text, and may have a number where another has a boolean.
Values become text and come back through the store's `Codec`, which has to know whose they are.

A row that no store has written is `Unreadable` where it is read, and nowhere else, so that it concerns nobody but its
task, and a bug of ours is not taken for damage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from perdure.domain import policy
from perdure.domain.errors import Unreadable
from perdure.domain.inputs import Questions
from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.model import (
    Failure,
    InputRequest,
    InputState,
    JSONObject,
    NewTask,
    Operation,
    Owner,
    Session,
    Status,
    Task,
)
from perdure.domain.operating import Count, Listed, Which
from perdure.domain.timeline import Event, EventKind, Load, RunState
from perdure.store.codec import UNREADABLE, decode_object, mended, plain, sound
from perdure.store.sealing import Codec

__all__ = [
    "ID",
    "LISTED",
    "LIVE",
    "OPERATION",
    "OWNED",
    "OWNED_STANDING",
    "STANDING",
    "TASK",
    "Whose",
    "counts",
    "digest",
    "end_of",
    "entries",
    "entry",
    "events",
    "listed",
    "load",
    "named_by",
    "new_values",
    "operation",
    "owned",
    "questions",
    "readable",
    "refreshed",
    "run_state",
    "session",
    "stored_digest",
    "stored_end",
    "stored_message",
    "task",
    "update_values",
]

OWNED: Final = (
    "seq, id, status, message, version, created_at, updated_at, ttl_ms, keep_ms, poll_ms, cancel_requested, result,"
    " error"
)
"""The columns of a task whose owner is known, as `owned` reads them.

Every poll reads them. What was ordered is not among them: a mebibyte of arguments would be read and parsed each time.
"""

OWNED_STANDING: Final = OWNED.replace("result, error", "NULL, NULL")
"""The same of a task that is one of many, and of which nobody asks yet how it ended."""

TASK: Final = f"tenant, principal, {OWNED}"
"""The columns of a task, as `task` reads them."""
ID: Final = 3
"""Which of them is its id, for whoever has a row that can't be read."""

LIVE: Final = "status, message, version, created_at, updated_at, ttl_ms, keep_ms, cancel_requested"
"""The columns in which a task that is unfinished may have changed, as `refreshed` reads them."""

STANDING: Final = f"tenant, principal, {OWNED_STANDING}"
"""The same of a task that is one of many."""

OPERATION: Final = "method, name, params, handler_version, accepts"
"""The columns of its operation, as `operation` reads them."""

LISTED: Final = (
    "seq, id, task.tenant, principal, method, name, handler_version, status, created_at, updated_at, expires_at,"
    " cancel_requested, handler, due_at, session, fence, failures, deaths, deadline_at"
)
"""The columns of a task and its run, if it has one, as `listed` reads them."""

logger = logging.getLogger("perdure.store")

T = TypeVar("T")

_LONGEST: Final = 2**53
"""Milliseconds that no span has (`policy`). Added to an instant such a number may be one that no store takes."""
_ODD: Final = (ValueError, LookupError, TypeError, AttributeError)
"""What reading a row raises that no store has written."""


@dataclass(frozen=True, slots=True)
class Whose:
    """What a task's values are bound to, of a task that is not read itself."""

    owner: Owner
    id: str


# A look-up, where calling the class would cost as much as reading a column; and each poll makes a task from a row.
_STATUSES: Final = {status.value: status for status in Status}


def task(row: Any, codec: Codec) -> Task:
    """The task in a row of `TASK`'s columns, without its questions.

    Raises:
        Unreadable: it was damaged, or holds what can't be opened; so do all that read rows here.
    """
    try:
        owner = Owner(sound(row[0]), sound(row[1]))
    except _ODD as error:
        raise codec.damaged(error, "", "owner") from error
    return owned(owner, row[2:], codec)


def owned(owner: Owner, row: Any, codec: Codec) -> Task:
    """The owner's task in a row of `OWNED`'s columns, without its questions."""
    try:
        return _owned(owner, row, codec)
    except _ODD as error:
        raise codec.damaged(error, str(row[1]), "row") from error


def _owned(owner: Owner, row: Any, codec: Codec) -> Task:
    (
        seq, id_, status, message, version, created_at, updated_at, ttl_ms, keep_ms, poll_ms, cancel_requested, result,
        error,
    ) = row  # fmt: skip
    if not (0 <= (ttl_ms or 0) <= _LONGEST and 0 <= (keep_ms or 0) <= _LONGEST):
        raise ValueError("no store has written such a span")
    # By position, in the order in which `Task` has them: with as many names it would take half as long again.
    return Task(
        seq,
        sound(id_),
        owner,
        _STATUSES[status],
        created_at,
        updated_at,
        version,
        None if message is None else codec.decode_message(message, owner, id_),
        ttl_ms,
        keep_ms,
        poll_ms,
        bool(cancel_requested),
        None if result is None else codec.decode_object(result, owner, id_, "result"),
        None if error is None else _failure(error, owner, id_, codec),
    )


def refreshed(known: Task, row: Any, codec: Codec) -> Task:
    """A task as it is now, of what it was and a row of `LIVE`'s columns."""
    status, message, version, created_at, updated_at, ttl_ms, keep_ms, cancel_requested = row
    try:
        if version == known.version and status in _STATUSES:  # it grows with every change
            return known
        if not (0 <= (ttl_ms or 0) <= _LONGEST and 0 <= (keep_ms or 0) <= _LONGEST):
            raise ValueError("no store has written such a span")
        return replace(
            known,
            status=_STATUSES[status],
            message=None if message is None else codec.decode_message(message, known.owner, known.id),
            version=version,
            created_at=created_at,
            updated_at=updated_at,
            ttl_ms=ttl_ms,
            keep_ms=keep_ms,
            cancel_requested=bool(cancel_requested),
        )
    except _ODD as error:
        raise codec.damaged(error, known.id, "row") from error


def readable(rows: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """What `read` makes of each of many tasks' rows, without those that can't be read: they are said in the log."""
    for row in rows:
        try:
            found = read(row)
        except Unreadable:
            continue  # the codec has said which
        yield found


def operation(row: Any, of: Task, codec: Codec) -> Operation:
    """The operation in a row of `OPERATION`'s columns."""
    try:
        method, name, params, version, accepts = row
        ordered = codec.decode_object(params, of.owner, of.id, "params")
        return Operation(sound(method), sound(name), ordered, sound(version), frozenset(sound(accepts).split()))
    except _ODD as error:
        raise codec.damaged(error, of.id, "operation") from error


def questions(rows: Iterable[Any], of: Task, codec: Codec) -> Questions:
    """A task's questions: key, request, issued_at, state, response, place, deadline, awaited."""
    return {row[0]: _question(row, of, codec) for row in rows}


def _question(row: Any, of: Task, codec: Codec) -> InputRequest:
    try:
        key, request, issued_at, state, response, place, deadline, awaited = row
        return InputRequest(
            sound(key),
            codec.decode_object(request, of.owner, of.id, "request", key),
            issued_at,
            InputState(state),
            None if response is None else codec.decode(response, of.owner, of.id, "response", key),
            None if place is None else sound(place),
            deadline,
            bool(awaited),
        )
    except _ODD as error:
        raise codec.damaged(error, of.id, "question") from error


def entries(rows: Iterable[Any], of: Task, codec: Codec) -> dict[str, Entry]:
    """A task's journal, by place, from rows as `entry` reads them."""
    return {row[0]: entry(row, of, codec) for row in rows}


def entry(row: Any, of: Task | Whose, codec: Codec) -> Entry:
    """An entry of the journal: place, verb, name, state, value, wake_at."""
    try:
        place, verb, name, state, value, wake_at = row
        kept = codec.decode(value, of.owner, of.id, "entry", place)
        return Entry(sound(place), Verb(verb), sound(name), EntryState(state), kept, wake_at)
    except _ODD as error:
        raise codec.damaged(error, of.id, "entry") from error


def events(rows: Iterable[Any], of: Task, codec: Codec) -> tuple[Event, ...]:
    """A task's timeline: at, kind, detail."""
    return tuple(_event(row, of, codec) for row in rows)


def _event(row: Any, of: Task, codec: Codec) -> Event:
    try:
        at, kind, detail = row[0], EventKind(row[1]), row[2]
        return Event(at, kind, codec.decode_note(kind, detail, of.owner, of.id))
    except _ODD as error:
        raise codec.damaged(error, of.id, "event") from error


def run_state(row: Any) -> RunState:
    """Where a run is: handler, due_at, session, fence, failures, deaths, deadline_at."""
    return RunState(*row)


def listed(row: Any, codec: Codec) -> Listed:
    """A task in a list, from a row of `LISTED`'s columns. None of them was sealed."""
    try:
        seq, id_, tenant, principal, method, name, version, status, created_at, updated_at, expires_at, asked = row[:12]
        run = None if row[12] is None else run_state((sound(row[12]), *row[13:]))
        owner, handler = Owner(sound(tenant), sound(principal)), _handler(method, name, version)
        times = created_at, updated_at, expires_at
        return Listed(seq, sound(id_), owner, handler, _STATUSES[status], *times, bool(asked), run)
    except _ODD as error:
        raise codec.damaged(error, str(row[1]), "row") from error


def _handler(method: str, name: str, version: str) -> str:
    return Operation(sound(method), sound(name), {}, sound(version)).handler


def counts(rows: Iterable[Any], codec: Codec) -> tuple[Count, ...]:
    """How many tasks there are: method, name, version, status, how many, since when; in the order of their names."""
    return tuple(sorted(readable(rows, lambda row: _count(row, codec)), key=lambda each: (each.handler, each.status)))


def _count(row: Any, codec: Codec) -> Count:
    try:
        method, name, version, status, count, oldest_at = row
        return Count(_handler(method, name, version), _STATUSES[status], count, oldest_at)
    except _ODD as error:
        raise codec.damaged(error, "", "row") from error


def named_by(which: Which) -> tuple[str, ...]:
    """The names that a filter asks for, which may be such as no store can have."""
    return tuple(name for name in (which.name, which.tenant, which.principal) if name is not None)


def end_of(prefix: str) -> str:
    """What comes after all ids that begin so: they are ASCII."""
    return f"{prefix}\x7f"


def session(id_: object, expires_at: object, info: str) -> Session:
    """A process's lease. It lasts until it lapses, whether or not it can be read what the process says of itself.

    One bit makes a value of another type, or none, of any. A lease whose end is no time has lapsed.
    """
    name = mended(id_) if isinstance(id_, str) else "?"
    until = expires_at if isinstance(expires_at, int) else 0
    try:
        return Session(name, until, decode_object(info))
    except UNREADABLE as error:
        logger.debug("session %s: what it says of itself can't be read: %s", name, type(error).__name__)
        return Session(name, until, {})


def load(row: Any, now: int) -> Load:
    """What there is to run of one handler: handler, ready, held, all of them, since when the first is ready."""
    handler, ready, held, all_, since = row
    # A clock that was ahead and has been set back is no reason to speak of less than no time.
    return Load(handler, ready, held, all_ - ready - held, None if since is None else max(0, now - since))


def new_values(new: NewTask, now: int, codec: Codec) -> tuple[object, ...]:
    """What `sql.TASK_INSERT` binds.

    Raises:
        NotStorable: UTF-8 can't carry one of the texts, or there is no JSON form of the parameters.
    """
    ordered, owner, key, digest = new.operation, new.owner, new.key, new.digest
    texts = (new.id, owner.tenant, owner.principal, ordered.method, ordered.name, ordered.version)
    accepts = " ".join(sorted(ordered.accepts))
    plain("".join((*texts, accepts, key or "", digest or "")))
    return (
        *texts[:5],
        codec.encode(ordered.params, owner, new.id, "params"),
        ordered.version,
        now,
        now,
        new.ttl_ms,
        new.keep_ms,
        policy.expires_at(now, new.ttl_ms),
        new.poll_ms,
        accepts,
        key,
        stored_digest(new, codec),
    )


def stored_digest(new: NewTask, codec: Codec) -> str | None:
    """What the calls under a task's key must be equal in, as it is stored.

    Anybody may compute a digest, and compare it with those of arguments that are easily guessed.
    """
    return None if new.digest is None else codec.encode_words(new.digest, new.owner, new.id, "digest")


def digest(stored: str | None, of: Task, codec: Codec) -> str | None:
    """The digest that was stored."""
    try:
        return None if stored is None else codec.decode_words(stored, of.owner, of.id, "digest")
    except _ODD as error:
        raise codec.damaged(error, of.id, "digest") from error


def update_values(changed: Task, codec: Codec) -> tuple[object, ...]:
    """What `sql.TASK_UPDATE` binds."""
    return (
        changed.status.value,
        stored_message(changed, codec),
        changed.version,
        changed.updated_at,
        changed.ttl_ms,
        policy.expires_at(changed.created_at, changed.ttl_ms),
        int(changed.cancel_requested),
        *stored_end(changed, codec),
        changed.seq,
    )


def stored_message(of: Task, codec: Codec) -> str | None:
    """The status message as it is stored."""
    return None if of.message is None else codec.encode_message(of.message, of.owner, of.id)


def stored_end(of: Task, codec: Codec) -> tuple[str | None, str | None]:
    """Result and error as they are stored."""
    owner, id_, error = of.owner, of.id, of.error
    result = None if of.result is None else codec.encode(of.result, owner, id_, "result")
    if error is None:
        return result, None
    kept: JSONObject = {"code": error.code, "message": plain(error.message), "data": error.data}
    return result, codec.encode(kept, owner, id_, "error")


def _failure(text: str, owner: Owner, id_: str, codec: Codec) -> Failure:
    stored = codec.decode_object(text, owner, id_, "error")
    try:
        return Failure(cast("int", stored["code"]), cast("str", stored["message"]), stored["data"])
    except KeyError as error:
        raise codec.damaged(error, id_, "error") from error
