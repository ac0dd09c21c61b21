"""The store of a process, open for as long as anybody there uses it, and on which event loop.

What a store waits for comes on the event loop that opened it, so it is of use on that one only: on another one its
caller would never be woken. But plain code can't await. In a process that serves, a plain function of a tool or a
webhook in a thread says what has become of external work by `asyncio.run`, on an event loop of its own. What it has to
say goes over to the loop that has the store, which is waited for: another store for the call would cost a connection
each time, tell the waiting worker later, and is nothing that can be made of a store that was passed as an object.

Nothing else crosses over. A server or a harness beside one on another event loop is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

from perdure.domain.errors import ConfigurationError, StoreUnavailable
from perdure.store.base import Outsiders, Store

from . import branches

__all__ = ["Opened", "Word"]

Word = Callable[[Outsiders], Awaitable[object]]
"""What somebody outside has to say to the store."""

_ANSWER = 20.0
"""Seconds that another event loop has for its answer. A store gives up by itself before; but that loop may be held up
by the very thread that waits for it."""
_LOOK_EVERY = 0.1
"""Seconds between looks at that event loop: it may be closed meanwhile."""
_BREATH = 0.01
"""Seconds after which to look who has it now, when the event loop that had it was at its end."""


class Opened:
    """Who uses the store that `store` gives. Used from any thread."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        """Of those on the one event loop that has the store: one opens or closes it at a time. Each loop has its own.

        Of asyncio's: to take it while it is free is no point at which a loop that ends can cancel whoever leaves.
        """
        self._home: asyncio.AbstractEventLoop | None = None
        self._users = 0
        """How many are in, or on their way in."""
        self._claiming = threading.Lock()
        """Held over `_home` and `_users`, and never while anything is waited for."""
        self._is_open = False

    @asynccontextmanager
    async def here(self) -> AsyncGenerator[Store]:
        """The store, open inside, on this event loop.

        Raises:
            StoreUnusable: it can't be opened.
            ConfigurationError: another event loop of this process has it open.
        """
        if self._claim() is not None:
            raise ConfigurationError(
                "The store of this Tasks is open on another event loop of this process, by a server, a harness, or "
                "tasks.connected(): use it there (asyncio.run_coroutine_threadsafe), or make a Tasks of its own for "
                "each event loop"
            )
        async with self._claimed() as store:
            yield store

    @asynccontextmanager
    async def somewhere(self) -> AsyncGenerator[None]:
        """It is open inside, here or on the event loop that has it already: whoever has, keeps it open.

        Raises:
            StoreUnusable: it can't be opened.
        """
        if self._claim() is not None:
            yield
        else:
            async with self._claimed():
                yield

    async def say(self, word: Word) -> None:
        """Say `word` to the store, on whichever event loop that is open; else it is opened here meanwhile.

        It may be said again, if that event loop comes to its end meanwhile: two threads that do no more than this.

        Raises:
            StoreUnusable: it can't be opened.
            StoreUnavailable: as the store; or that event loop does not answer in time.
        """
        here = asyncio.get_running_loop()
        until = here.time() + _ANSWER
        while (home := self._claim()) is not None:
            if await _on(home, self._said(word), until):
                return
            if here.time() >= until:
                raise StoreUnavailable("The event loop that has the store open does not answer: something holds it up")
            await asyncio.sleep(_BREATH)
        async with self._claimed() as store:
            await word(store)

    async def _said(self, word: Word) -> bool:
        """Whether it was said on this event loop for another one: not unless the store is this one's still.

        Were it opened anew for the word, on an event loop that is at its end, nobody would come to close it.
        """
        with self._claiming:
            if self._home is not asyncio.get_running_loop():
                return False
            self._users += 1
        async with self._claimed() as store:
            await word(store)
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _claim(self) -> asyncio.AbstractEventLoop | None:
        """Become a user of the store on this event loop; or, if another one has it, which."""
        here = asyncio.get_running_loop()
        with self._claiming:
            if self._home not in (None, here):
                return self._home
            if self._home is None:
                self._home, self._turn = here, asyncio.Lock()
            self._users += 1
            return None

    @asynccontextmanager
    async def _claimed(self) -> AsyncGenerator[Store]:
        """The store, open inside for one who has claimed it."""
        store = self._store()
        try:
            async with self._turn:
                await self._enter(store)
            yield store
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._leave(store)
            finally:  # an event loop that ends cancels what is shielded, too
                self._forget()

    async def _enter(self, store: Store) -> None:
        if not self._is_open:
            await _open(store)
            self._is_open = True

    async def _leave(self, store: Store) -> None:
        with self._claiming:
            self._users -= 1
        async with self._turn:
            if self._is_open and not self._users:
                await self._close(store)

    async def _close(self, store: Store) -> None:
        try:
            await store.close()
        finally:
            self._is_open = False

    def _forget(self) -> None:
        """Leave the store to whichever event loop comes first, unless somebody on this one has it, or closes it."""
        with self._claiming:
            if not (self._users or self._is_open):
                self._home = None


async def _on(loop: asyncio.AbstractEventLoop, saying: Coroutine[Any, Any, bool], until: float) -> bool:
    """Whether it was said there: not if that loop is at its end, or has no time."""
    here = asyncio.get_running_loop()
    try:
        said = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(saying, loop))
    except RuntimeError:  # it is closed
        saying.close()
        return False
    try:
        # What a loop was handed and did not come to any more before it was closed is never answered.
        while not said.done() and here.time() < until and not loop.is_closed():
            await asyncio.wait({said}, timeout=min(_LOOK_EVERY, until - here.time()))
    finally:
        said.cancel()
        branches.discard([saying])
    return not said.cancelled() and said.result()


async def _open(store: Store) -> None:
    """Open the store; if that fails, or is cancelled halfway, leave nothing open."""
    try:
        await store.open()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await store.close()
        raise
