"""Nobody finds out by the clock whether somebody else's task is there (contract 6): foreign, unknown and purged take
equally long, whichever way they are asked for, on both databases.

The server runs in this process and is called without a socket or a client (`bare`), which leaves the differences and
takes most of the noise. What is asked for is what would differ most: a task whose result has a megabyte, one that
waits, one that has left a tombstone. `timing` says when a difference is one.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from perdure import Handle, Limits, TaskContext, Tasks
from perdure.domain import ids
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from tests.acceptance.replicas import migrated
from tests.acceptance.support import store_url
from tests.support import eventually
from tests.wire import timing
from tests.wire.bare import Post, posting
from tests.wire.envelopes import envelope
from tests.wire.listening import listen_request
from tests.wire.support import Client, hosting
from tests.wire.test_identity import Verifier
from tests.wire.timing import TOLERATED, Difference, compared, measured
from tests.wire.tools import FORM, Form

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE: Final = 60_000
EACH: Final = 4
"""Tasks of each kind, which are asked for by turns."""
LARGE: Final = 1_000_000
UNKNOWN: Final = "unknown"
CALLBACK: Final = "the callback"
NOT_FOUND: Final = b"Task not found"
WAYS: Final = {
    "tasks/get": NOT_FOUND,
    "tasks/update": NOT_FOUND,
    "tasks/cancel": NOT_FOUND,
    "subscriptions/listen": b'"taskIds":[]',
    CALLBACK: b"Unknown handle",
}
"""How one may ask, and what the answer says to whoever has no such task."""


def declare(tasks: Tasks) -> list[Handle]:
    """A tool that has work done elsewhere, asks, and has a large result. Returns where the handles of the work go."""
    handles: list[Handle] = []

    def take(handle: Handle) -> None:
        handles.append(handle)

    @tasks.tool(ttl="1m")
    async def asks(task: TaskContext) -> str:
        await task.external("work", take)
        await task.elicit("form", "All right?", Form)
        return "x" * LARGE

    return handles


@dataclass
class Site:
    """A server, somebody who has no task on it, and the tasks of somebody else's, by what has become of them."""

    store: SQLiteStore | PostgresStore
    app: Starlette
    tasks: dict[str, list[str]]

    def asking(self, way: str) -> dict[str, Callable[[], Awaitable[bytes]]]:
        """What to measure: a request for each kind of task, which is for another one of them each time."""
        return {kind: _in_turns([self._post(way, each) for each in tasks]) for kind, tasks in self.tasks.items()}

    def _post(self, way: str, task_id: str) -> Post:
        """A callback comes with a handle that somebody made up who knows the task."""
        if way == CALLBACK:
            return posting(self.app, {"result": 1}, f"{task_id}~0~{'A' * 32}", path="/perdure/external")
        return posting(self.app, _request(way, task_id), "bob")


def _in_turns(posts: Sequence[Post]) -> Callable[[], Awaitable[bytes]]:
    turns = cycle(posts)
    return lambda: next(turns).make()


def _request(method: str, task_id: str) -> Any:
    if method == "subscriptions/listen":
        return listen_request([task_id])
    return envelope(method, {"taskId": task_id, "inputResponses": {"form": FORM}})


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    folder: Path = tmp_path_factory.mktemp("apart")
    clock = VirtualClock()
    store = SQLiteStore(store_url(folder), clock)
    if request.param == "postgresql":
        store = PostgresStore(await migrated(request.getfixturevalue("postgres"), "apart"), clock)
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    limits = Limits(polls_per_second=1_000_000)  # a refusal would be quick, and tell nothing
    tasks = Tasks(store, grace="1ms", lease="1h", linger="1ms", tombstone="1m", limits=limits, owner_polls=None)
    mcp = tasks.server("apart", auth=auth, token_verifier=Verifier())
    handles = declare(tasks)
    tasks.callbacks(mcp)
    app = mcp.streamable_http_app()
    async with AsyncExitStack() as stack:
        http, url = await stack.enter_async_context(hosting(app))
        ada = Client(http, f"{url}/mcp", "ada")

        async def parked() -> list[str]:
            found = [await ada.start("asks") for _ in range(EACH)]
            await eventually(lambda: len(handles) == EACH, "no work was handed over")
            while handles:
                await tasks.external.complete(handles.pop(), None)
            for task_id in found:
                await ada.until(task_id, "input_required")
            return found

        made = await _made(parked, store, clock, ada)
        yield Site(store, app, made)


