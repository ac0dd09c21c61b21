"""`PostgresStore`: the verbs, each a job for the lanes, in batches with those of other callers.

Values are encoded before they are queued where they are sure to be stored, so that one that can't be fails without
having cost a round trip; results and answers inside the batch, since only there is known whether they count at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from perdure.domain.errors import TaskNotFound
from perdure.domain.journal import Entry, EntryState, Journal, Waits
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
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which
from perdure.domain.timeline import Inspection, Load
from perdure.store import rows, verbs
from perdure.store.base import Listener, Unsubscribe
from perdure.store.clock import Clock
from perdure.store.codec import copied, decode_object, encode, is_plain, plain
from perdure.store.records import Record, Run
from perdure.store.reseal import Mark, Page
from perdure.store.sealing import CLEAR, Codec, check

from . import (
    changing,
    creating,
    finding,
    fitting,
    housekeeping,
    operating,
    resealing,
    url,
    watching,
)
from .access import Access
from .claiming import Claimant, Wanted
from .jobs import Done, Kind, Serve
from .lanes import Lanes
from .listen import Hints
from .opening import opened
from .sheet import EVERYTHING, Bearer, Held, Named, Need, asking, asking_though_cancelled, never, while_open
from .url import Connection

__all__ = ["PostgresStore"]

J = TypeVar("J")
T = TypeVar("T")

_PATIENCE = 3.5
"""Seconds after which a client hears that the store is unavailable. Most of them give a request five or more."""
_Errand = Callable[[Access], Awaitable[Done]]


class PostgresStore:
    """A `Store` in a PostgreSQL database, named by a URL (`url`).

    `clock`: for tests; by default time is the database's. `codec`: how values are stored (`sealing.codec_for`).
    `lanes`: connections to work with; there is one more for hints. `max_batch` bounds how many callers share a
    transaction.
    """

    def __init__(
        self, url_: str, clock: Clock | None = None, *, codec: Codec = CLEAR, lanes: int = 4, max_batch: int = 200
    ) -> None:
        self._codec = codec
        self._target = url.parse(url_)
        self._clock = clock
        self._listeners: list[Listener] = []
        self._hints = Hints(self._target, self._hear)
        self._lanes = Lanes(self._target.connect, self._announce, count=lanes)
        self._creates = Kind(self._serve(creating.create), max_batch, patience=_PATIENCE)
        self._held = Kind(self._serve(changing.change_held), max_batch)
        self._named = Kind(self._serve(changing.change_named), max_batch, patience=_PATIENCE)
        self._finds = Kind(self._serve(_find), max_batch, patience=_PATIENCE)
        self._journals = Kind(self._serve(_find_journals), max_batch)
        self._claims = Kind(self._serve(Claimant().claim), max_batch, 1)
        self._looks = Kind(self._serve(_run_errands), 1, patience=_PATIENCE)
        self._errands = Kind(self._serve(_run_errands), 1)

    # -- lifetime ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._lanes.open(await opened(self._target, self._prepare))

    async def _prepare(self, connection: Connection) -> None:
        check(await resealing.sample(self._access(connection)), self._codec, self._target.shown)
        await self._hints.open()

    async def close(self) -> None:
        await self._lanes.close()
        await self._hints.close()

    def subscribe(self, listener: Listener) -> Unsubscribe:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    async def create(self, new: NewTask) -> Task:
        return await self._lanes.do(self._creates, (new, creating.row(new, self._codec)))

    async def recall(self, owner: Owner, key: str, digest: str) -> Task | None:
        if not is_plain(owner.tenant, owner.principal, key):
            return None
        return await self._read(lambda access: finding.recall(access, owner, key, digest), self._looks)

    async def get(self, owner: Owner, task_id: str) -> Task:
        return await self._lanes.do(self._finds, fitting.sought(owner, task_id))

    async def open_questions(self, owner: Owner, task_id: str) -> tuple[InputRequest, ...]:
        sought = fitting.sought(owner, task_id)
        return await self._read(lambda access: finding.open_questions(access, sought), self._looks)

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        return await self._on(
            owner, task_id, lambda task, now: verbs.answer(task, responses, now), questions=while_open
        )

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        return await self._on(owner, task_id, verbs.request_cancel, questions=asking_though_cancelled)

    async def changed(self, known: Mapping[str, int], owner: Owner | None = None) -> Mapping[str, Task | None]:
        if owner is not None and not is_plain(owner.tenant, owner.principal):
            return dict.fromkeys(known)
        sayable = {task_id: version for task_id, version in known.items() if fitting.is_sayable(task_id)}
        unheard_of = dict.fromkeys(known.keys() - sayable.keys())
        return unheard_of | await self._read(lambda access: watching.changed(access, sayable, owner), self._looks)

    def commits_by_others(self) -> int | None:
        return None

    async def page(self, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
        if not is_plain(owner.tenant, owner.principal):
            return ()
        return await self._read(lambda access: finding.page(access, owner, after, limit), self._looks)

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        info = decode_object(encode(info))
        return await self._read(lambda access: housekeeping.open_session(access, lease_ms, info))

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        return await self._read(lambda access: housekeeping.renew(access, session_id, lease_ms))

    async def give_back(self, session_id: str, held: frozenset[tuple[int, int]]) -> int:
        return await self._errand(lambda access: housekeeping.give_back(access, session_id, held))

    async def close_session(self, session_id: str) -> None:
        await self._errand(lambda access: housekeeping.close_session(access, session_id))

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        return await self._read(finding.sessions)

    async def take_over(self, gone: Collection[str] = (), *, keep: Collection[str] = ()) -> int:
        return await self._errand(lambda access: housekeeping.take_over(access, gone, keep))

    async def claim(self, session_id: str, demands: Sequence[Demand], limit: int) -> tuple[Claim, ...]:
        return await self._lanes.do(self._claims, Wanted(session_id, demands, limit))

    async def journal(self, claim: Claim) -> Journal:
        return await self._lanes.do(self._journals, claim.task)

    async def record(
        self, claim: Claim, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None
    ) -> Entry:
        entry = fitting.stored(entry)
        plain(note or "")

        def act(task: Record | None, now: int) -> Entry:
            run = verbs.held(task, claim)
            assert task is not None  # noqa: S101 - it has a run
            return verbs.record(task, run, entry, wake_in_ms, note, now)

        looked_at = frozenset({entry.place} if entry.retrying else ())
        return await self._lanes.do(self._held, Held(act, looked_at, claim=claim))

    async def report(self, claim: Claim, message: str) -> None:
        plain(message)
        await self._under(claim, lambda task, _, now: verbs.report(task, message, now))

    async def park(self, claim: Claim, waits: Waits) -> Task:
        asked = {plain(key): replace(one, request=fitting.copy_of(one.request)) for key, one in waits.asked.items()}
        begun = tuple((fitting.stored(entry), wake_in_ms) for entry, wake_in_ms in waits.begun)
        for one in asked.values():
            plain(one.place or "")
        waits = replace(waits, asked=asked, begun=begun)
        return await self._under(
            claim, lambda task, run, now: verbs.park(task, run, waits, now), places=waits.places, questions=while_open
        )

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        return await self._under(claim, lambda task, _, now: verbs.finish(task, outcome, now))

    async def release(self, claim: Claim) -> None:
        await self._under(claim, verbs.give_back)

    async def retry(
        self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = (), counted: bool = True
    ) -> Task:
        plain(note)

        def act(task: Record, run: Run, now: int) -> None:
            verbs.retry(task, run, claim, delay_ms, note, failed, now, counted=counted)

        return await self._under(
            claim, act, places=EVERYTHING if failed else frozenset(), questions=while_open if failed else never
        )

    # -- what other systems say ----------------------------------------------------------------------------------------

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        value = copied(value)
        bearer = Bearer(fitting.sayable(place), token)
        return await self._on(
            None, task_id, lambda task, now: verbs.settle(task, place, token, state, value, now), bearer
        )

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        plain(message)
        bearer = Bearer(fitting.sayable(place), token)
        return await self._on(None, task_id, lambda task, now: verbs.tell(task, place, token, message, now), bearer)

    # -- what operators ask --------------------------------------------------------------------------------------------

    async def inspect(self, task_id: str) -> Inspection:
        task_id = fitting.sayable(task_id)
        return await self._snapshot(lambda access: finding.inspect(access, task_id))

    async def browse(self, which: Which, after: int | None, limit: int) -> Listing:
        if not is_plain(*rows.named_by(which)):
            return Listing((), None)
        return await self._read(lambda access: operating.browse(access, which, after, limit))

    async def find_by_prefix(self, prefix: str, most: int) -> tuple[Listed, ...]:
        if not fitting.is_sayable(prefix):
            return ()
        return await self._read(lambda access: operating.find_by_prefix(access, prefix, most))

    async def tally(self, after: int | None, limit: int) -> Tally:
        return await self._read(lambda access: operating.tally(access, after, limit))

    async def hasten(self, task_id: str) -> Hastened:
        task_id = fitting.sayable(task_id)
        return await self._errand(lambda access: operating.hasten(access, task_id))

    async def discard(self, task_ids: Collection[str], *, tombstone_ms: int) -> int:
        task_ids = [task_id for task_id in task_ids if fitting.is_sayable(task_id)]
        return await self._errand(lambda access: operating.discard(access, task_ids, tombstone_ms))

    async def loads(self) -> tuple[Load, ...]:
        return await self._read(finding.loads)

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        if tenant is not None and not is_plain(tenant):
            return {}
        return await self._read(lambda access: finding.backlog(access, most, tenant), self._looks)

    async def unfinished(self, owner: Owner, most: int) -> int:
        if not is_plain(owner.tenant, owner.principal):
            return 0
        return await self._read(lambda access: finding.unfinished(access, owner, most), self._looks)

    # -- housekeeping --------------------------------------------------------------------------------------------------

    async def expire(self, limit: int) -> int:
        return await self._errand(lambda access: housekeeping.expire(access, limit))

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        return await self._errand(lambda access: housekeeping.free_overdue(access, limit, late_ms))

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        return await self._errand(lambda access: housekeeping.purge(access, limit, linger_ms, tombstone_ms))

    async def reseal(self, after: Mark, limit: int) -> Page:
        return await self._errand(lambda access: resealing.reseal(access, after, limit))

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _under(
        self,
        claim: Claim,
        act: Callable[[Record, Run, int], None],
        *,
        places: frozenset[str] = frozenset(),
        questions: Need = never,
    ) -> Task:
        """Do what a worker asks under its claim; the task afterwards."""

        def under_claim(task: Record | None, now: int) -> Task:
            run = verbs.held(task, claim)
            assert task is not None  # noqa: S101 - it has a run
            act(task, run, now)
            return task.task

        return await self._lanes.do(self._held, Held(under_claim, places, questions, claim=claim))

    async def _on(
        self,
        owner: Owner | None,
        task_id: str,
        act: Callable[[Record, int], None],
        bearer: Bearer | None = None,
        *,
        questions: Need = asking,
    ) -> Task:
        """Do what somebody asks of a task that is known by its id; the task afterwards, with its open questions."""

        def on_task(task: Record | None, now: int) -> Task:
            if task is None:
                raise TaskNotFound
            act(task, now)
            return task.task

        places = frozenset[str]() if bearer is None else frozenset({bearer.place})
        sought = fitting.sought(owner, task_id)
        named = Named(on_task, places, questions, id=sought.id, owner=sought.owner, bearer=bearer)
        return await self._lanes.do(self._named, named)

    async def _read(self, look: Callable[[Access], Awaitable[T]], kind: Kind[_Errand] | None = None) -> T:
        async def errand(access: Access) -> Done:
            async with access.reading():
                return Done(await look(access))

        return await self._lanes.do(kind or self._errands, errand)

    async def _snapshot(self, look: Callable[[Access], Awaitable[T]]) -> T:
        async def errand(access: Access) -> Done:
            async with access.snapshot():
                return Done(await look(access))

        return await self._lanes.do(self._errands, errand)

    async def _errand(self, errand: _Errand) -> Any:
        return await self._lanes.do(self._errands, errand)

    def _serve(self, batch: Callable[[Access, Sequence[J]], Awaitable[Sequence[Done]]]) -> Serve[J]:
        """For the lanes, which know a connection and nothing of what it is used for."""

        async def serve(connection: Connection, wishes: Sequence[J]) -> Sequence[Done]:
            return await batch(self._access(connection), wishes)

        return serve

    def _access(self, connection: Connection) -> Access:
        return Access(connection, self._target, None if self._clock is None else self._clock(), self._codec)

    def _announce(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._hear(change)
        if changes:
            self._hints.tell(changes)

    def _hear(self, change: Change | None) -> None:
        for listener in tuple(self._listeners):
            listener(change)


async def _find(access: Access, sought: Sequence[finding.Sought]) -> list[Done]:
    async with access.reading():
        return await finding.find(access, sought)


async def _find_journals(access: Access, tasks: Sequence[Task]) -> list[Done]:
    async with access.reading():
        return await finding.journals(access, tasks)


async def _run_errands(access: Access, errands: Sequence[_Errand]) -> list[Done]:
    return [await errand(access) for errand in errands]
