"""What the engine's tests work with: handlers made from functions, a worker for a while, tasks driven by hand."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from perdure.domain.journal import Entry
from perdure.domain.limits import Limits
from perdure.domain.model import JSON, Asked, Claim, Completed, Demand, JSONObject, Outcome, Status, Task
from perdure.domain.timeline import EventKind
from perdure.engine.execution import Execution
from perdure.engine.handler import Again, Handler, Placement
from perdure.engine.run import Run
from perdure.engine.steps import Step, step
from perdure.engine.worker import Worker
from perdure.store.base import Store
from tests.store.support import ADA, new_task
from tests.support import PATIENCE, eventually

LEASE: Final = 30_000
HOUR: Final = 3_600_000
HANDLER: Final = "tools/call:report"

Work = Callable[[Run, JSONObject], Awaitable[Outcome | Again]]
"""What a coroutine handler does. Most tools are tested by what they return, as the structure of their result."""


def done(text: str = "done") -> Completed:
    return Completed({"content": [{"type": "text", "text": text}]})


OVERRUN: Final = done("ran out of time")


def question(message: str) -> JSONObject:
    return {"method": "elicitation/create", "params": {"message": message}}


async def ask(run: Run, **questions: JSONObject | Asked) -> dict[str, JSON]:
    """The answers to questions, by key; None to one that was given up."""
    asked = {key: each if isinstance(each, Asked) else Asked(each) for key, each in questions.items()}
    return {key: closed.response for key, closed in (await run.ask(asked)).items()}


async def value(run: Run, name: str, result: JSON = None) -> JSON:
    """A step that does nothing but return."""

    async def call() -> JSON:
        return result

    return await step(run, Step(name, call))


# -- handlers ----------------------------------------------------------------------------------------------------------


def _overrun(run: Run) -> Outcome | Again:
    return OVERRUN


class Coroutine:
    """A handler whose work is a coroutine function."""

    threaded = False

    def __init__(
        self,
        work: Work,
        *,
        placement: Placement | None = None,
        overrun: Callable[[Run], Outcome | Again] = _overrun,
    ) -> None:
        self._work = work
        self._overrun = overrun
        self.placement = placement or Placement()

    async def __call__(self, run: Run, params: JSONObject) -> Outcome | Again:
        return await self._work(run, params)

    def overrun(self, run: Run) -> Outcome | Again:
        return self._overrun(run)


class Tool(Coroutine):
    """One that makes sure at its end that it has come by all that the task once did."""

    async def __call__(self, run: Run, params: JSONObject) -> Outcome | Again:
        outcome = await super().__call__(run, params)
        await run.conclude()
        return outcome


class Thread:
    """A handler whose work is a plain function, run in a thread."""

    threaded = True
    placement = Placement()

    def __init__(self, work: Callable[[Run], Outcome]) -> None:
        self._work = work

    async def __call__(self, run: Run, params: JSONObject) -> Outcome | Again:
        return await asyncio.to_thread(self._work, run)

    def overrun(self, run: Run) -> Outcome | Again:
        return OVERRUN


def handlers(**by_name: Work | Handler) -> dict[str, Handler]:
    """Handlers for the tools of these names; a bare function stands for a coroutine handler."""
    return {
        f"tools/call:{name}": work if isinstance(work, Coroutine | Thread) else Coroutine(work)
        for name, work in by_name.items()
    }


# -- a worker ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    concurrency: int = 8,
    lease_ms: int = LEASE,
    grace_ms: int = 5_000,
    poll_ms: int = 50,
    cleanup_ms: int = 10_000,
    queues: Mapping[str, int | None] | None = None,
) -> AsyncGenerator[Worker]:
    """A worker that serves inside, and is stopped and done with its shutdown outside. A crash of it comes out here."""
    worker = Worker(
        store,
        handlers,
        concurrency=concurrency,
        lease_ms=lease_ms,
        grace_ms=grace_ms,
        poll_ms=poll_ms,
        cleanup_ms=cleanup_ms,
        queues=queues,
    )
    task = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        await stopped(worker, task)


async def stopped(worker: Worker, serving: asyncio.Task[None]) -> None:
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await serving


async def worker_session(store: Store) -> str:
    """The session of the only worker, once it has one."""

    async def opened() -> bool:
        return len(await store.sessions()) == 1

    await eventually(opened, "the worker opened no session")
    ((session, _),) = await store.sessions()
    return session.id


async def claim_as_another(store: Store, name: str = "report") -> Claim:
    """Claim one run under a session of its own, as another process would."""
    session = await store.open_session(HOUR, {"host": "elsewhere"})
    (claim,) = await store.claim(session.id, [Demand(f"tools/call:{name}", 1)], 1)
    return claim


# -- by hand -----------------------------------------------------------------------------------------------------------


class Stage:
    """One task whose runs are driven by hand, each by a worker of its own: no polling, and time only moves when told.

    `pauses` are the short waits between the tries of steps, in seconds; none of them takes any time.
    """

    def __init__(self, store: Store, work: Work | Handler, *, cleanup: float = PATIENCE, limits: Limits | None = None):
        self.store = store
        self.handler: Handler = work if isinstance(work, Coroutine | Thread) else Tool(work)
        self.pauses: list[float] = []
        self.pause: Callable[[float], Awaitable[None]] = self._pause
        self.chance: Callable[[], float] = lambda: 0.0
        self.task: Task
        self.claim: Claim
        self._cleanup = cleanup
        self._limits = limits

    async def create(self, *, timeout_ms: int | None = None, max_attempts: int = 10) -> Task:
        self.task = await self.store.create(new_task(timeout_ms=timeout_ms, max_attempts=max_attempts))
        return self.task

    async def begin(self) -> Execution:
        """The next run of the task, which must be due; creates the task, if there is none yet."""
        if not hasattr(self, "task"):
            await self.create()
        self.claim = await claim_as_another(self.store)
        return Execution(
            self.store,
            self.handler,
            self.claim,
            cleanup=self._cleanup,
            limits=self._limits,
            pause=self.pause,
            chance=self.chance,
        )

    async def run(self) -> Task:
        """The task after its next run."""
        execution = await self.begin()
        async with asyncio.timeout(PATIENCE):
            await execution.see_through()
            await execution.gone()
        return await self.now()

    async def result(self) -> JSONObject:
        """What the task completed with in its next run."""
        over = await self.run()
        assert over.status is Status.COMPLETED, over
        assert over.result is not None
        return over.result

    async def error(self) -> str:
        """The message with which the task failed in its next run."""
        over = await self.run()
        assert over.status is Status.FAILED, over
        assert over.error is not None
        return over.error.message

    async def now(self) -> Task:
        return await self.store.get(ADA, self.task.id)

    async def is_due(self) -> bool:
        """Whether the next run may begin."""
        return bool(await self.store.backlog(1))

    async def entries(self) -> Mapping[str, Entry]:
        """What is in the journal, by place."""
        return (await self.store.inspect(self.task.id)).journal.entries

    async def events(self) -> list[tuple[EventKind, str]]:
        """What is in the timeline."""
        return [(event.kind, event.detail) for event in (await self.store.inspect(self.task.id)).events]

    async def crash(self, execution: Execution) -> None:
        """The worker of a run dies, as far as the store can tell, and somebody finds that out."""
        execution.abandon()
        run = (await self.store.inspect(self.task.id)).run
        assert run is not None
        assert run.session is not None
        await self.store.take_over([run.session])

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


# -- looking -----------------------------------------------------------------------------------------------------------


async def ended(store: Store, task: Task, *, within: float = PATIENCE) -> Task:
    """The task once it is over."""
    return await _reaches(store, task, lambda now: now.status.terminal, within)


async def asking(store: Store, task: Task, *keys: str) -> Task:
    """The task once it waits for exactly these answers."""
    return await _reaches(store, task, lambda now: tuple(entry.key for entry in now.inputs) == keys, PATIENCE)


async def _reaches(store: Store, task: Task, wanted: Callable[[Task], bool], within: float) -> Task:
    async def there() -> bool:
        return wanted(await store.get(task.owner, task.id))

    await eventually(there, f"task {task.id} did not get there", within=within)
    return await store.get(task.owner, task.id)


async def status(store: Store, task: Task) -> Status:
    return (await store.get(task.owner, task.id)).status


async def answer(store: Store, task: Task, **responses: JSON) -> Task:
    return await store.answer(ADA, task.id, responses)
