"""What `bench.listen` measures, once each: how soon a change is read, what streams cost, and what is left of them.

The tasks are those of `bench.replicas:work`, which wait and show what is said of them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from . import load
from .processes import Server
from .streams import Snapshot, Stream, Told, nobody, opened

__all__ = ["Burst", "Crowd", "Heard", "Held", "burst", "crowd", "heard", "left", "waiting"]

_WITHIN: Final = 120.0
_SETTLED_WITHIN: Final = 30.0
_CONNECTIONS: Final = 32
_TASK: Final = b'"resultType":"task"'
_COMPLETE: Final = b'"resultType":"complete"'
_STATUS: Final = b'"status"'


# The tasks ------------------------------------------------------------------------------------------------------------


async def ask(server: Server, tool: str, **arguments: Any) -> Any:
    """What a tool of `bench.replicas` that is no task returns."""
    async with load.connected(server.port, 1) as client:
        (result,) = await client.all(iter([load.call(tool, **arguments)]), _COMPLETE)
    return _returned(result)


def _returned(result: Mapping[str, Any]) -> Any:
    if result.get("isError"):
        raise RuntimeError(result["content"])
    return result["structuredContent"]


async def waiting(server: Server, count: int) -> dict[str, str]:
    """So many new tasks of the server, which must run them: their ids, and the handles by which they can be changed."""
    async with load.connected(server.port, _CONNECTIONS) as client:
        made = await client.all(itertools.repeat(load.call("work"), count), _TASK)
    ids, deadline = {task["taskId"] for task in made}, time.monotonic() + _WITHIN
    while True:
        handles = (await ask(server, "handles"))["result"]
        found = {id_: handle for handle in handles if (id_ := handle.partition("~")[0]) in ids}
        if len(found) == count:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count - len(found)} tasks were not run")
        await asyncio.sleep(0.1)


# Latency --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """`asked` and `committed` by `time.monotonic`; `number` in the order of asking."""

    task_id: str
    number: int
    asked: float
    committed: float


@dataclass(slots=True)
class Readings:
    """When each change was known to a client: when it read the change, or a later one of the same task."""

    tag: str
    """What the messages of these changes begin with. A task may show an older one."""
    _numbers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _instants: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def see(self, snapshot: Snapshot, at: float) -> None:
        """A state was read. Its message tells which change led to it."""
        tag, _, number = snapshot.get("statusMessage", "").partition(" ")
        numbers = self._numbers.setdefault(snapshot["taskId"], [])
        if tag == self.tag and (not numbers or int(number) > numbers[-1]):
            numbers.append(int(number))
            self._instants.setdefault(snapshot["taskId"], []).append(at)

    def knew(self, change: Change) -> float | None:
        """When, by `time.monotonic`; None: not yet."""
        numbers = self._numbers.get(change.task_id, [])
        place = bisect_left(numbers, change.number)
        return self._instants[change.task_id][place] if place < len(numbers) else None

    def since(self, instant: float, change: Change) -> float:
        """Milliseconds from then until the change was known."""
        known = self.knew(change)
        if known is None:
            raise TimeoutError(f"change {change.number} of {change.task_id} was never read")
        return (known - instant) * 1e3


@dataclass(frozen=True, slots=True)
class Heard:
    """Milliseconds until each change was read: since its commit, by who listens and who polls; `whole`: and with it."""

    listening: list[float]
    whole: list[float]
    polling: list[float]


async def changed(server: Server, handles: Mapping[str, str], tag: str, count: int, rate: float) -> list[Change]:
    """Change the tasks in turn, so many times a second. Each message is the tag and the number of the change."""
    timetable = list(itertools.islice(itertools.cycle(handles.items()), count))
    requests = [load.call("say", handle=handle, message=f"{tag} {n}") for n, (_, handle) in enumerate(timetable)]
    # As few as keep each of them busy: the server closes those that are idle for some seconds.
    async with load.connected(server.port, max(1, min(_CONNECTIONS, int(rate / 2)))) as client:
        answers = await client.paced(requests, _COMPLETE, rate)
    said = [_returned(answer.result) for answer in answers]
    return [
        Change(task_id, number, each["asked"] / 1e9, each["committed"] / 1e9)
        for number, ((task_id, _), each) in enumerate(zip(timetable, said, strict=True))
    ]


async def polled(server: Server, task_ids: Sequence[str], tag: str, seconds: float, every: float) -> Readings:
    """Ask for each of the tasks again and again, for a little longer than that."""
    asked, rate = list(task_ids) * (math.ceil(seconds / every) + 2), len(task_ids) / every
    async with load.connected(server.port, max(1, min(_CONNECTIONS, int(rate / 2)))) as client:
        answers = await client.paced([load.get(task_id) for task_id in asked], _STATUS, rate)
    readings = Readings(tag)
    for answer in sorted(answers, key=lambda answer: answer.read):
        readings.see(answer.result, answer.read)
    return readings


async def heard(
    listened: Server, committing: Server, *, tasks: int, changes: int, rate: float, polled_every: float
) -> Heard:
    """Listen to and poll tasks on one server while they are changed on another, or on the same."""
    handles, tag = await waiting(committing, tasks), secrets.token_hex(4)
    reads = Readings(tag)
    async with opened(listened.port, map(load.listen, handles), reads.see) as streams:
        polling = asyncio.create_task(polled(listened, list(handles), tag, changes / rate, polled_every))
        made = await changed(committing, handles, tag, changes, rate)
        polls = await polling
        _expect_alive(streams)
    return Heard(
        [reads.since(change.committed, change) for change in made],
        [reads.since(change.asked, change) for change in made],
        [polls.since(change.committed, change) for change in made],
    )


def _expect_alive(streams: Sequence[Stream]) -> None:
    gone = sum(stream.lost or stream.ended for stream in streams)
    if gone:
        raise ConnectionResetError(f"{gone} streams have ended")


# Many streams ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crowd:
    """KiB that a stream of ours and one of the SDK's takes; milliseconds from a commit to its reader."""

    ours: float
    sdks: float
    latencies: list[float]


