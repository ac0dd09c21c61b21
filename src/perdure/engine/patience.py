"""Waiting, in the two ways that the engine does it: for a store that is unavailable, and no longer than some seconds.

A store that is down for a moment (a locked file, a full disk that somebody clears, a database that fails over) must
cost time only: nothing that a task asked or came to is dropped for it. Every verb is safe to call again (`store.base`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from perdure.domain.errors import StoreUnavailable

__all__ = ["BACKOFF", "persist", "within"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF = 0.5
"""Seconds between attempts on a store that is unavailable."""


async def persist(verb: Callable[[], Awaitable[T]]) -> T:
    """What `verb` returns, called until the store takes it. Whoever can't wait that long cancels it."""
    while True:
        try:
            return await verb()
        except StoreUnavailable:
            logger.debug("the store is unavailable; trying again")
            await asyncio.sleep(BACKOFF)


async def within(seconds: float, waiting: Coroutine[Any, Any, object]) -> bool:
    """Whether `waiting` ended within `seconds`; it is cancelled otherwise, and what it raises is raised.

    Not by `asyncio.timeout`, which could not tell its own `TimeoutError` from one that a database driver raises.
    """
    task = asyncio.create_task(waiting)
    try:
        ended, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if ended:
        task.result()
    return bool(ended)
