"""Signals that end a wait and leave the task alone: Ctrl-C, SIGTERM, and a terminal that goes away.

The first ends the innermost block that `Stop.guard` encloses. The second ends nothing: what it means (cancel the task)
is done in a session that must still be there, by who waits for it with `another`. From the third on everything ends.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

import anyio

__all__ = ["Stop", "listening"]

_AGAIN: Final = 2
_ALL_ENDS: Final = 3


class Guard:
    """A cancel scope that is among `scopes` while it is entered."""

    def __init__(self, scopes: list[anyio.CancelScope]) -> None:
        self._scopes = scopes
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.__enter__()
        self._scopes.append(self._scope)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._scopes.remove(self._scope)
        return self._scope.__exit__(kind, error, trace)


class Stop:
    """Counts signals. `by_hand`: whether the last one was Ctrl-C."""

    def __init__(self) -> None:
        self.by_hand = False
        self.count = 0
        self._scopes: list[anyio.CancelScope] = []
        self._news = anyio.Event()

    def take(self, number: int) -> None:
        """A signal came."""
        self.count += 1
        self.by_hand = number == signal.SIGINT
        if self._scopes and self.count == 1:
            self._scopes[-1].cancel()
        elif self._scopes and self.count >= _ALL_ENDS:
            self._scopes[0].cancel()
        self._news.set()
        self._news = anyio.Event()

    def guard(self) -> Guard:
        """A block that a signal ends: what comes after it is said then."""
        return Guard(self._scopes)

    async def another(self) -> bool:
        """Wait for the second signal, which may have come already; whether it was Ctrl-C."""
        if self.count < _AGAIN:
            await self._news.wait()
        return self.by_hand


@asynccontextmanager
async def listening(stop: Stop) -> AsyncGenerator[None]:
    """Signals go to `stop` within the block, and end nothing by themselves."""
    async with anyio.create_task_group() as group:
        # Entered here and not by the task that reads them, so that none is missed before that runs.
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:

            async def read() -> None:
                async for number in signals:
                    stop.take(number)

            group.start_soon(read)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
