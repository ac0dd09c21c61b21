"""A store in which things go wrong, or wait, when told."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from perdure.domain.errors import StoreUnavailable
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
from perdure.store.base import Listener, Store, Unsubscribe
from tests.support import PATIENCE

T = TypeVar("T")

Hook = Callable[[], Awaitable[None]]


class Gate:
    """A hook that holds one call of a verb up until it is opened."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    async def __call__(self) -> None:
        self._reached.set()
        await self._opened.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._reached.wait()

    def open(self) -> None:
        self._opened.set()


class Rigged:
    """A store over another one, whose verbs are called through hooks: before or after it, each at one call of it.

    `calls` are the verbs that were called, in order. A hook that raises makes the verb raise: before it, nothing has
    happened; after it, everything has, and only the caller does not know.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.listeners = 0
        self.silent = False
        """Whether listeners hear nothing, as of changes that another process made."""
        self._heard: list[Listener] = []
        self.before: defaultdict[str, deque[Hook]] = defaultdict(deque)
        self.after: defaultdict[str, deque[Hook]] = defaultdict(deque)

    def fail(self, verb: str, times: int, error: Exception | None = None) -> None:
        """Let the next calls of `verb` fail without effect."""
        self.before[verb].extend([partial(_raise, error or StoreUnavailable())] * times)

    def forget(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` have their effect, and fail as if it were unknown."""
        self.after[verb].extend([partial(_raise, StoreUnavailable())] * times)

    def gate_before(self, verb: str) -> Gate:
        """Hold the next call of `verb` up before it has happened."""
        gate = Gate()
        self.before[verb].append(gate)
        return gate

    def gate_after(self, verb: str) -> Gate:
        """Hold the next call of `verb` up when it has happened, and its caller does not know yet."""
        gate = Gate()
        self.after[verb].append(gate)
        return gate

    def subscribe(self, listener: Listener) -> Unsubscribe:
        def unless_silent(change: Change | None) -> None:
            if not self.silent:
                listener(change)

        def unsubscribe() -> None:
            self.listeners -= 1
            self._heard.remove(listener)
            really()

        really = self._inner.subscribe(unless_silent)
        self._heard.append(listener)
        self.listeners += 1
        return unsubscribe

    def miss(self) -> None:
        """Say that there may have been changes that nobody was told of."""
        for listener in tuple(self._heard):
            listener(None)

    async def _rigged(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(verb)
        if self.before[verb]:
            await self.before[verb].popleft()()
        result = await call()
        if self.after[verb]:
            await self.after[verb].popleft()()
        return result

    async def open(self) -> None:
        await self._rigged("open", self._inner.open)

    async def close(self) -> None:
        await self._rigged("close", self._inner.close)

    async def create(self, new: NewTask) -> Task:
        return await self._rigged("create", partial(self._inner.create, new))

    async def recall(self, owner: Owner, key: str, digest: str) -> Task | None:
        return await self._rigged("recall", partial(self._inner.recall, owner, key, digest))

    async def get(self, owner: Owner, task_id: str) -> Task:
        return await self._rigged("get", partial(self._inner.get, owner, task_id))

    async def open_questions(self, owner: Owner, task_id: str) -> tuple[InputRequest, ...]:
        return await self._rigged("open_questions", partial(self._inner.open_questions, owner, task_id))

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        return await self._rigged("answer", partial(self._inner.answer, owner, task_id, responses))

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        return await self._rigged("request_cancel", partial(self._inner.request_cancel, owner, task_id))

    async def changed(self, known: Mapping[str, int], owner: Owner | None = None) -> Mapping[str, Task | None]:
        return await self._rigged("changed", partial(self._inner.changed, known, owner))

    def commits_by_others(self) -> int | None:
        return self._inner.commits_by_others()

    async def page(self, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
        return await self._rigged("page", partial(self._inner.page, owner, after, limit))

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        return await self._rigged("open_session", partial(self._inner.open_session, lease_ms, info))

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        return await self._rigged("renew", partial(self._inner.renew, session_id, lease_ms))

    async def give_back(self, session_id: str, held: frozenset[tuple[int, int]]) -> int:
        return await self._rigged("give_back", partial(self._inner.give_back, session_id, held))

    async def close_session(self, session_id: str) -> None:
        await self._rigged("close_session", partial(self._inner.close_session, session_id))

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        return await self._rigged("sessions", self._inner.sessions)

    async def take_over(self, gone: Collection[str] = (), *, keep: Collection[str] = ()) -> int:
        return await self._rigged("take_over", partial(self._inner.take_over, gone, keep=keep))

    async def claim(self, session_id: str, demands: Sequence[Demand], limit: int) -> tuple[Claim, ...]:
        return await self._rigged("claim", partial(self._inner.claim, session_id, demands, limit))

    async def journal(self, claim: Claim) -> Journal:
        return await self._rigged("journal", partial(self._inner.journal, claim))

    async def record(
        self, claim: Claim, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None
    ) -> Entry:
        return await self._rigged("record", partial(self._inner.record, claim, entry, wake_in_ms=wake_in_ms, note=note))

    async def report(self, claim: Claim, message: str) -> None:
        await self._rigged("report", partial(self._inner.report, claim, message))

    async def park(self, claim: Claim, waits: Waits) -> Task:
        return await self._rigged("park", partial(self._inner.park, claim, waits))

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        return await self._rigged("finish", partial(self._inner.finish, claim, outcome))

    async def release(self, claim: Claim) -> None:
        await self._rigged("release", partial(self._inner.release, claim))

    async def retry(
        self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = (), counted: bool = True
    ) -> Task:
        return await self._rigged(
            "retry", partial(self._inner.retry, claim, delay_ms, note, failed=failed, counted=counted)
        )

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        return await self._rigged("settle", partial(self._inner.settle, task_id, place, token, state, value))

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        return await self._rigged("tell", partial(self._inner.tell, task_id, place, token, message))

    async def inspect(self, task_id: str) -> Inspection:
        return await self._rigged("inspect", partial(self._inner.inspect, task_id))

    async def browse(self, which: Which, after: int | None, limit: int) -> Listing:
        return await self._rigged("browse", partial(self._inner.browse, which, after, limit))

    async def find_by_prefix(self, prefix: str, most: int) -> tuple[Listed, ...]:
        return await self._rigged("find_by_prefix", partial(self._inner.find_by_prefix, prefix, most))

    async def tally(self, after: int | None, limit: int) -> Tally:
        return await self._rigged("tally", partial(self._inner.tally, after, limit))

    async def hasten(self, task_id: str) -> Hastened:
        return await self._rigged("hasten", partial(self._inner.hasten, task_id))

    async def discard(self, task_ids: Collection[str], *, tombstone_ms: int) -> int:
        return await self._rigged("discard", partial(self._inner.discard, task_ids, tombstone_ms=tombstone_ms))

    async def loads(self) -> tuple[Load, ...]:
        return await self._rigged("loads", self._inner.loads)

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        return await self._rigged("backlog", partial(self._inner.backlog, most, tenant))

    async def unfinished(self, owner: Owner, most: int) -> int:
        return await self._rigged("unfinished", partial(self._inner.unfinished, owner, most))

    async def expire(self, limit: int) -> int:
        return await self._rigged("expire", partial(self._inner.expire, limit))

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        return await self._rigged("free_overdue", partial(self._inner.free_overdue, limit, late_ms=late_ms))

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        return await self._rigged(
            "purge", partial(self._inner.purge, limit, linger_ms=linger_ms, tombstone_ms=tombstone_ms)
        )


async def _raise(error: Exception) -> None:
    raise error
