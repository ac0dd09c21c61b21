"""What a feed makes of a backend's streams and of what it asks for beside them, task by task."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from perdure.domain import ids
from perdure.domain.model import JSONObject
from perdure.domain.routing import Route
from perdure.gateway import beside
from perdure.gateway.backends import Asker
from perdure.gateway.feed import ACKNOWLEDGED, TASKS, Feed
from perdure.wire.identity import ANONYMOUS
from tests.gateway.raw_backend import CAPABILITIES, HANDLE, Asked, chunk, event, liar, response, result, stream
from tests.gateway.support import fronting
from tests.support import PATIENCE, eventually

ONE, TWO = "theirs-0001", "theirs-0002"


def shown(theirs: str, status: str = "working", at: str = "00.000", **others: Any) -> Any:
    """A snapshot that was taken so many seconds after midnight."""
    same = {name: value for name, value in HANDLE.items() if name != "resultType"}
    end: Any = {"result": {"content": []}} if status == "completed" else {}
    stamped = {"taskId": theirs, "status": status, "lastUpdatedAt": f"2026-11-30T00:00:{at}Z", "pollIntervalMs": 100}
    return {**same, **stamped, **end, **others}


class Telling:
    """A backend whose streams say `first` and what a test has them say, and that shows `tasks` to who asks.

    `accepts`: the tasks that it listens to, None for all. `before_it_listens`: called each time. `polled`: the tasks
    that it was asked for. While `shows` is not set, it does not answer who asks.
    """

    def __init__(self, *tasks: Any, accepts: list[str] | None = None) -> None:
        self.tasks: dict[str, Any] = {each["taskId"]: each for each in tasks}
        self.accepts = accepts
        self.first: list[Any] = []
        self.polled: list[str] = []
        self.listened = 0
        self.before_it_listens: Callable[[], None] = lambda: None
        self.shows = asyncio.Event()
        self.shows.set()
        self._streams: list[asyncio.StreamWriter] = []

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.message["method"]:
            case "server/discover":
                writer.write(response(result(asked, supportedVersions=["2026-07-28"], capabilities=CAPABILITIES)))
            case "tasks/get":
                theirs = asked.message["params"]["taskId"]
                self.polled.append(theirs)
                await self.shows.wait()
                writer.write(response(result(asked, **self.tasks[theirs])))
            case _:
                await self._listen(asked, writer)
        await writer.drain()

    async def _listen(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self.before_it_listens()
        wanted: list[str] = asked.message["params"]["notifications"]["taskIds"]
        accepted = [each for each in wanted if self.accepts is None or each in self.accepts]
        begun = {"method": ACKNOWLEDGED, "params": {"notifications": {"taskIds": accepted}}}
        writer.write(stream(event({"jsonrpc": "2.0", **begun}), *map(_told, self.first), end=False))
        await writer.drain()
        self.listened += 1
        self._streams.append(writer)
        await asyncio.Event().wait()

    def hang_up(self) -> None:
        self._streams[-1].close()

    def say(self, snapshot: Any) -> None:
        """On the stream that was opened last."""
        self._streams[-1].write(chunk(_told(snapshot)))


def _told(snapshot: Any) -> bytes:
    return event({"jsonrpc": "2.0", "method": TASKS, "params": snapshot})


@dataclass
class Heard:
    """What a feed has passed on, and whether it has ended."""

    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, message: JSONObject, route: Route | None) -> None:
        params: Any = message["params"]
        assert route is not None
        assert route.backend_task_id == params["taskId"]
        self.said.append((params["taskId"], params["status"]))

    async def has(self, theirs: str, status: str) -> None:
        await eventually(lambda: (theirs, status) in self.said, f"{theirs} was not said to be {status}")

    async def ends(self) -> None:
        await asyncio.wait_for(self.over.wait(), PATIENCE)


@asynccontextmanager
async def fed(backend: Telling) -> AsyncGenerator[Heard]:
    """A feed over all tasks of the backend."""
    heard = Heard()
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        routes = {
            theirs: await front.routes.lay(ANONYMOUS, "it", theirs, None, ids.mint(lambda n, i=i: bytes([i]) * n))
            for i, theirs in enumerate(backend.tasks)
        }
        it = front.gateway.backends["it"]
        feed = Feed(it, Asker(ANONYMOUS), it.meta(), front.gateway.routing, routes, {}, heard.say, lambda _: None)
        feed.released.set()

        async def run() -> None:
            async with anyio.create_task_group() as asking:
                await feed.run(asking)
            heard.over.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield heard
            group.cancel_scope.cancel()


def soon(monkeypatch: pytest.MonkeyPatch, unsaid: float = 0.05, seldom: float = 3_600.0) -> None:
    """Seconds after which a feed asks for what a stream says nothing of: from its beginning on, and later."""
    monkeypatch.setattr(beside, "_UNSAID", unsaid)
    monkeypatch.setattr(beside, "_SELDOM", seldom)


# -- what a stream does not say ----------------------------------------------------------------------------------------


async def test_a_task_that_was_over_before_its_stream_began_is_said_to_be_though_the_stream_is_silent() -> None:
    """Servers may say something, and need not: this one has nothing to say, since nothing changes any more."""
    async with fed(Telling(shown(ONE, "completed"))) as heard:
        await heard.ends()
    assert heard.said == [(ONE, "completed")]


async def test_what_changed_while_nobody_listened_is_said_though_the_next_stream_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    backend = Telling(shown(ONE), shown(TWO))
    async with fed(backend) as heard:
        await heard.has(TWO, "working")
        change = {ONE: shown(ONE, "input_required", "01.000", inputRequests={})}
        backend.before_it_listens = lambda: backend.tasks.update(change)
        backend.hang_up()
        await heard.has(ONE, "input_required")
    assert backend.listened == 2


async def test_a_stream_that_has_died_without_a_word_is_found_out_by_asking_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch, seldom=0.05)
    backend = Telling(shown(ONE))
    async with fed(backend) as heard:
        await heard.has(ONE, "working")
        backend.tasks[ONE] = shown(ONE, "completed", "01.000")
        await heard.ends()
    assert backend.listened == 1


async def test_what_a_stream_speaks_of_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    soon(monkeypatch, unsaid=0.2)
    backend = Telling(shown(ONE), shown(TWO))
    backend.first = [shown(ONE)]
    async with fed(backend) as heard:
        await heard.has(TWO, "working")
        backend.say(shown(ONE, "completed", "01.000"))
        await heard.has(ONE, "completed")
    assert backend.polled == [TWO]


async def test_an_answer_that_does_not_come_keeps_nobody_from_what_the_stream_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    backend = Telling(shown(ONE))
    backend.shows.clear()
    async with fed(backend) as heard:
        await eventually(lambda: backend.polled == [ONE], "it was not asked for")
        backend.say(shown(ONE, "completed", "01.000"))
        await heard.ends()
    assert heard.said == [(ONE, "completed")]


# -- what a stream is not about ----------------------------------------------------------------------------------------


async def test_a_task_that_a_backend_does_not_listen_to_is_asked_for_and_the_others_are_listened_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch, unsaid=3_600.0)
    backend = Telling(shown(ONE), shown(TWO), accepts=[TWO])
    async with fed(backend) as heard:
        await heard.has(ONE, "working")
        backend.tasks[ONE] = shown(ONE, "completed", "01.000")
        await heard.has(ONE, "completed")
        backend.say(shown(TWO, "completed", "01.000"))
        await heard.ends()
    assert (backend.listened, TWO in backend.polled) == (1, False)


async def test_a_backend_that_listens_to_no_task_is_not_asked_to_again() -> None:
    backend = Telling(shown(ONE), accepts=[])
    async with fed(backend) as heard:
        await eventually(lambda: len(backend.polled) > 2, "it is not polled")
        backend.tasks[ONE] = shown(ONE, "completed", "01.000")
        await heard.ends()
    assert backend.listened == 1


# -- clocks that go back -----------------------------------------------------------------------------------------------


async def test_an_end_is_never_too_old() -> None:
    """Two replicas of a backend have two clocks."""
    backend = Telling(shown(ONE))
    backend.first = [shown(ONE, at="01.050"), shown(ONE, "completed", at="01.020")]
    async with fed(backend) as heard:
        await heard.ends()
    assert heard.said == [(ONE, "working"), (ONE, "completed")]


async def test_what_is_older_than_what_was_said_is_left_out_unless_it_is_said_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch, unsaid=3_600.0)
    older = [shown(ONE, at=at, statusMessage=at) for at in ("01.030", "01.020", "01.010")]
    question = shown(ONE, "input_required", "01.040", inputRequests={})
    backend = Telling(shown(ONE))
    backend.first = [shown(ONE, at="01.050"), *older]
    async with fed(backend) as heard:
        await heard.has(ONE, "working")
        for _ in range(2):
            backend.say(question)
        await heard.has(ONE, "input_required")
        assert heard.said == [(ONE, "working"), (ONE, "input_required")]
        backend.say(shown(ONE, "completed", "02.000"))
        await heard.ends()
