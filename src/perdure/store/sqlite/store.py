"""`SQLiteStore`: the verbs, each either an operation for the writer or a read on the event loop's own connection.

Reads run right where they are asked for. A point read by id takes about 11 µs; the hop to a thread and back takes 65 µs
and more, and under WAL a reader waits for nobody. What makes a task or asks a question is encoded before an operation
is queued, so that a value that can't be stored never gets as far as a transaction. Results and answers are encoded
inside: only there is known whether they count at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from perdure.domain.journal import Entry, EntryState, Journal, Waits
from perdure.domain.model import (
    JSON,
    Asked,
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
    Status,
    Task,
)
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which
from perdure.domain.timeline import Inspection, Load
from perdure.store import rows
from perdure.store.base import Listener, Unsubscribe
from perdure.store.clock import Clock, WallClock
from perdure.store.codec import decode, decode_object, encode, is_plain, plain
from perdure.store.reseal import Mark, Page
from perdure.store.sealing import CLEAR, Codec, check

from . import claims, clients, housekeeping, operators, outsiders, resealing, shared, sql, watching, workers
from .file import OnFile
from .recent import Recent
from .writer import Transaction

__all__ = ["SQLiteStore"]


class SQLiteStore(OnFile):
    """A `Store` in one SQLite file, named by a URL such as `sqlite:///tasks.db`.

    `codec`: how values are stored (`sealing.codec_for`). `max_batch` bounds how many callers share a commit; 1 makes
    each wait for one of its own.
    """

    def __init__(self, url: str, clock: Clock | None = None, *, codec: Codec = CLEAR, max_batch: int = 500) -> None:
        super().__init__(url, codec=codec, max_batch=max_batch)
        self._clock = clock or WallClock()
        self._others = watching.Others(self._writer)
        self._recent = Recent()
        self._listeners: list[Listener] = []

    # -- lifetime ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await super().open()
        self._others = watching.Others(self._writer)  # what the last reader was told is no measure for this one
        self._recent = Recent()

    def _check(self, reader: Transaction) -> None:
        check(reader.all(sql.TASK_SAMPLE), self._codec, str(self._path))

    def subscribe(self, listener: Listener) -> Unsubscribe:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    async def create(self, new: NewTask) -> Task:
        now = self._clock()
        values = rows.new_values(new, now, self._codec)
        return await self._writer.submit(lambda tx: clients.create(tx, new, values, now))

    async def recall(self, owner: Owner, key: str, digest: str) -> Task | None:
        if not is_plain(owner.tenant, owner.principal, key):
            return None
        return self._read_at_once(lambda reader: clients.recall(reader, owner, key, digest))

    async def get(self, owner: Owner, task_id: str) -> Task:
        task = self._read(lambda reader: self._recent.find(reader, owner, task_id))
        if task is not None and task.status is not Status.INPUT_REQUIRED:
            return task
        # In one snapshot: the task and its questions are two reads, and an answer may be committed between them. What
        # polls ask for most is there and has no questions, and is spared the transaction.
        return self._read_at_once(lambda reader: shared.owned(reader, owner, task_id, self._clock()))

    async def open_questions(self, owner: Owner, task_id: str) -> tuple[InputRequest, ...]:
        return self._read_at_once(lambda reader: clients.open_questions(reader, owner, task_id, self._clock()))

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        return await self._writer.submit(lambda tx: clients.answer(tx, owner, task_id, responses, self._clock()))

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        return await self._writer.submit(lambda tx: clients.request_cancel(tx, owner, task_id, self._clock()))

    async def changed(self, known: Mapping[str, int], owner: Owner | None = None) -> Mapping[str, Task | None]:
        return self._read_at_once(lambda reader: watching.changed(reader, known, owner))

    def commits_by_others(self) -> int | None:
        return self._read(self._others.commits)

    async def page(self, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
        if not is_plain(owner.tenant, owner.principal):
            return ()
        return self._read(lambda reader: clients.page(reader, owner, after, limit))

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        return await self._writer.submit(lambda tx: claims.open_session(tx, lease_ms, info, self._clock()))

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        return await self._writer.submit(lambda tx: claims.renew(tx, session_id, lease_ms, self._clock()))

    async def give_back(self, session_id: str, held: frozenset[tuple[int, int]]) -> int:
        return await self._writer.submit(lambda tx: claims.give_back(tx, session_id, held, self._clock()))

    async def close_session(self, session_id: str) -> None:
        await self._writer.submit(lambda tx: claims.close_session(tx, session_id, self._clock()))

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        now = self._clock()
        found = [rows.session(*row) for row in self._read(lambda reader: reader.all(sql.SESSION_ALL))]
        return tuple((each, each.expires_at <= now) for each in found)

    async def take_over(self, gone: Collection[str] = (), *, keep: Collection[str] = ()) -> int:
        return await self._writer.submit(lambda tx: housekeeping.take_over(tx, gone, keep, self._clock()))

    async def claim(self, session_id: str, demands: Sequence[Demand], limit: int) -> tuple[Claim, ...]:
        return await self._writer.submit(lambda tx: claims.claim(tx, session_id, demands, limit, self._clock()))

    async def journal(self, claim: Claim) -> Journal:
        return self._read_at_once(lambda reader: shared.journal(reader, claim.task))

    async def record(
        self, claim: Claim, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None
    ) -> Entry:
        value = self._stored(entry, claim.task)
        plain(note or "")
        return await self._writer.submit(
            lambda tx: workers.record(tx, claim, entry, value, wake_in_ms, note, self._clock())
        )

    async def report(self, claim: Claim, message: str) -> None:
        plain(message)
        await self._writer.submit(lambda tx: workers.report(tx, claim, message, self._clock()))

    async def park(self, claim: Claim, waits: Waits) -> Task:
        owner, id_, codec = claim.task.owner, claim.task.id, self._codec
        texts = {plain(key): encode(asked.request) for key, asked in waits.asked.items()}
        requests = {key: codec.seal(text, owner, id_, "request", key) for key, text in texts.items()}
        values = {entry.place: self._stored(entry, claim.task) for entry, _ in waits.begun}
        waits = replace(waits, asked={key: _copied(waits.asked[key], text) for key, text in texts.items()})
        return await self._writer.submit(lambda tx: workers.park(tx, claim, waits, requests, values, self._clock()))

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        return await self._writer.submit(lambda tx: workers.finish(tx, claim, outcome, self._clock()))

    async def release(self, claim: Claim) -> None:
        await self._writer.submit(lambda tx: workers.release(tx, claim, self._clock()))

    async def retry(
        self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = (), counted: bool = True
    ) -> Task:
        plain(note)
        return await self._writer.submit(
            lambda tx: workers.retry(tx, claim, delay_ms, note, failed, self._clock(), counted=counted)
        )

    # -- what other systems say ----------------------------------------------------------------------------------------

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        copy = decode(encode(value))
        return await self._writer.submit(
            lambda tx: outsiders.settle(tx, task_id, place, token, state, copy, self._clock())
        )

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        plain(message)
        return await self._writer.submit(lambda tx: outsiders.tell(tx, task_id, place, token, message, self._clock()))

    # -- what operators ask --------------------------------------------------------------------------------------------

    async def inspect(self, task_id: str) -> Inspection:
        return self._read_at_once(lambda reader: operators.inspect(reader, task_id))

    async def browse(self, which: Which, after: int | None, limit: int) -> Listing:
        if not is_plain(*rows.named_by(which)):
            return Listing((), None)
        return self._read(lambda reader: operators.browse(reader, which, after, limit, self._clock()))

    async def find_by_prefix(self, prefix: str, most: int) -> tuple[Listed, ...]:
        return self._read(lambda reader: operators.find_by_prefix(reader, prefix, most)) if prefix.isascii() else ()

    async def tally(self, after: int | None, limit: int) -> Tally:
        return self._read(lambda reader: operators.tally(reader, after, limit))

    async def hasten(self, task_id: str) -> Hastened:
        return await self._writer.submit(lambda tx: operators.hasten(tx, task_id, self._clock()))

    async def discard(self, task_ids: Collection[str], *, tombstone_ms: int) -> int:
        return await self._writer.submit(lambda tx: operators.discard(tx, task_ids, tombstone_ms, self._clock()))

    async def loads(self) -> tuple[Load, ...]:
        return self._read(lambda reader: operators.loads(reader, self._clock()))

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        if tenant is None:
            return self._read(lambda reader: operators.backlog(reader, most, self._clock()))
        if not is_plain(tenant):
            return {}
        return self._read(lambda reader: operators.backlog_of(reader, most, tenant, self._clock()))

    async def unfinished(self, owner: Owner, most: int) -> int:
        if not is_plain(owner.tenant, owner.principal):
            return 0
        return self._read(lambda reader: operators.unfinished(reader, owner, most))

    # -- housekeeping --------------------------------------------------------------------------------------------------
    # The look comes first and costs an index probe; without it an idle server would begin a transaction every second.

    async def expire(self, limit: int) -> int:
        if self._read(lambda reader: reader.one(sql.TASK_OVERDUE, self._clock(), 1)) is None:
            return 0
        return await self._writer.submit(lambda tx: housekeeping.expire(tx, limit, self._clock()))

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        if self._read(lambda reader: reader.one(sql.RUN_LATE, self._clock() - late_ms, 1)) is None:
            return 0
        return await self._writer.submit(lambda tx: housekeeping.free_overdue(tx, limit, late_ms, self._clock()))

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        def look(reader: Transaction) -> bool:
            now = self._clock()
            over = reader.one(sql.TASK_PURGEABLE, now - linger_ms, 1)
            return over is not None or reader.one(sql.TOMBSTONE_AGED, now, 1) is not None

        if not self._read(look):
            return 0
        return await self._writer.submit(
            lambda tx: housekeeping.purge(tx, limit, linger_ms, tombstone_ms, self._clock())
        )

    async def reseal(self, after: Mark, limit: int) -> Page:
        return await self._writer.submit(lambda tx: resealing.reseal(tx, after, limit))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _stored(self, entry: Entry, task: Task) -> str:
        """The entry's value as it is stored; what can't be, value or text, is refused here."""
        plain(entry.place)
        plain(entry.name)
        return self._codec.encode(entry.value, task.owner, task.id, "entry", entry.place)

    def _announce(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def _copied(asked: Asked, request: str) -> Asked:
    plain(asked.place or "")
    return replace(asked, request=decode_object(request))
