"""What tests of every room need: waiting for something to come true, without guessing how long it takes."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

PATIENCE: Final = 30.0
"""Seconds after which something that must happen is held not to happen. Generous: machines are shared."""


async def eventually(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, *, within: float = PATIENCE
) -> None:
    """Wait until `holds()`, which must come true by itself.

    Raises:
        AssertionError: it did not; the message is `what`.
    """
    deadline = asyncio.get_running_loop().time() + within
    while True:
        answer = holds()
        if await answer if inspect.isawaitable(answer) else answer:
            return
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)
