"""What every test of a store works with: owners, tasks, waits, and workers.

Also for tests of your own, of what your store does beyond the protocol. All times are in milliseconds.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import (
    JSON,
    Asked,
    Change,
    Claim,
    Completed,
    Demand,
    JSONObject,
    NewTask,
    Operation,
    Owner,
    Task,
)
from perdure.store.base import Store
from perdure.store.clock import Clock
from perdure.store.routes import Routes
from perdure.testing.clock import START

ADA = Owner("acme", "ada")
BOB = Owner("acme", "bob")
ELSEWHERE = Owner("other", "ada")

NOW = START
"""What the clock says until it is moved."""
LEASE = 30_000
HANDLER = "tools/call:report"
DONE = Completed({"content": [{"type": "text", "text": "done"}]})

NAME: JSONObject = {"method": "elicitation/create", "params": {"message": "Your name?"}}
AGE: JSONObject = {"method": "elicitation/create", "params": {"message": "Your age?"}}


MakeStore = Callable[[Clock], Store]
"""Makes a store that is not open yet, on storage of its own, and whose time is that of the clock."""

MakeRoutes = Callable[[Clock], Routes]
"""The same for the routes of a gateway."""

_numbers: Iterator[int] = itertools.count(1)


def new_task(
    name: str = "report",
    *,
    owner: Owner = ADA,
    params: JSONObject | None = None,
    ttl_ms: int | None = None,
    keep_ms: int | None = None,
    max_attempts: int = 10,
    timeout_ms: int | None = None,
    key: str | None = None,
    digest: str | None = None,
) -> NewTask:
    """A task under a fresh id, for the handler `tools/call:NAME`."""
    return NewTask(
        id=f"tsk_{next(_numbers):032}",
        owner=owner,
        operation=Operation(
            "tools/call",
            name,
            {"size": "large"} if params is None else params,
            accepts=frozenset({"elicitation", "roots"}),
        ),
        ttl_ms=ttl_ms,
        keep_ms=keep_ms,
        poll_ms=500,
        max_attempts=max_attempts,
        timeout_ms=timeout_ms,
        key=key,
        digest=digest,
    )


# -- the journal, and what a run waits for -----------------------------------------------------------------------------

TOKEN = "a-token-that-nobody-guesses"


def standing(task: Task) -> Task:
    """How it stands, without what may be large."""
    return replace(task, result=None, error=None, inputs=())


def step(place: str = "0", value: JSON = None, *, state: EntryState = EntryState.DONE) -> Entry:
    """A step as the journal has it; by default one that ran."""
    return Entry(place, Verb.STEP, f"step {place}", state, value)


def external(place: str = "0", *, token: str = TOKEN) -> Entry:
    """Work that was given away, and of which nobody has heard since."""
    return Entry(place, Verb.EXTERNAL, "render", EntryState.STARTED, {"token": token})


def asks(**asked: JSONObject | Asked) -> Waits:
    """A wait for the answers to all of `asked`."""
    return Waits(asked={key: each if isinstance(each, Asked) else Asked(each) for key, each in asked.items()})


def sleep(ms: int, place: str = "0") -> Waits:
    """A wait for a time."""
    return Waits(begun=((Entry(place, Verb.SLEEP, "", EntryState.STARTED), ms),), places=frozenset({place}))


def elsewhere(place: str = "0", ms: int | None = None, *, minds_cancel: bool = False) -> Waits:
    """A wait for work elsewhere, of `ms` at most."""
    return Waits(begun=((external(place), ms),), places=frozenset({place}), minds_cancel=minds_cancel)


def both(*waits: Waits) -> Waits:
    """A wait for whatever comes first of all that is in `waits`."""
    return Waits(
        {key: each for wait in waits for key, each in wait.asked.items()},
        tuple(each for wait in waits for each in wait.begun),
        frozenset(place for wait in waits for place in wait.places),
    )


class Changes(list[Change]):
    """A listener that remembers what it heard."""

    def __call__(self, change: Change | None) -> None:
        assert change is not None, "the store missed nothing"
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
        """Up to `limit` runs of `handlers`, or of `HANDLER`."""
        demands = [Demand(handler, limit) for handler in handlers or (HANDLER,)]
        return await self.store.claim(self.session, demands, limit)

    async def claim_one(self) -> Claim:
        """The run that there is."""
        (claim,) = await self.claim(1)
        return claim


async def hire(store: Store, lease_ms: int = LEASE) -> Worker:
    """A new worker."""
    session = await store.open_session(lease_ms, {"host": "here"})
    return Worker(store, session.id)


async def running(store: Store, new: NewTask | None = None) -> Claim:
    """A new task, claimed by a new worker. The store has no other runnable one."""
    await store.create(new or new_task())
    worker = await hire(store)
    return await worker.claim_one()


async def parked(store: Store, new: NewTask | None = None, **asked: JSONObject | Asked) -> Claim:
    """A new task that waits for the answers to `asked`; returns the claim, which no longer holds."""
    return await waiting(store, asks(**(asked or {"name": NAME})), new)


async def waiting(store: Store, waits: Waits, new: NewTask | None = None) -> Claim:
    """A new task that waits; returns the claim, which no longer holds."""
    claim = await running(store, new)
    await store.park(claim, waits)
    return claim


async def take(store: Store, *handlers: str) -> Claim | None:
    """What a new worker gets when it asks for one run; None if there is nothing that it may claim."""
    claims = await (await hire(store)).claim(1, *handlers)
    return claims[0] if claims else None
