"""`SyncTaskContext`, what a plain tool sees of its task: the verbs of `TaskContext` under the same names, blocking.

The tool runs in a thread, and each verb runs on the event loop while that thread waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, cast, overload

from anyio import from_thread
from mcp_types import ListRootsResult, SamplingMessage
from pydantic import BaseModel

from perdure.domain.policy import Duration
from perdure.domain.retry import Retry
from perdure.engine import lines
from perdure.engine.run import Stop

from .base import BaseContext, Sampled, progress_text
from .external import Look, Start
from .questions import Answer, Elicit, ElicitUrl, ListRoots, Question, Sample

__all__ = ["SyncTaskContext"]

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
Args = TypeVarTuple("Args")


class SyncTaskContext(BaseContext):
    """A plain function's view of its task: the verbs of `TaskContext`, blocking. Use it in the tool's own thread.

    A thread can't be interrupted, so a long tool calls `checkpoint` from time to time. Where the run has to make way
    (its `timeout` is over, the worker is shutting down, or another one runs the task by now), the other verbs raise
    `asyncio.CancelledError` as well, and begin nothing.
    """

    def checkpoint(self) -> None:
        """End this run here if it is to end, and no `shield` holds that back.

        The task was cancelled, its `timeout` is over, or the worker is shutting down and another one will run the tool
        again.

        Raises:
            asyncio.CancelledError: it is. Let it pass.
        """
        run = self._run
        if run.stopping and (not run.shielded or run.stop is Stop.LOST):
            run.refused = True
            raise asyncio.CancelledError

    def report(self, message: str) -> None:
        """As `TaskContext.report`."""
        _wait(self._report, message)

    def report_progress(  # pyright: ignore[reportIncompatibleMethodOverride] - plain functions can't await
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """As `TaskContext.report_progress`."""
        self.report(progress_text(progress, total, message))

    # -- what is done once ---------------------------------------------------------------------------------------------

    @overload
    def step(
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
    def step(
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
    def step(
        self,
        name: str,
        fn: Callable[[*Args], T],
        *args: *Args,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: None = None,
    ) -> T: ...
    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        at_most_once: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> Any:
        """As `TaskContext.step`; a coroutine function runs on the event loop."""
        what = partial(self._step, name, fn, args, at_most_once=at_most_once, retry=retry, timeout=timeout)
        return _wait(partial(what, returns=returns))

    @overload
    def gather(  # pyright: ignore[reportOverlappingOverload] - as with asyncio.gather, a list has no length to know
        self, a: Callable[[], T1], /
    ) -> tuple[T1]: ...
    @overload
    def gather(self, a: Callable[[], T1], b: Callable[[], T2], /) -> tuple[T1, T2]: ...
    @overload
    def gather(self, a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(
        self, a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], /
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(
        self, a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], e: Callable[[], T5], /
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    def gather(self, *branches: Callable[[], T]) -> list[T]: ...
    def gather(self, *branches: Callable[[], Any]) -> Any:
        """As `TaskContext.gather`, of functions without arguments; each runs in a thread, and may use the verbs."""
        return _wait(self._gather_functions, branches)

    # -- time ----------------------------------------------------------------------------------------------------------

    def sleep(self, duration: Duration) -> None:
        """As `TaskContext.sleep`."""
        _wait(self._sleep, duration)

    @contextmanager
    def shield(self) -> Generator[None]:
        """As `TaskContext.shield`: in the block, `checkpoint` does nothing because of a cancellation."""
        block = self._run.shield()
        from_thread.run_sync(block.__enter__)
        try:
            yield
        finally:
            from_thread.run_sync(block.__exit__, None, None, None)

    @overload
    def external(
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
    def external(
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
    def external(
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
        """As `TaskContext.external`."""
        verb = partial(
            self._external, name, start, cancel=cancel, poll=poll, every=every, timeout=timeout, returns=returns
        )
        return _wait(verb)

    # -- questions -----------------------------------------------------------------------------------------------------

    def elicit(  # pyright: ignore[reportIncompatibleMethodOverride] - as in TaskContext
        self, key: str, message: str, schema: type[ModelT], *, timeout: Duration | None = None
    ) -> Answer[ModelT]:
        """As `TaskContext.elicit`."""
        return cast("Answer[ModelT]", self._ask_one(key, Elicit(message, schema), timeout))

    def elicit_url(  # pyright: ignore[reportIncompatibleMethodOverride] - as in TaskContext
        self, key: str, message: str, url: str, *, timeout: Duration | None = None
    ) -> Answer[BaseModel]:
        """As `TaskContext.elicit_url`."""
        return cast("Answer[BaseModel]", self._ask_one(key, ElicitUrl(message, url), timeout))

    @overload
    def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: None = None,
        **options: Any,
    ) -> Sampled: ...
    @overload
    def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: Duration,
        **options: Any,
    ) -> Sampled | None: ...
    def sample(
        self,
        key: str,
        messages: Sequence[SamplingMessage | str],
        *,
        max_tokens: int = 1024,
        timeout: Duration | None = None,
        **options: Any,
    ) -> Sampled | None:
        """As `TaskContext.sample`."""
        return cast("Sampled | None", self._ask_one(key, Sample(messages, max_tokens, options), timeout))

    @overload
    def list_roots(self, key: str = "roots", *, timeout: None = None) -> ListRootsResult: ...
    @overload
    def list_roots(self, key: str = "roots", *, timeout: Duration) -> ListRootsResult | None: ...
    def list_roots(self, key: str = "roots", *, timeout: Duration | None = None) -> ListRootsResult | None:
        """As `TaskContext.list_roots`."""
        return cast("ListRootsResult | None", self._ask_one(key, ListRoots(), timeout))

    def ask(self, questions: Mapping[str, Question], *, timeout: Duration | None = None) -> dict[str, Any]:
        """As `TaskContext.ask`."""
        return _wait(self._ask, questions, timeout)

    def _ask_one(self, key: str, question: Question, timeout: Duration | None) -> object:
        return self.ask({key: question}, timeout=timeout)[key]


def _wait(verb: Callable[[*Args], Coroutine[Any, Any, T]], *args: *Args) -> T:
    """What `verb` comes to on the event loop.

    Raises:
        asyncio.CancelledError: the run is to end. On its way to this thread it was turned into a mere exception, which
            tools may catch.
    """
    handling = lines.handling.set(sys.exc_info()[1])
    try:
        return from_thread.run(verb, *args)
    except concurrent.futures.CancelledError:
        raise asyncio.CancelledError from None
    finally:
        lines.handling.reset(handling)
