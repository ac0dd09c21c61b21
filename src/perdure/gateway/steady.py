"""What goes on beside the requests as long as the gateway does: probes, watching lists, keeping the table of routes.

None of it may end the others, or the gateway: they share a task group, and what leaves that takes the requests of all
clients with it. So whatever one of them did not see coming is logged, and it begins anew after a while. What is done
once, for a request that is over, is not done again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

__all__ = ["aside", "steadily"]

logger = logging.getLogger(__name__)

_AGAIN: Final = 10.0
"""Seconds, so that what fails at once does not fill the log."""


async def steadily(job: Callable[[], Awaitable[None]], again: float = _AGAIN) -> None:
    """Do a job that has no end, until cancelled; `again`: seconds until it is begun anew after it failed."""
    while True:
        await aside(job)
        await anyio.sleep(again)


async def aside(job: Callable[[], Awaitable[None]]) -> None:
    """Do a job once, and keep what comes of it."""
    try:
        await job()
    except Exception:  # the boundary to what backends say: whatever came of it is one job's
        logger.exception("what goes on beside the requests has failed")
