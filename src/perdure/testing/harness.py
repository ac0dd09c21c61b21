"""The deterministic worker: claims, runs and moves time only when the test says so.

It runs what is due, one run after the other and each to its end or its next wait, then stands still. `advance` goes
from timer to timer, so a tool that sleeps for three days wakes once a day if it says so. The coroutine of a run is
real: whatever it awaits besides the verbs of its context takes its real time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self, cast

from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from perdure.domain.errors import LeaseLost, LimitExceeded, StoreUnavailable
from perdure.domain.model import JSON, Claim, Demand, Owner, Status
from perdure.domain.operating import Listed, Which
from perdure.domain.policy import Duration, milliseconds
from perdure.engine.execution import Execution
from perdure.ops.app import Tasks
from perdure.ops.stores import open_store
from perdure.store.base import Store
from perdure.store.clock import Clock
from perdure.store.memory import MemoryStore
from perdure.tools.declaration import TaskTool
from perdure.tools.kinds import KINDS
from perdure.tools.retrying import original
from perdure.wire.answers import check
from perdure.wire.calls import new_task
from perdure.wire.identity import LOCAL

from .clock import VirtualClock
from .crashing import Crash, Fate, mortal
from .view import TaskView, quoted

__all__ = ["Harness", "crash_everywhere"]

_FOREVER: Final = 1000 * 366 * 86_400_000
"""The lease of the harness, in milliseconds: time that is moved by years must not let it lapse."""
_UNFINISHED: Final = frozenset(status for status in Status if not status.terminal)
_PART: Final = 1000
"""How many tasks it looks at at once."""
_MOST_RUNS: Final = 10_000
"""How many runs one call of the harness may set off: more means that something never comes to rest."""
_ENVELOPES: Final = frozenset({"action", "role", "roots"})
"""What the three kinds of responses are known by."""


class Harness:
    """Runs the tools of `tasks` deterministically. An async context manager.

    Args:
        tasks: whose tools to run. Its own store is left alone: inside the block, `store` takes its place.
        store: a URL, or what makes a store, given the virtual clock; in memory by default. Over one that another
            harness has filled, time goes on from where it stood for that one.
        state: what the server's lifespan would yield (`task.lifespan_context`).
        owner: whose tasks they are.
        crash_at: the number of the write, from 1, at which the worker dies; None: it does not.
        crash_after: it dies just after that write became durable, rather than just before.
    """

    def __init__(
        self,
        tasks: Tasks,
        *,
        store: str | Callable[[Clock], Store] = MemoryStore,
        state: object = None,
        owner: Owner = LOCAL,
        crash_at: int | None = None,
        crash_after: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.crashes = 0
        """How many workers have died."""
        self._assembly = tasks.assembly
        self._store = open_store(store, self.clock) if isinstance(store, str) else store(self.clock)
        self._state = state
        self._owner = owner
        self._fate = Fate(crash_at, crash_after)
        self._worker = mortal(self._store, self._fate)
        self._session = ""
        self._raised: dict[str, list[BaseException]] = {}
        """By the id of each task that was called or run."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            before = self._assembly.lend(self._store, self._state)
            stack.callback(self._assembly.lend, before, None)
            # Opened as everybody's who uses these tasks, so that `tasks.external` does not close it underneath.
            await stack.enter_async_context(self._assembly.runtime.connected())
            self.clock.now = await self._latest()
            await self._begin()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, ""
        try:
            with suppress(LeaseLost, StoreUnavailable):  # the test may have taken the store away
                await self._store.renew(session, _FOREVER)  # so it says until when time went here
        finally:
            await self._stack.aclose()

    @property
    def writes(self) -> int:
        """How many writes the runs have made, the fatal one included."""
        return self._fate.writes

    @property
    def crashed_at(self) -> str | None:
        """The write that the worker died at, such as "record of step 'charge'"; None if none has died."""
        return self._fate.struck

    # -- what a client does --------------------------------------------------------------------------------------------

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, prepared: JSON = None) -> TaskView:
        """Call a task tool, and run what there is to run.

        `prepared` is what its `prepare` function would have returned; the function itself belongs to a request.

        Raises:
            KeyError: there is no such tool.
            ToolError: the arguments don't fit it.
            RuntimeError: the harness was not entered; as for all that follow.
        """
        self._check_entered()
        tool = self._tool(name)
        tool.validate(dict(arguments or {}))
        new = new_task(tool, dict(arguments or {}), prepared, self._owner, KINDS)
        created = await self._store.create(new)
        self._raised.setdefault(created.id, [])
        await self.run()
        return await self.look(created.id)

    async def answer(self, task: TaskView | str, responses: Mapping[str, JSON], *, late: bool = False) -> TaskView:
        """Answer open questions, and run what there is to run.

        A response is written as the client sends it; for an elicitation, plain content may stand in for
        `{"action": "accept", "content": content}`. `late`: there may be some to what is not asked, or no longer; the
        server ignores them, and so does this.

        Raises:
            AssertionError: one does not fit its question, so that the server would refuse it; or is to none.
        """
        self._check_entered()
        plain = {key: _response(value) for key, value in responses.items()}
        questions = await self._store.open_questions(self._owner, _id(task))
        asked = [question.key for question in questions]
        if not late and (strange := [key for key in plain if key not in asked]):
            raise AssertionError(await self._not_asked(task, asked, strange))
        try:
            fitting = check(questions, plain, self._assembly.options.limits)
        except MCPError as misfit:
            raise AssertionError(misfit.error.message) from None
        except LimitExceeded as large:
            raise AssertionError(str(large)) from None
        await self._store.answer(self._owner, _id(task), fitting)
        await self.run()
        return await self.look(task)

    async def cancel(self, task: TaskView | str) -> TaskView:
        """Ask the task to stop, and run what there is to run."""
        self._check_entered()
        await self._store.request_cancel(self._owner, _id(task))
        await self.run()
        return await self.look(task)

    async def look(self, task: TaskView | str) -> TaskView:
        """The task as it is now."""
        return TaskView(await self._store.inspect(_id(task)), tuple(self._raised.get(_id(task), ())))

    # -- time ----------------------------------------------------------------------------------------------------------

    async def advance(self, duration: Duration) -> None:
        """Let time pass, from timer to timer, and run what becomes due at each."""
        until = self.clock.now + milliseconds(duration)
        await self.run()
        while (due := await self._next_timer()) is not None and due <= until:
            self.clock.now = max(self.clock.now, due)
            await self.run()
        self.clock.now = max(self.clock.now, until)
        await self.run()

    async def run(self) -> None:
        """Run whatever is due, until nothing is.

        Raises:
            AssertionError: it never comes to rest.
        """
        self._check_entered()
        for _ in range(_MOST_RUNS):
            claims = await self._store.claim(self._session, self._demands(), 1)
            if not claims:
                return
            await self._execute(claims[0])
        raise AssertionError(f"After {_MOST_RUNS} runs there is still something due: a tool waits for nothing")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_entered(self) -> None:
        if not self._session:
            raise RuntimeError("The harness is not open: use it inside of `async with Harness(tasks) as harness:`")

    def _tool(self, name: str) -> TaskTool:
        try:
            return self._assembly.catalog.tools[name]
        except KeyError:
            names = sorted({handler.partition(":")[2].partition("@")[0] for handler in self._assembly.catalog.handlers})
            raise KeyError(f"there is no task tool {name!r}; there are: {quoted(names) or 'none'}") from None

    async def _not_asked(self, task: TaskView | str, asked: list[str], strange: list[str]) -> str:
        if asked:
            return f"The task asks {quoted(asked)}, not {quoted(strange)}"
        status = (await self.look(task)).status
        return (
            f"The task is {status} and asks nothing, not {quoted(strange)}: to show that it is ignored, pass late=True"
        )

    async def _latest(self) -> int:
        """Where time goes on: where it stood for the harnesses that used the store before, and after every change."""
        sessions = [session for session, _ in await self._store.sessions()]
        left = [session.expires_at - _FOREVER for session in sessions if session.info.get("harness")]
        changed = [task.updated_at async for task in self._listed(Which())]
        return max([self.clock.now, *left, *changed])

    async def _listed(self, which: Which) -> AsyncGenerator[Listed]:
        listing = await self._store.browse(which, None, _PART)
        while True:
            for task in listing.tasks:
                yield task
            if listing.next is None:
                return
            listing = await self._store.browse(which, listing.next, _PART)

    async def _begin(self) -> None:
        self._session = (await self._store.open_session(_FOREVER, {"harness": True})).id

    def _demands(self) -> list[Demand]:
        return [Demand(name, 1) for name in sorted(self._assembly.catalog.handlers)]

    async def _execute(self, claim: Claim) -> None:
        handler = self._assembly.catalog.handlers[claim.operation.handler]
        with _noting(self._raised.setdefault(claim.task.id, [])):
            limits = self._assembly.options.limits
            execution = Execution(
                self._worker, handler, claim, cleanup=0.5, limits=limits, pause=self._pause, chance=_no_jitter
            )
            self._fate.on_death = execution.abandon
            with suppress(Crash):  # which is how it comes out of the write of what the run came to
                await execution.see_through()
            execution.abandon()
            await execution.gone()
        if self._fate.dead:
            await self._succeed()

    async def _succeed(self) -> None:
        """Another worker takes the place of the dead one."""
        self.crashes += 1
        dead, self._fate.dead = self._session, False
        self._fate.at = None
        self._worker = mortal(self._store, self._fate)
        await self._begin()
        await self._store.take_over([dead], keep=[self._session])

    async def _pause(self, seconds: float) -> None:
        self.clock.now += round(seconds * 1000)

    async def _next_timer(self) -> int | None:
        """Of all tasks that there are. What is due by now and was not run, none of these tools can run."""
        runs = [task.run async for task in self._listed(Which(_UNFINISHED))]
        due = [run.due_at for run in runs if run is not None and run.due_at is not None]
        return min((at for at in due if at > self.clock.now), default=None)


