"""A worker's view of a store, through which it dies at a write that the test chose.

A process that is killed leaves behind what it had committed and nothing else. Two moments matter at each write: just
before it is durable, and just after, when it happened but the worker never heard so. From there on nothing that the
dead worker still tries reaches the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from perdure.domain.journal import Entry, EntryState
from perdure.store.base import Store

__all__ = ["Crash", "Fate", "mortal"]

_WRITES: Final = frozenset({"record", "report", "park", "retry", "finish", "release", "settle"})
"""What a run writes. Claiming and leases are the worker's own and no work is lost with them."""


class Crash(asyncio.CancelledError):
    """The worker died here.

    As close as a process that lives on can come to it: no tool takes a cancellation for an error of its own, and
    whatever its cleanup then tries to write meets the same end.
    """


@dataclass(slots=True)
class Fate:
    """When a worker dies: at write number `at` (from 1; None: never), before or after it became durable."""

    at: int | None = None
    after: bool = False
    writes: int = 0
    """How many there were, over all workers."""
    dead: bool = False
    struck: str | None = None
    """The write that it died at, in words."""
    on_death: Callable[[], None] = lambda: None

    def die(self, write: str) -> None:
        """From here on nothing reaches the store."""
        self.dead, self.struck = True, write
        self.on_death()

    def strikes(self) -> bool:
        """Whether the write that is about to happen is the one."""
        self.writes += 1
        return self.writes == self.at


def mortal(store: Store, fate: Fate) -> Store:
    """`store`, as a worker that has this fate sees it."""
    return cast("Store", _Mortal(store, fate))


class _Mortal:
    def __init__(self, store: Store, fate: Fate) -> None:
        self._store = store
        self._fate = fate

    def __getattr__(self, verb: str) -> Any:
        call = cast("Callable[..., Awaitable[Any]]", getattr(self._store, verb))
        return self._guarded(verb, call)

    def _guarded(self, verb: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            fate = self._fate
            if fate.dead:
                raise Crash
            if verb not in _WRITES or not fate.strikes():
                return await call(*args, **kwargs)
            if fate.after:
                await call(*args, **kwargs)
            fate.die(_in_words(verb, args))
            raise Crash

        return guarded


def _in_words(verb: str, args: tuple[object, ...]) -> str:
    """A write as the author of a tool knows it: what is recorded is a verb of theirs."""
    entry = next((each for each in args if isinstance(each, Entry)), None)
    if entry is None:
        return verb
    # A step that may run at most once is recorded twice.
    return f"{verb} of {entry}, begun" if entry.state is EntryState.STARTED else f"{verb} of {entry}"
