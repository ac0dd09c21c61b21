"""Any order of changes, listeners and hang-ups: each stream is judged by the history of the tasks that it follows.

The test is the only one that writes, and notes how a task stands after each change. What a stream shows of a task has
to be some of these states, in their order, from one that is no older than the request on; the last one has to be among
them, unless the listener has hung up before; and it ends when all of its tasks are over, and no sooner.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.domain.model import Claim, Completed, Demand
from perdure.wire.identity import ANONYMOUS
from tests.store.support import asks
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON
from tests.wire.listening import SNAPSHOT, Listener, listeners, listening
from tests.wire.support import TERMINAL, Stage, stage
from tests.wire.tools import Tools

UNKNOWN = "tsk_" + "a" * 32
SCHEMA: JSON = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
CHANGES = ("report", "ask", "answer", "finish", "cancel")

steps = st.one_of(
    st.tuples(st.just("create"), st.just(0)),
    st.tuples(st.sampled_from(CHANGES), st.integers(0, 5)),
    st.tuples(st.just("listen"), st.integers(0, 63)),
    st.tuples(st.just("hang up"), st.integers(0, 7)),
    st.tuples(st.just("breathe"), st.integers(0, 3)),
)


@dataclass
class Job:
    """One task. `history`: what `tasks/get` said of it after each change."""

    id: str
    claim: Claim | None = None
    open_key: str | None = None
    history: list[JSON] = field(default_factory=list[JSON])

    @property
    def over(self) -> bool:
        return self.history[-1]["status"] in TERMINAL


@dataclass
class Follower:
    """One listener, which reads as fast as it can. `since`: how long each history was when it asked."""

    jobs: list[Job]
    since: dict[str, int]
    shown: dict[str, list[JSON]] = field(default_factory=dict[str, list[JSON]])
    accepted: list[str] | None = None
    ended: bool = False
    reading: "asyncio.Task[None] | None" = None

    async def follow(self, stream: Listener) -> None:
        self.accepted = await stream.begun()
        while (frame := await stream.frame()) is not None and "method" in frame:
            assert frame["method"] == SNAPSHOT
            self.shown.setdefault(frame["params"]["taskId"], []).append(_bare(frame["params"]))
        assert frame is not None, "the stream was closed"
        assert all(self.shown[job.id][-1]["status"] in TERMINAL for job in self.jobs), "it ended too soon"
        self.ended = True

    def is_up_to_date(self) -> bool:
        return self.accepted is not None and all(
            self.shown.get(job.id, [None])[-1] == job.history[-1] for job in self.jobs
        )

    def check(self) -> None:
        for job in self.jobs:
            at = self.since[job.id] - 2
            for state in self.shown.get(job.id, []):
                later = job.history[at + 1 :]
                assert state in later, f"{state} is not among {later}"
                at += 1 + later.index(state)


class World:
    def __init__(self, scene: Stage, session: str) -> None:
        self.scene = scene
        self.session = session
        self.jobs: list[Job] = []
        self.followers: list[Follower] = []
        self.live: list[Follower] = []
        self._count = 0

    async def step(self, verb: str, number: int) -> None:
        match verb:
            case "create":
                job = Job(await self.scene.client.start("gated"))
                self.jobs.append(job)
                await self._note(job)
            case "listen":
                await self._listen([job for place, job in enumerate(self.jobs[:6]) if number >> place & 1])
            case "hang up" if self.live:
                await self._hang_up(self.live[number % len(self.live)])
            case "breathe":
                await asyncio.sleep(number / 200)  # time for some frames to come; none has to
            case _ if verb in CHANGES and self.jobs:
                await self._change(self.jobs[number % len(self.jobs)], verb)
            case _:
                pass

    async def _change(self, job: Job, verb: str) -> None:
        store, count = self.scene.store, self._next()
        if job.over:
            return
        if verb == "cancel":
            await store.request_cancel(ANONYMOUS, job.id)
        elif verb == "answer" and job.open_key is not None:
            await store.answer(ANONYMOUS, job.id, {job.open_key: {"action": "decline"}})
            job.open_key = None
        elif verb in ("report", "ask", "finish"):
            claim = await self._held(job)
            if claim is not None:
                await self._work(job, claim, verb, count)
        await self._note(job)

    async def _work(self, job: Job, claim: Claim, verb: str, count: int) -> None:
        store = self.scene.store
        if verb == "report":
            await store.report(claim, f"message {count}")
            return
        if verb == "finish":
            await store.finish(claim, Completed({"content": [{"type": "text", "text": f"{count}"}]}))
        else:
            question: JSON = {
                "method": "elicitation/create",
                "params": {"message": f"{count}?", "requestedSchema": SCHEMA},
            }
            job.open_key = f"key {count}"
            await store.park(claim, asks(**{job.open_key: question}))
        job.claim = None

    async def _held(self, job: Job) -> Claim | None:
        if job.claim is None:
            claims = await self.scene.store.claim(self.session, [Demand("tools/call:gated", 100)], 100)
            for claim in claims:
                next(each for each in self.jobs if each.id == claim.task.id).claim = claim
        return job.claim

    async def _note(self, job: Job) -> None:
        job.history.append(_bare((await self.scene.client.get(job.id)).result))

    async def _listen(self, jobs: list[Job]) -> None:
        follower = Follower(jobs, {job.id: len(job.history) for job in jobs})
        asked = [job.id for job in jobs]
        begun = asyncio.Event()

        async def follow() -> None:
            async with listening(self.scene.client, UNKNOWN, *asked, id=self._next()) as stream:
                begun.set()
                await follower.follow(stream)

        follower.reading = asyncio.create_task(follow())
        self.followers.append(follower)
        self.live.append(follower)
        async with asyncio.timeout(PATIENCE):
            await begun.wait()

    async def _hang_up(self, follower: Follower) -> None:
        self.live.remove(follower)
        assert follower.reading is not None
        follower.reading.cancel()
        with suppress(asyncio.CancelledError):
            await follower.reading

    async def settle(self) -> None:
        """Everybody catches up; then all tasks are finished, and every stream that is left ends."""
        await self._until(lambda: all(each.is_up_to_date() for each in self.live), "some never caught up")
        for job in self.jobs:
            await self._change(job, "cancel")
            await self._change(job, "finish")
        await self._until(lambda: all(each.ended and each.is_up_to_date() for each in self.live), "some never ended")
        await eventually(lambda: listeners(self.scene) == 0, "streams are still open")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        def failed() -> bool:
            return any(each.reading is not None and each.reading.done() and not each.ended for each in self.live)

        await eventually(lambda: holds() or failed(), what)
        for each in self.live:
            if each.reading is not None and each.reading.done():
                each.reading.result()

    def _next(self) -> int:
        self._count += 1
        return self._count


def _bare(task: JSON) -> JSON:
    return {name: value for name, value in task.items() if name not in ("resultType", "_meta")}


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    with tempfile.TemporaryDirectory() as folder:
        async with stage(Path(folder), Tools().declare, worker=False) as scene:
            session = await scene.store.open_session(3_600_000, {})
            made = World(scene, session.id)
            try:
                yield made
            finally:
                for follower in made.followers:
                    if follower.reading is not None:
                        follower.reading.cancel()
                await asyncio.gather(*(each.reading for each in made.followers if each.reading), return_exceptions=True)


@settings(max_examples=12)
@given(st.lists(steps, min_size=10, max_size=60))
async def test_every_stream_agrees_with_the_history_of_its_tasks(script: list[tuple[str, int]]) -> None:
    async with world() as made:
        for _ in range(2):
            await made.step("create", 0)
        for verb, number in script:
            await made.step(verb, number)
        await made.settle()
        for follower in made.followers:
            follower.check()
            if follower.accepted is not None:
                assert follower.accepted == [job.id for job in follower.jobs]
