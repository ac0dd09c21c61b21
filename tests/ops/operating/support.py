"""Stores with something in them, and commands that look at them."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import anyio
from click.testing import CliRunner

from perdure.domain import ids
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import (
    Asked,
    Claim,
    Completed,
    Demand,
    NewTask,
)
from perdure.engine import lease
from perdure.ops import stores
from perdure.ops.cli import main
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from tests.store.support import ADA, new_task
from tests.support import eventually

T = TypeVar("T")

SECRET: Final = "swordfish"
HOUR: Final = 3_600_000
REPORT: Final = "tools/call:report"
DONE: Final = Completed({"content": [{"type": "text", "text": SECRET}]})
QUESTION: Final[dict[str, Any]] = {"method": "elicitation/create", "params": {"message": SECRET}}


def opened(url: str, act: Callable[[Store], Awaitable[T]], keys: KeyRing | None = None) -> T:
    """What comes of doing something to a store, which is closed again."""

    async def run() -> T:
        store = stores.open_store(url, keys=keys)
        await store.open()
        try:
            return await act(store)
        finally:
            await store.close()

    return anyio.run(run)


def printed(*command: str) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
    return done.output


def refused(*command: str, status: int = 1) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == status, done.output
    assert SECRET not in done.output
    return done.output.strip()


async def in_the_middle(store: Store) -> str:
    """A task that has done a step, failed once, and asks two questions, of which one is answered."""
    params: dict[str, Any] = {"arguments": {"password": SECRET}}
    task = await store.create(minted(params=params))
    session = await store.open_session(HOUR, {**lease.identity(), "handlers": [REPORT]})
    claim = await claimed(store, session.id)
    await store.record(claim, Entry("10", Verb.STEP, "late", EntryState.FAILED, {"message": SECRET}))
    await store.retry(claim, 1, "ConnectionError: refused", failed=["10"])
    claim = await claimed(store, session.id)
    await store.report(claim, SECRET)
    await store.record(claim, Entry("10", Verb.STEP, "ten", EntryState.DONE, SECRET))
    await store.record(claim, Entry("9", Verb.STEP, "nine", EntryState.DONE, {"text": SECRET}))
    external = Entry("11", Verb.EXTERNAL, "job", EntryState.STARTED, {"token": SECRET})
    asked = {key: Asked(QUESTION, "12") for key in ("name", "age")}
    await store.park(claim, Waits(asked=asked, begun=((external, HOUR),), places=frozenset({"11"})))
    await store.answer(ADA, task.id, {"name": SECRET})
    return task.id


def minted(name: str = "report", params: dict[str, Any] | None = None, **options: Any) -> NewTask:
    """A task under an id such as users know."""
    return replace(new_task(name, params=params, **options), id=ids.mint(secrets.token_bytes))


async def claimed(store: Store, session: str) -> Claim:
    claims: list[Claim] = []

    async def due() -> bool:
        claims.extend(await store.claim(session, [Demand(REPORT, 1)], 1))
        return bool(claims)

    await eventually(due, "it is due")
    return claims[0]


def lines_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(each["place"], each["verb"], each["name"], each["state"]) for each in found["journal"]]


async def over(store: Store, **options: Any) -> str:
    task = await store.create(minted(**options))
    session = await store.open_session(HOUR, {})
    claim = await claimed(store, session.id)
    await store.finish(claim, DONE)
    await store.close_session(session.id)
    return task.id


async def busy(store: Store) -> str:
    """One handler is served and one is not; a worker that is gone left a session behind."""
    await in_the_middle(store)
    await store.create(new_task())
    for _ in range(2):
        await store.create(new_task("other"))
    await store.open_session(HOUR, {**lease.identity(), "started": 1, "handlers": ["tools/call:other"]})
    lapsing = await store.open_session(1, {"host": "elsewhere", "pid": 7, "handlers": ["tools/call:other"]})

    async def lapsed() -> bool:
        return {session.id: over for session, over in await store.sessions()}[lapsing.id]

    await eventually(lapsed, "it lapses")
    return lapsing.id
