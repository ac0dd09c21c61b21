"""Under which keys the processes of a store seal what they write, as they say themselves.

Each worker says it with its session, beside where it lives. So an operator who changes keys can be told who is not
there yet, and processes of which one seals and another does not find that out from each other: nobody would otherwise
notice a secret that did not get to one of them. A server without a worker has no session: it hears of others, and they
don't of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import JSON, Session
from perdure.store.base import Workers

from . import lease

__all__ = ["Company", "Sealing", "about", "at_work", "described", "process_of", "sealing_of", "summary"]

logger = logging.getLogger(__name__)

Sealing = str | bool | None
"""The id of the key that a process seals under; False: it stores in the clear; None: that is not known of it."""

_SEALING: Final = "sealing"
_LOOK_EVERY = 5.0
"""Seconds between looks, give or take a fifth."""


def about(sealing: Sealing) -> Mapping[str, JSON]:
    """What a worker says of it with its session."""
    return {} if sealing is None else {_SEALING: sealing}


def sealing_of(session: Session) -> Sealing:
    """What the worker of a session said; None if it is of a release that does not, or nothing that can be read."""
    said = session.info.get(_SEALING)
    return said if isinstance(said, str) or said is False else None


def described(sealing: Sealing) -> str:
    """In words, after "what is in tasks is"."""
    if sealing is None:
        return "stored in a way that is not known"
    return f"sealed under the key {sealing!r}" if isinstance(sealing, str) else "stored in the clear"


def summary(workers: Iterable[tuple[Sealing, str]]) -> Iterator[str]:
    """The lines about how these store values, each with the name of its process; none if nothing is known."""
    by = dict[Sealing, list[str]]()
    for sealing, process in workers:
        by.setdefault(sealing, []).append(process)
    for sealing, processes in by.items():
        if len(by) > 1:
            yield f"what is in tasks is {described(sealing)} by {', '.join(processes)}"
        elif sealing is not None:
            yield f"what is in tasks is {described(sealing)} by every worker"


def process_of(session: Session) -> str:
    """Which process a session is of."""
    return f"{session.info.get('host')}:{session.info.get('pid')}"


def at_work(sessions: Iterable[tuple[Session, bool]]) -> tuple[Session, ...]:
    """Those of `sessions`, as `Store.sessions` gives them, whose processes may still write.

    A lease that has lapsed is no proof of a death; but where nobody can tell more, it has to do.
    """
    return tuple(
        session
        for session, lapsed in sessions
        if (lease.alive(session.info) if lapsed else not lease.gone(session.info))
    )


class Company:
    """Says in the log, once of each, which other process seals where this one does not, or the other way round."""

    def __init__(self, store: Workers, own: str | bool) -> None:
        self._store = store
        self._own = own
        self._said = set[str]()

    async def look(self) -> None:
        """One look.

        Raises:
            StoreUnavailable: nobody can tell.
        """
        for session in at_work(await self._store.sessions()):
            sealing = sealing_of(session)
            if sealing is None or isinstance(sealing, str) == isinstance(self._own, str) or session.id in self._said:
                continue
            self._said.add(session.id)
            logger.warning(
                "what is in tasks is %s by this process, and %s by %s: give all of them the keys, or none",
                described(self._own),
                described(sealing),
                process_of(session),
            )

    async def keep_watch(self) -> None:
        """Look again and again, until cancelled. Jittered, so that many replicas don't all look at once."""
        while True:
            try:
                await self.look()
            except StoreUnavailable:
                logger.debug("could not look who seals: the store is unavailable")
            await asyncio.sleep(_LOOK_EVERY * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, no secret
