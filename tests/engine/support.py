"""What the engine's tests work with: handlers made from functions, a worker for a while, a store that can be rigged."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from perdure.domain.errors import StoreUnavailable
from perdure.domain.inputs import Journal
from perdure.domain.model import (
    JSON,
    Change,
    Claim,
    Completed,
    JSONObject,
    Outcome,
    Owner,
    Renewal,
    Session,
    Status,
    Task,
)
from perdure.engine.handler import Handler
from perdure.engine.run import Run
from perdure.engine.worker import Worker
from perdure.store.base import Listener, Store, Unsubscribe
from perdure.store.memory import MemoryStore
from tests.store.support import ADA
from tests.support import PATIENCE, eventually

T = TypeVar("T")

LEASE: Final = 30_000
HOUR: Final = 3_600_000


def done(text: str = "done") -> Completed:
    return Completed({"content": [{"type": "text", "text": text}]})


def question(message: str) -> JSONObject:
    return {"method": "elicitation/create", "params": {"message": message}}


class Coroutine:
    """A handler whose work is a coroutine function."""

    threaded = False

    def __init__(self, work: Callable[[Run, JSONObject], Awaitable[Outcome]]) -> None:
        self._work = work

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        return await self._work(run, params)


class Thread:
    """A handler whose work is a plain function, run in a thread."""

    threaded = True

    def __init__(self, work: Callable[[Run], Outcome]) -> None:
        self._work = work

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        return await asyncio.to_thread(self._work, run)


def handlers(**by_name: Callable[[Run, JSONObject], Awaitable[Outcome]] | Handler) -> dict[str, Handler]:
    """Handlers for the tools of these names; a bare function stands for a coroutine handler."""
    return {
        f"tools/call:{name}": work if isinstance(work, Coroutine | Thread) else Coroutine(work)
        for name, work in by_name.items()
    }


@asynccontextmanager
async def serving(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    concurrency: int = 8,
    lease_ms: int = LEASE,
    grace_ms: int = 5_000,
    poll_ms: int = 50,
) -> AsyncGenerator[Worker]:
    """A worker that serves inside, and is stopped and done with its shutdown outside. A crash of it comes out here."""
    worker = Worker(store, handlers, concurrency=concurrency, lease_ms=lease_ms, grace_ms=grace_ms, poll_ms=poll_ms)
    task = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        await stopped(worker, task)


async def stopped(worker: Worker, serving: asyncio.Task[None]) -> None:
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await serving


async def ended(store: Store, task: Task, *, within: float = PATIENCE) -> Task:
    """The task once it is over."""
    return await _reaches(store, task, lambda now: now.status.terminal, within)


async def asking(store: Store, task: Task, *keys: str) -> Task:
    """The task once it waits for exactly these answers."""
    return await _reaches(store, task, lambda now: tuple(entry.key for entry in now.inputs) == keys, PATIENCE)


async def _reaches(store: Store, task: Task, wanted: Callable[[Task], bool], within: float) -> Task:
    async def there() -> bool:
        return wanted(await store.get(task.owner, task.id))

    await eventually(there, f"task {task.operation.name} did not get there", within=within)
    return await store.get(task.owner, task.id)


async def status(store: Store, task: Task) -> Status:
    return (await store.get(task.owner, task.id)).status


async def answer(store: Store, task: Task, **responses: JSON) -> Task:
    return await store.answer(ADA, task.id, responses)


async def claim_as_another(store: Store, name: str = "report") -> Claim:
    """Claim one run under a session of its own, as another process would."""
    session = await store.open_session(HOUR, {"host": "elsewhere"})
    (claim,) = await store.claim(session.id, [f"tools/call:{name}"], 1)
    return claim


async def worker_session(store: Store) -> str:
    """The session of the only worker, once it has one."""

    async def opened() -> bool:
        return len(await store.sessions()) == 1

    await eventually(opened, "the worker opened no session")
    ((session, _),) = await store.sessions()
    return session.id


Hook = Callable[[], Awaitable[None]]


class Rigged(MemoryStore):
    """A memory store in which things go wrong when told: hooks run before or after a verb, each at one call of it.

    `calls` are the verbs that were called, in order. A hook that raises makes the verb raise: before it, nothing has
    happened; after it, everything has, and only the caller does not know.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        super().__init__(clock)
        self.calls: list[str] = []
        self.listeners = 0
        self.silent = False
        """Whether listeners hear nothing, as of changes that another process made."""
        self.before: defaultdict[str, deque[Hook]] = defaultdict(deque)
        self.after: defaultdict[str, deque[Hook]] = defaultdict(deque)

    def fail(self, verb: str, times: int, error: Exception | None = None) -> None:
        """Let the next calls of `verb` fail without effect."""
        self.before[verb].extend([partial(_raise, error or StoreUnavailable())] * times)

    def forget(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` have their effect, and fail as if it were unknown."""
        self.after[verb].extend([partial(_raise, StoreUnavailable())] * times)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        def unless_silent(change: Change) -> None:
            if not self.silent:
                listener(change)

        def unsubscribe() -> None:
            self.listeners -= 1
            really()

        really = super().subscribe(unless_silent)
        self.listeners += 1
        return unsubscribe

    async def _rigged(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(verb)
        if self.before[verb]:
            await self.before[verb].popleft()()
        result = await call()
        if self.after[verb]:
            await self.after[verb].popleft()()
        return result

    async def open(self) -> None:
        await self._rigged("open", super().open)

    async def close(self) -> None:
        await self._rigged("close", super().close)

    async def get(self, owner: Owner, task_id: str) -> Task:
        return await self._rigged("get", partial(super().get, owner, task_id))

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        return await self._rigged("open_session", partial(super().open_session, lease_ms, info))

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        return await self._rigged("renew", partial(super().renew, session_id, lease_ms))

    async def close_session(self, session_id: str) -> None:
        await self._rigged("close_session", partial(super().close_session, session_id))

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        return await self._rigged("sessions", super().sessions)

    async def take_over(self, gone: Collection[str] = (), *, keep: str = "") -> int:
        return await self._rigged("take_over", partial(super().take_over, gone, keep=keep))

    async def claim(self, session_id: str, handlers: Sequence[str], limit: int) -> tuple[Claim, ...]:
        return await self._rigged("claim", partial(super().claim, session_id, handlers, limit))

    async def journal(self, claim: Claim) -> Journal:
        return await self._rigged("journal", partial(super().journal, claim))

    async def report(self, claim: Claim, message: str) -> None:
        await self._rigged("report", partial(super().report, claim, message))

    async def park(self, claim: Claim, asked: Mapping[str, JSONObject]) -> Task:
        return await self._rigged("park", partial(super().park, claim, asked))

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        return await self._rigged("finish", partial(super().finish, claim, outcome))

    async def release(self, claim: Claim) -> None:
        await self._rigged("release", partial(super().release, claim))

    async def expire(self, limit: int) -> int:
        return await self._rigged("expire", partial(super().expire, limit))

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        return await self._rigged(
            "purge", partial(super().purge, limit, linger_ms=linger_ms, tombstone_ms=tombstone_ms)
        )


async def _raise(error: Exception) -> None:
    raise error
