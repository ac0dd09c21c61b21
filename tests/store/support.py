"""What every test of a store works with: a clock that moves when told, tasks, and workers."""

import itertools
from collections.abc import Callable, Iterator

from perdure.domain.model import Change, Claim, Completed, JSONObject, NewTask, Operation, Owner
from perdure.store.base import Store

ADA = Owner("acme", "ada")
BOB = Owner("acme", "bob")
ELSEWHERE = Owner("other", "ada")

NOW = 1_800_000_000_000
LEASE = 30_000
HANDLER = "tools/call:report"
DONE = Completed({"content": [{"type": "text", "text": "done"}]})

NAME: JSONObject = {"method": "elicitation/create", "params": {"message": "Your name?"}}
AGE: JSONObject = {"method": "elicitation/create", "params": {"message": "Your age?"}}


class VirtualClock:
    """Time that stands still unless it is moved. Read from any thread, moved by the test."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


StoreFactory = Callable[[VirtualClock], Store]
"""Makes a store that is not open yet, on storage of its own."""

_numbers: Iterator[int] = itertools.count(1)


def new_task(
    name: str = "report",
    *,
    owner: Owner = ADA,
    params: JSONObject | None = None,
    ttl_ms: int | None = None,
    keep_ms: int | None = None,
    max_attempts: int = 10,
) -> NewTask:
    """A task under a fresh id, for the handler `tools/call:NAME`."""
    return NewTask(
        id=f"tsk_{next(_numbers):032}",
        owner=owner,
        operation=Operation("tools/call", name, {"size": "large"} if params is None else params),
        ttl_ms=ttl_ms,
        keep_ms=keep_ms,
        poll_ms=500,
        max_attempts=max_attempts,
        accepts=frozenset({"elicitation", "roots"}),
    )


class Changes(list[Change]):
    """A listener that remembers what it heard."""

    def __call__(self, change: Change) -> None:
        self.append(change)

    def take(self) -> list[Change]:
        """What was heard since the last time."""
        heard = self[:]
        self.clear()
        return heard


class Worker:
    """One session on a store, with the claims of a worker that has one handler."""

    def __init__(self, store: Store, session: str) -> None:
        self.store = store
        self.session = session

    async def claim(self, limit: int = 10, *handlers: str) -> tuple[Claim, ...]:
        return await self.store.claim(self.session, handlers or (HANDLER,), limit)

    async def claim_one(self) -> Claim:
        (claim,) = await self.claim(1)
        return claim


async def hire(store: Store, lease_ms: int = LEASE) -> Worker:
    session = await store.open_session(lease_ms, {"host": "here"})
    return Worker(store, session.id)


async def running(store: Store, new: NewTask | None = None) -> Claim:
    """A new task, claimed by a new worker. The store has no other runnable one."""
    await store.create(new or new_task())
    worker = await hire(store)
    return await worker.claim_one()


async def parked(store: Store, new: NewTask | None = None, **asked: JSONObject) -> Claim:
    """A new task that waits for the answers to `asked`; returns the claim, which no longer holds."""
    claim = await running(store, new)
    await store.park(claim, asked or {"name": NAME})
    return claim
