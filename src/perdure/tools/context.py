"""`TaskContext`, what a coroutine tool sees of its task: the run's verbs behind the SDK's own `Context`.

It is a subclass so that the SDK injects it by annotation, as it does with its own. What belongs to a request (session,
headers, log) is not available: the task outlives its request. Only `report_progress` has a meaning without one, and
becomes the status message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, cast, overload

from mcp_types import ListRootsResult, SamplingMessage
from pydantic import BaseModel

from perdure.domain.policy import Duration
from perdure.domain.retry import Retry

from .base import BaseContext, Sampled, progress_text
from .external import Look, Start
from .questions import Answer, Elicit, ElicitUrl, ListRoots, Question, Sample

__all__ = ["TaskContext"]

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
Args = TypeVarTuple("Args")


class TaskContext(BaseContext):
    """A coroutine tool's view of its task; annotate a parameter with it.

    A tool is run again from its first line after every wait and every crash. What its durable verbs (`step`, `sleep`,
    the questions, `gather`) have come to is on record, and they return it again without doing anything. So what stands
    between them runs again, and must be safe to; and a tool must come by the same verbs in the same order each time:
    let nothing decide about them that may change from run to run, such as the time or chance, except in a step.

    Waiting costs nothing. Where a verb has to wait, the task parks: the coroutine is unwound, nothing of it stays in
    memory, and the tool is run again once there is a reason to. It may be days, and another machine.

    Every question has a key, unique for the life of the task, and must be the same each time that the tool runs. All
    asking verbs raise `MCPError` (-32021, failing the task unless it is caught) if the client that called the tool did
    not declare that it can answer, and `InputKeyReused` if the key stands for another question. `elicit` and `ask`
    raise `ToolError` if an answer fits the question's schema but not what the model's own validators ask for; the key
    is used up then, so ask again under another. With a `timeout`, the tool goes on without an answer once that time has
    passed since the question was asked first: the answer's action is "timeout", and what has no action is None. The key
    is used up then as well, and what is answered later is ignored.

    Every durable verb raises `JournalMismatch` if the task's journal has something else at this place, and
    `ConfigurationError` within a step, or if it is given what is no function where it takes one; all of them fail the
    task. It raises `InvalidDuration` for a duration that is unreadable, zero or negative, and, where it leaves an entry
    in the journal, `LimitExceeded` if that is full.
    """

    async def report(self, message: str) -> None:
        """Show `message` as the task's status message. It may be shown to people; it replaces the one before.

        Raises:
            NotStorable: it is no valid Unicode.
        """
        await self._report(message)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As the SDK's, so that a tool which calls it can become a task: shows `message`, or "1/2"."""
        await self._report(progress_text(progress, total, message))

    # -- what is done once ---------------------------------------------------------------------------------------------

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: type[T],
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: None = None,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], T],
        *args: *Args,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: None = None,
    ) -> T: ...
    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> Any:
        """What `fn(*args)` returns, from now on: it is on record, and later runs of the tool get it without calling.

        A crash costs the step in flight at most: nobody knows how far it got, so `fn` is called again.

        Args:
            name: says to people what is done. Two steps may have the same; what tells them apart is their order.
            fn: a coroutine function, or a plain one, which is called in a thread. For keyword arguments pass a
                `functools.partial`. It can't use the durable verbs: a step is one thing.
            args: its arguments. They are not on record: the result is.
            at_most_once: don't call `fn` again if a run died in it; raise `StepInterrupted`. For what must not happen
                twice and can't be asked about beforehand.
            retry: call it again if it raises what `retry.on` names.
            timeout: how long one call may take; past it, the call fails with `TimeoutError`. A thread can't be
                interrupted, so a plain function goes on, and nobody looks at what it returns.
            returns: the type of the result, if `fn` has no return annotation that says it.

        Results are stored as JSON, and read by the type that `fn` is annotated to return (models, dataclasses,
        datetimes, tuples …); without one (a `lambda` has none), you get the JSON value. What is returned now has been
        through the same as what will be returned later.

        Raises:
            StepFailed: it failed, and is not called again. That is on record as well.
            StepInterrupted: as above.
            NotStorable: its result can't be stored as JSON, or not read back. Nothing is on record then.
            LimitExceeded: its name or its result is too long, or the task has too many steps.
            ConfigurationError: it is used within another step, `fn` is no function, or its annotation can't be read.
            JournalMismatch: the task's journal has something else here; it fails the task.
        """
        return await self._step(
            name, fn, args, at_most_once=at_most_once, retry=retry, timeout=timeout, returns=returns
        )

    @overload
    async def gather(self, a: Awaitable[T1], /) -> tuple[T1]: ...
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], /) -> tuple[T1, T2]: ...
    @overload
    async def gather(self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(
        self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], /
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def gather(
        self, a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], e: Awaitable[T5], /
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    async def gather(self, *branches: Awaitable[T]) -> list[T]: ...
    async def gather(self, *branches: Awaitable[Any]) -> Any:
        """What the branches return, in their order; they run side by side, as with `asyncio.gather`.

        A branch is a verb that was not awaited yet, or a coroutine of your own that uses verbs. Use this one for them
        and no other: it keeps the branches' verbs apart in the journal. All branches go on until they end or park.

        Raises:
            StepFailed: a step failed in a branch; or whatever else came out of one, the first one's before the others'.
        """
        return await self._gather(branches)

    # -- time ----------------------------------------------------------------------------------------------------------

    async def sleep(self, duration: Duration) -> None:
        """Wait for `duration` ("3 days"), from the first time that the tool comes here, whatever happens meanwhile.

        The task parks, so nothing is held for it.

        Raises:
            InvalidDuration: it is unreadable, zero or negative.
        """
        await self._sleep(duration)

    @asynccontextmanager
    async def shield(self) -> AsyncGenerator[None]:
        """A block in which a cancellation of the task is held back. It comes where the block ends.

        The time for it is bounded: a task that does not end within some seconds of being told to is given up.
        """
        with self._run.shield():
            yield
        # What was held back arrives here, and not at the first `await` afterwards, of which there may be none.
        await asyncio.sleep(0)

    @overload
    async def external(
        self,
        name: str,
        start: Start,
        *,
        cancel: Start | None = None,
        poll: Look | None = None,
        every: Duration = "1s",
        timeout: Duration | None = None,
        returns: type[T],
    ) -> T: ...
    @overload
    async def external(
        self,
        name: str,
        start: Start,
        *,
        cancel: Start | None = None,
        poll: Look | None = None,
        every: Duration = "1s",
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> Any: ...
    async def external(
        self,
        name: str,
        start: Start,
        *,
        cancel: Start | None = None,
        poll: Look | None = None,
        every: Duration = "1s",
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> Any:
        """Hand work over to another system and wait until it says how that ended. The task parks meanwhile.

        The other system is given the text of a handle, with which it, or whoever it tells, says
        `await tasks.external.complete(handle, result)`, `.fail(handle, message)` or `.report(handle, message)`, in any
        process that has the store, or the same over HTTP (`tasks.callbacks`). The first word counts.

        All functions take the handle and are coroutine functions, or plain ones, which run in threads.

        Args:
            name: of the work, for the journal.
            start: hands it over. It is called again, with the same handle, if a worker dies while it runs: let the
                other system know the work by `handle.id`.
            cancel: gives the work up: called if somebody asks the task to stop meanwhile, and when the time is up. It
                may be called more than once. Without it, a task that is cancelled ends at once.
            poll: finds out whether the work is over, for a system that does not report: returns `Finished(result)` or
                `Finished(error="…")`, or None while it goes on. Should it raise, it is called again the next time; ten
                times in a row, and the work has failed.
            every: how soon to poll for the first time. Later the intervals grow, up to five minutes.
            timeout: how long to wait, from the first time that the tool comes here.
            returns: the type to read the result as; the JSON value itself by default.

        Raises:
            StepFailed: the work failed (type "ExternalFailed", or what `Finished` says), or did not end in time (type
                "TimeoutError"); or `start` raised, and the type is the error's.
            ToolError: the result does not fit `returns`.
            InvalidDuration: a duration is unreadable, zero or negative.
        """
        return await self._external(
            name, start, cancel=cancel, poll=poll, every=every, timeout=timeout, returns=returns
        )

    # -- questions -----------------------------------------------------------------------------------------------------

    async def elicit(  # pyright: ignore[reportIncompatibleMethodOverride] - a task's question needs a key that lasts
        self, key: str, message: str, schema: type[ModelT], *, timeout: Duration | None = None
    ) -> Answer[ModelT]:
        """Ask a person to fill in the fields of `schema`, a flat pydantic model."""
        return cast("Answer[ModelT]", await self._ask_one(key, Elicit(message, schema), timeout))

    async def elicit_url(  # pyright: ignore[reportIncompatibleMethodOverride] - as above
        self, key: str, message: str, url: str, *, timeout: Duration | None = None
    ) -> Answer[BaseModel]:
        """Ask a person to visit `url`."""
        return cast("Answer[BaseModel]", await self._ask_one(key, ElicitUrl(message, url), timeout))

    @overload
    async def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: None = None,
        **options: Any,
    ) -> Sampled: ...
    @overload
    async def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: Duration,
        **options: Any,
    ) -> Sampled | None: ...
    async def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: Duration | None = None,
        **options: Any,
    ) -> Sampled | None:
        """Ask the client's model; arguments as `Sample`."""
        return cast("Sampled | None", await self._ask_one(key, Sample(messages, max_tokens, options), timeout))

    @overload
    async def list_roots(self, key: str = "roots", *, timeout: None = None) -> ListRootsResult: ...
    @overload
    async def list_roots(self, key: str = "roots", *, timeout: Duration) -> ListRootsResult | None: ...
    async def list_roots(self, key: str = "roots", *, timeout: Duration | None = None) -> ListRootsResult | None:
        """Ask for the client's roots."""
        return cast("ListRootsResult | None", await self._ask_one(key, ListRoots(), timeout))

    async def ask(self, questions: Mapping[str, Question], *, timeout: Duration | None = None) -> dict[str, Any]:
        """Ask several questions at once; the answers by key, when all are in or the time is over."""
        return await self._ask(questions, timeout)

    async def _ask_one(self, key: str, question: Question, timeout: Duration | None) -> object:
        return (await self._ask({key: question}, timeout))[key]