async def crash_everywhere(make: Callable[..., Harness], scenario: Callable[[Harness], Awaitable[None]]) -> int:
    """Play a scenario undisturbed, then with a worker dying at each write of it, on either side of that write.

    Whatever the scenario asserts has to hold each time. Returns how many crashes were played. If one of them breaks the
    scenario, what that raises carries a note that says which, and how to play it again.

    `make` makes a harness for each play, with the keyword arguments `crash_at` and `crash_after` passed on; make the
    `Tasks` anew in it as well if its tools keep something between calls. A scenario must not count on when a task does
    something, only on what comes of it: a step in flight at the crash runs again.
    """
    async with make() as harness:
        await scenario(harness)
        writes = harness.writes
    for at in range(1, writes + 1):
        for after in (False, True):
            await _crash_once(make, scenario, at, after, f"crash {2 * at - 1 + after} of {writes * 2}")
    return writes * 2


async def _crash_once(
    make: Callable[..., Harness], scenario: Callable[[Harness], Awaitable[None]], at: int, after: bool, which: str
) -> None:
    harness = make(crash_at=at, crash_after=after)
    try:
        async with harness:
            await scenario(harness)
            if harness.crashes != 1:
                raise AssertionError(f"The scenario did not come to its write number {at} again")
    except BaseException as error:
        moment = f"just {'after' if after else 'before'} its write number {at}"
        died = f"died {moment} ({harness.crashed_at})" if harness.crashed_at else f"was to die {moment}"
        again = f"Harness(tasks, crash_at={at}{', crash_after=True' if after else ''})"
        error.add_note(f"{which}: the worker {died}; play it again with {again}")
        raise


@contextmanager
def _noting(raised: list[BaseException]) -> Generator[None]:
    """Keep what is logged with a traceback in the block: there is no other trace of what a tool raised."""
    ear, logger = _Ear(raised), logging.getLogger("perdure")
    logger.addHandler(ear)
    try:
        yield
    finally:
        logger.removeHandler(ear)


class _Ear(logging.Handler):
    def __init__(self, raised: list[BaseException]) -> None:
        super().__init__()
        self._raised = raised

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Crash):
            self._raised.append(original(error) if isinstance(error, ToolError) else error)


def _no_jitter() -> float:
    """Each wait of a retry is as long as it may be, and the same in every play."""
    return 0.0


def _id(task: TaskView | str) -> str:
    return task if isinstance(task, str) else task.id


def _response(value: JSON) -> JSON:
    if isinstance(value, dict) and not _ENVELOPES & value.keys():
        return cast("JSON", {"action": "accept", "content": value})
    return value
