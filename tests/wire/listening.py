"""Clients that keep a `subscriptions/listen` open, over HTTP and over pipes, and the judge of what they hear.

Every frame is judged before a test sees it: the schemas of the core and of the extension, and what these leave open
(contract 7). So a test says what is to be heard, and need not say how it has to look.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import httpx2

from perdure.domain.model import Claim, Demand
from tests.copies import Copy
from tests.support import PATIENCE
from tests.wire import checker
from tests.wire.checker import core, need, tasks
from tests.wire.envelopes import EVERYTHING, JSON, SERVER_INFO, Headers, envelope, member
from tests.wire.support import TERMINAL, Client, Piped, Reply, Stage, piped

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SNAPSHOT: Final = "notifications/tasks"
# The core kinds: what asks for one, and the definition of what is sent then.
KINDS: Final = {
    "notifications/tools/list_changed": ("toolsListChanged", "ToolListChangedNotification"),
    "notifications/prompts/list_changed": ("promptsListChanged", "PromptListChangedNotification"),
    "notifications/resources/list_changed": ("resourcesListChanged", "ResourceListChangedNotification"),
    "notifications/resources/updated": ("resourceSubscriptions", "ResourceUpdatedNotification"),
}


class Judge:
    """One stream, frame by frame: what it must begin with, what may come then, and how it ends."""

    def __init__(self, request: JSON) -> None:
        self.id = request["id"]
        self.asked: JSON = request["params"]["notifications"]
        self.honored: JSON = None
        self.over = False
        self._history = checker.History()
        self._shown: set[str] = set()

    def see(self, frame: JSON) -> None:
        need(not self.over, f"a frame after the end: {frame}")
        need(frame["jsonrpc"] == "2.0", "JSON-RPC 2.0")
        if "method" not in frame:
            self._see_end(frame)
            return
        need(set(frame) == {"jsonrpc", "method", "params"}, f"stray members of a notification: {sorted(frame)}")
        self._check_meta(frame["params"]["_meta"], {SUBSCRIPTION})
        match frame["method"]:
            case "notifications/subscriptions/acknowledged":
                self._see_acknowledgement(frame)
            case "notifications/tasks":
                self._see_snapshot(frame)
            case method:
                self._see_core(method, frame)

    def _check_meta(self, meta: JSON, members: set[str]) -> None:
        need(set(meta) == members, f"_meta with {sorted(meta)}")
        found = meta[SUBSCRIPTION]
        need((type(found), found) == (type(self.id), self.id), f"the stream {self.id!r} is called {found!r}")

    def _see_acknowledgement(self, frame: JSON) -> None:
        need(self.honored is None, "acknowledged twice")
        core(frame, "SubscriptionsAcknowledgedNotification")
        self.honored = frame["params"]["notifications"]
        tasks(self.honored, "TaskSubscriptionAcknowledgedNotifications")
        need(set(self.honored) <= set(self.asked), f"honored, and not asked for: {self.honored}")
        accepted = self.honored["taskIds"]
        in_order = [task_id for task_id in dict.fromkeys(self.asked["taskIds"]) if task_id in accepted]
        need(accepted == in_order, f"accepted {accepted} of {self.asked['taskIds']}")

    def _see_snapshot(self, frame: JSON) -> None:
        need(self.honored is not None, "a snapshot before the acknowledgement")
        tasks(frame, "TaskStatusNotification")
        task = frame["params"]
        need(task["taskId"] in self.honored["taskIds"], "a snapshot that nobody asked for")
        need("resultType" not in task, "a snapshot is no result")
        checker.check_task(task)
        self._history.see({**task, "resultType": "complete"})
        self._shown.add(task["taskId"])

    def _see_core(self, method: str, frame: JSON) -> None:
        need(self.honored is not None, "a notification before the acknowledgement")
        need(method in KINDS, f"{method} on a stream of subscriptions")
        kind, definition = KINDS[method]
        need(self.honored.get(kind), f"{method}, and nobody asked for it")
        core(frame, definition)

    def _see_end(self, frame: JSON) -> None:
        self.over = True
        need((type(frame["id"]), frame["id"]) == (type(self.id), self.id), "the end of another request")
        if "error" in frame:
            return
        need(self.honored is not None, "an end without a beginning")
        core(frame, "SubscriptionsListenResultResponse")
        result = frame["result"]
        need(set(result) == {"resultType", "_meta"}, f"stray members of the end: {sorted(result)}")
        need(result["resultType"] == "complete", f"resultType {result['resultType']!r}")
        self._check_meta(result["_meta"], {SUBSCRIPTION, SERVER_INFO})
        core(result["_meta"][SERVER_INFO], "Implementation")
        unseen = set(self.honored["taskIds"]) - self._shown
        need(not unseen, f"never shown: {unseen}")


class Listener:
    """One open stream. `frames` are all that came, in order."""

    def __init__(self, request: JSON, source: AsyncIterator[JSON]) -> None:
        self.judge = Judge(request)
        self.frames: list[JSON] = []
        self._source = source

    @property
    def accepted(self) -> list[str]:
        return self.judge.honored["taskIds"]

    async def frame(self) -> JSON:
        """The next frame, judged. None if the transport closed the stream."""
        async with asyncio.timeout(PATIENCE):
            frame = await anext(self._source, None)
        if frame is not None:
            self.judge.see(frame)
            self.frames.append(frame)
        return frame

    async def begun(self) -> list[str]:
        """Read the acknowledgement: the accepted ids."""
        frame = await self.frame()
        assert frame is not None, "the stream never began"
        assert frame.get("method") == ACKNOWLEDGED, frame
        return self.accepted

    async def snapshot(self) -> JSON:
        """The next snapshot, which has to be the next frame."""
        frame = await self.frame()
        assert frame is not None, "the stream was closed"
        assert frame.get("method") == SNAPSHOT, frame
        return frame["params"]

    async def until(self, wanted: Callable[[JSON], bool]) -> JSON:
        """The first snapshot for which that holds; whatever comes before is read."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the stream was closed"
            assert "method" in frame, f"it ended: {frame}"
            if frame["method"] == SNAPSHOT and wanted(frame["params"]):
                return frame["params"]

    async def reaches(self, *statuses: str) -> JSON:
        """The first snapshot with one of these statuses; any terminal one by default."""
        wanted = statuses or tuple(TERMINAL)
        return await self.until(lambda task: task["status"] in wanted)

    async def ends(self) -> list[JSON]:
        """Read to the end, which must be the listen result: the snapshots on the way."""
        seen: list[JSON] = []
        while True:
            frame = await self.frame()
            assert frame is not None, "the stream was closed without a result"
            if "method" not in frame:
                assert "result" in frame, frame
                return seen
            if frame["method"] == SNAPSHOT:
                seen.append(frame["params"])

    async def is_closed(self) -> None:
        """Read until the transport closes it; no result may come."""
        with suppress(httpx2.TransportError):
            while (frame := await self.frame()) is not None:
                assert "method" in frame, f"it ended: {frame}"