async def _made(
    parked: Callable[[], Awaitable[list[str]]], store: SQLiteStore | PostgresStore, clock: VirtualClock, ada: Client
) -> dict[str, list[str]]:
    async def outlived() -> None:
        clock.advance(MINUTE)
        await store.expire(100)
        await store.purge(100, linger_ms=0, tombstone_ms=MINUTE)

    purged = await parked()
    await outlived()
    expired = await parked()
    await outlived()
    over, live = await parked(), await parked()
    for task_id in over:
        await ada.update(task_id, {"form": FORM})
        await ada.until(task_id)
    unknown = [ids.mint(secrets.token_bytes) for _ in range(EACH)]
    return {UNKNOWN: unknown, "live": live, "over": over, "expired": expired, "purged": purged}


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_no_answer_takes_longer_or_shorter_than_that_about_an_unknown_task(
    site: Site, way: str, record_property: Callable[[str, object], None]
) -> None:
    asking = site.asking(way)
    [answer] = {await ask() for ask in asking.values()}
    assert WAYS[way] in answer
    found = await measured(asking, UNKNOWN)
    assert not {kind: str(each) for kind, each in found.items() if each.is_told}
    if in_doubt := doubts(found):
        # Nothing was found out, which is no proof that there is nothing: the machine was too busy.
        record_property("no verdict", in_doubt)
        logger.warning("no verdict on %s: %s", way, in_doubt)


def doubts(found: dict[str, Difference]) -> dict[str, str]:
    """What came to no verdict."""
    return {kind: str(each) for kind, each in found.items() if not (each.is_tolerated or each.is_told)}


def is_found_out(found: Difference) -> bool:
    """Surely; or at least it is in doubt, and looks so, on a machine that is too busy for a verdict."""
    return not found.is_tolerated and found.median > TOLERATED


async def test_a_store_that_takes_a_moment_longer_for_a_task_that_is_there_is_found_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By twice what is tolerated: 200 µs."""
    get = site.store.get

    async def slower(owner: Any, task_id: str) -> Any:
        if task_id in site.tasks["live"]:
            until = time.perf_counter() + 2 * TOLERATED
            while time.perf_counter() < until:
                pass
        return await get(owner, task_id)

    monkeypatch.setattr(site.store, "get", slower)
    asking = site.asking("tasks/get")
    found = (await measured({kind: asking[kind] for kind in (UNKNOWN, "live")}, UNKNOWN))["live"]
    assert is_found_out(found), f"{found}"


# -- the measure -------------------------------------------------------------------------------------------------------


def noise(seed: int) -> Iterator[float]:
    """Answers of a machine that has other things to do: most take a millisecond, some take ten."""
    chance = random.Random(seed)
    while True:
        yield 1e-3 + chance.lognormvariate(-11, 1.5)


def some(seed: int, count: int, more: float = 0.0) -> list[float]:
    return [each + more for each, _ in zip(noise(seed), range(count), strict=False)]


@pytest.mark.parametrize("seed", range(20))
def test_chance_is_no_difference_and_twice_what_is_tolerated_is_one(seed: int) -> None:
    count = 300
    same = compared(some(2 * seed, count), some(2 * seed + 1, count))
    assert same.is_tolerated
    assert not same.is_told
    for sign in (1, -1):
        other = compared(some(2 * seed, count, 2 * sign * TOLERATED), some(2 * seed + 1, count))
        assert other.is_told
        assert not other.is_tolerated


def test_a_handful_of_answers_tells_nothing() -> None:
    found = compared(some(1, 5, 1.0), some(2, 5))
    assert found == Difference(found.median, -inf, inf)
    assert not found.is_told
    assert not found.is_tolerated
    assert is_found_out(found)
    assert doubts({"live": found}) == {"live": str(found)}


def test_what_came_to_a_verdict_is_not_in_doubt() -> None:
    same, other = (compared(some(1, 300, more), some(2, 300)) for more in (0.0, 2 * TOLERATED))
    assert doubts({"same": same, "other": other}) == {}
    assert (is_found_out(same), is_found_out(other)) == (False, True)


async def test_who_can_not_tell_says_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "AT_MOST", 3)
    found = await measured({UNKNOWN: lambda: asyncio.sleep(0), "other": lambda: asyncio.sleep(0)}, UNKNOWN)
    assert [(each.is_told, each.is_tolerated) for each in found.values()] == [(False, False)]
