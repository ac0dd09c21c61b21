"""One question to the user, once: whoever else has it before them, and whatever crashes.

A question is claimed in the journal before the user sees it, and its answer is on record before anything is done with
it. The one moment that nothing can cover lies between the user's answer and the record of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from .errors import JournalUnusable
from .failpoints import Failpoint, reach
from .journal import Answered, Journal, Record

__all__ = ["LOOK_EVERY", "answer_once"]

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at what another process is doing: whether its question is free again, or its call made."""


async def answer_once(
    journal: Journal,
    record: Record,
    key: str,
    ask: Callable[[], Awaitable[Any]],
    *,
    claimed: Failpoint,
    answered: Failpoint,
) -> Any | None:
    """The answer that is still to be sent, from the record or from the user; None if it was sent.

    While somebody else asks, it is waited for what comes of that. The first answer counts, also one that was given by
    hand while the user was still thinking.

    Raises:
        Exception: whatever `ask` raises. The question is free again then.
    """
    while True:
        found = journal.claim(record, key)
        if isinstance(found, Answered):
            return found.response
        if found.mine:
            break
        await anyio.sleep(LOOK_EVERY)
    reach(claimed)
    try:
        response = await ask()
    except BaseException:
        _release(journal, record, key)
        raise
    reach(answered)
    return journal.record_answer(record, key, response)


def _release(journal: Journal, record: Record, key: str) -> None:
    """Whatever the journal says to that: why the question was left, such as a cancellation, goes before its trouble."""
    try:
        journal.release(record, key)
    except JournalUnusable:
        logger.exception("the journal does not take that nobody asks the question %r of %s", key, record.key)