async def claimed(scene: Stage, tool: str) -> Claim:
    """The one task of a tool that is due, as a worker of the test's own holds it."""
    session = await scene.store.open_session(3_600_000, {})
    (claim,) = await scene.store.claim(session.id, [Demand(f"tools/call:{tool}", 1)], 1)
    return claim


def listeners(scene: Stage) -> int:
    """How many streams for tasks the server has open."""
    return scene.tasks.assembly.runtime.snapshots.subscribed


def listen_request(
    task_ids: JSON, *, id: JSON = 1, capabilities: JSON = EVERYTHING, also: JSON = None, **kinds: JSON
) -> JSON:
    """A whole request to listen for tasks, and for core `kinds` by their wire names. `also` goes into its `_meta`."""
    params: JSON = {"notifications": {"taskIds": task_ids, **kinds}}
    request = envelope("subscriptions/listen", params, id=id, capabilities=capabilities)
    request["params"]["_meta"].update(also or {})
    return request


# -- over HTTP ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(client: Client, *task_ids: str, **options: Any) -> AsyncGenerator[Listener]:
    """A stream that is open inside, from before its first frame.

    `options` are those of `listen_request`; `extra` headers go along.
    """
    extra = options.pop("extra", None)
    request = listen_request(list(task_ids), **options)
    async with client.streaming(request, extra) as response:
        assert response.status_code == 200, await response.aread()
        _check_headers(response)
        lines = _frames(response)
        yield Listener(request, lines)
        with suppress(RuntimeError):
            await lines.aclose()