@asynccontextmanager
async def crowded(server: Server, requests: Sequence[bytes], told: Told = nobody) -> AsyncGenerator[float]:
    """All these streams, open inside. The value is how many KiB of the server's memory each of them takes.

    A fifth of them are open before the first look: they fill what the start-up left free, and the first are dearer.
    """
    few = max(1, len(requests) // 5)
    async with opened(server.port, requests[:few], told) as first:
        before = server.resident_bytes()
        async with opened(server.port, requests[few:], told) as others:
            yield (server.resident_bytes() - before) / 1024 / (len(requests) - few)
            _expect_alive([*first, *others])


async def crowd(server: Server, bare: Server, handles: Mapping[str, str], *, changes: int, rate: float) -> Crowd:
    """A stream for each of the tasks on `server`, as many for tools on `bare`; then changes of some tasks."""
    async with crowded(bare, [load.listen_for_tools()] * len(handles)) as sdks:
        pass
    readings = Readings(secrets.token_hex(4))
    some = dict(itertools.islice(handles.items(), 0, None, max(1, len(handles) // changes)))
    async with crowded(server, [load.listen(task_id) for task_id in handles], readings.see) as ours:
        made = await changed(server, some, readings.tag, changes, rate)
        await _until(lambda: all(readings.knew(change) is not None for change in made))
    return Crowd(ours, sdks, [readings.since(change.committed, change) for change in made])


@dataclass(frozen=True, slots=True)
class Burst:
    """What came of a burst. `latencies`: milliseconds from asking for a change to reading it, where it was read."""

    rate: float
    changes: int
    latencies: list[float]
    cut_off: int
    """Streams that did not live to see the end."""
    behind: int
    """Streams whose last frame is not the newest state of their task, some time after the end."""


async def burst(server: Server, handles: Mapping[str, str], *, rate: float, seconds: float) -> Burst:
    """Change the tasks in turn, so many a second in all, while each of them is listened to."""
    latencies: list[float] = []

    def see(snapshot: Snapshot, at: float) -> None:
        if snapshot.get("statusMessage", "").isdecimal():
            latencies.append((at - int(snapshot["statusMessage"]) / 1e9) * 1e3)

    async with opened(server.port, map(load.listen, handles), see) as streams:
        latencies.clear()
        done = await ask(server, "burst", handles=list(handles.values()), rate=rate, seconds=seconds)
        async with load.connected(server.port, _CONNECTIONS) as client:
            tasks = await client.all(map(load.get, handles), _STATUS)
        newest = {task["taskId"]: _state(task) for task in tasks}
        await _until(lambda: not _behind(streams, newest))
        cut_off, behind = sum(stream.lost or stream.ended for stream in streams), _behind(streams, newest)
    return Burst(done["changes"] / done["seconds"], done["changes"], latencies, cut_off, behind)


def _behind(streams: Sequence[Stream], newest: Mapping[str, Any]) -> int:
    return sum(any(_state(each) != newest[each["taskId"]] for each in stream.newest.values()) for stream in streams)


def _state(task: Mapping[str, Any]) -> Any:
    """What is said of the task, without what a message says of itself, and when to ask again: that is the poller's."""
    return {key: value for key, value in task.items() if key not in ("_meta", "resultType", "pollIntervalMs")}


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for it, for a while."""
    deadline = time.monotonic() + _SETTLED_WITHIN
    while not holds() and time.monotonic() < deadline:  # noqa: ASYNC110 - of which nobody tells
        await asyncio.sleep(0.05)


# Who comes and goes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """What a server has open."""

    streams: int
    tasks: int
    handles: int

    def beyond(self, before: Held) -> Held:
        return Held(
            max(0, self.streams - before.streams),
            max(0, self.tasks - before.tasks),
            max(0, self.handles - before.handles),
        )

    @property
    def nothing(self) -> bool:
        return not (self.streams or self.tasks or self.handles)


async def held(server: Server) -> Held:
    counts = await ask(server, "counts")
    return Held(counts["streams"], counts["tasks"], server.open_handles())


async def left(server: Server, task_ids: Sequence[str], connects: int) -> tuple[float, Held]:
    """Open so many streams, and hang up on each once it has brought a snapshot. How many a second; what is left."""
    await come_and_go(server, task_ids, _CONNECTIONS)
    before, started = await held(server), time.perf_counter()
    await come_and_go(server, task_ids, connects)
    rate, deadline = connects / (time.perf_counter() - started), time.monotonic() + _SETTLED_WITHIN
    found = (await held(server)).beyond(before)
    while not found.nothing and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        found = (await held(server)).beyond(before)
    return rate, found


async def come_and_go(server: Server, task_ids: Sequence[str], connects: int) -> None:
    requests, loop = itertools.islice(itertools.cycle(map(load.listen, task_ids)), connects), asyncio.get_running_loop()

    async def work() -> None:
        for request in requests:
            _, stream = await loop.create_connection(
                lambda request=request: Stream(request, nobody), "127.0.0.1", server.port
            )
            try:
                await stream.ready
            finally:
                stream.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONNECTIONS):
            group.create_task(work())