async def refused(client: Client, request: JSON, extra: Headers | None = None) -> Reply:
    """The answer to a request that gets no stream, judged."""
    return client.judge(request, await client.exchange(request, extra))


def _check_headers(response: httpx2.Response) -> None:
    fields = response.headers
    need(fields["content-type"].startswith("text/event-stream"), f"content-type {fields['content-type']}")
    need("mcp-session-id" not in fields, "there are no sessions in this era")
    need("no-cache" in fields.get("cache-control", ""), "a stream is not for caches")


async def _frames(response: httpx2.Response) -> AsyncGenerator[JSON]:
    """The JSON of each event. Comments are left out, and nothing but data and the type may come."""
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name == "data":
            yield json.loads(value)
        elif name == "event":
            need(value.strip() == "message", f"an event of type {value}")
        else:
            need(name == "", f"a line that is no part of such a stream: {line}")


# -- over pipes --------------------------------------------------------------------------------------------------------


class Duplex(Piped):
    """A raw client of a child that speaks stdio, which may have many requests open at once."""

    def __init__(self, child: Copy) -> None:
        super().__init__(child)
        self.heard: list[JSON] = []
        """Everything, in the order of the pipe."""
        self._expected: dict[JSON, asyncio.Queue[JSON]] = {}
        self._reading = asyncio.create_task(self._read_on())

    async def exchange(self, body: JSON, extra: Headers | None = None) -> Reply:
        assert extra is None, "pipes have no headers"
        with self._expecting(body["id"]) as answers:
            await self.write(json.dumps(body).encode())
            async with asyncio.timeout(PATIENCE):
                answer = await answers.get()
        assert answer is not None, "the server hung up"
        code = answer.get("error", {}).get("code")
        return Reply(checker.http_status(code), json.dumps(answer).encode(), answer)

    @asynccontextmanager
    async def listening(self, *task_ids: str, **options: Any) -> AsyncGenerator[Listener]:
        """A stream on the pipe. `options` are those of `listen_request`. Outside the client has given it up."""
        request = listen_request(list(task_ids), **options)
        with self._expecting(request["id"]) as frames:
            await self.write(json.dumps(request).encode())
            listener = Listener(request, _queued(frames))
            yield listener
            if not listener.judge.over:
                await self.give_up(request["id"])

    def hang_up(self) -> None:
        """End the server's input."""
        assert self.child.stdin is not None
        self.child.stdin.close()

    async def read_to_the_end(self) -> None:
        """Until the server says no more, being over."""
        await self._reading

    async def give_up(self, request_id: JSON) -> None:
        note = envelope("notifications/cancelled", {"requestId": request_id})
        del note["id"]
        await self.write(json.dumps(note).encode())

    @contextmanager
    def _expecting(self, request_id: JSON) -> Generator[asyncio.Queue[JSON]]:
        """What comes for one request: its answer, and the notifications of the stream that has its id."""
        queue = self._expected[request_id] = asyncio.Queue()
        try:
            yield queue
        finally:
            self._expected.pop(request_id, None)

    async def _read_on(self) -> None:
        assert self.child.stdout is not None
        while line := await self.child.stdout.readline():
            message = json.loads(line)
            self.heard.append(message)
            queue = self._expected.get(message["id"] if "id" in message else _stream_of(message))
            if queue is not None:
                queue.put_nowait(message)
        for queue in self._expected.values():
            queue.put_nowait(None)


def _stream_of(message: JSON) -> JSON:
    return member(member(member(message, "params"), "_meta"), SUBSCRIPTION)


async def _queued(frames: asyncio.Queue[JSON]) -> AsyncGenerator[JSON]:
    while (frame := await frames.get()) is not None:
        yield frame


@asynccontextmanager
async def duplex(*command: str) -> AsyncGenerator[Duplex]:
    """As `piped`."""
    async with piped(*command, speak=Duplex) as up:
        yield up
