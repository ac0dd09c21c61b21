"""The other systems that tools hand work over to: they find it in the journal, and say over HTTP how it ended.

Some don't report, and leave it in a folder. They take their time, and some would be too late. What they say is said
until it is heard; some say it twice, and some say two things at once, of which the first is to count.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Final

from .client import Client, Unanswered
from .effects import Follower, outbox
from .history import FAILED, WATCHED
from .processes import Fleet

__all__ = ["Contractor"]

_LOOKS_EVERY: Final = 0.2
_AGAIN: Final = 0.3
_LONGEST: Final = 6.0
"""Seconds that a piece of work takes."""


class Contractor:
    """All of them. `serve` runs until it is cancelled."""

    def __init__(self, client: Client, fleet: Fleet, journal: Path, rng: random.Random) -> None:
        self._client = client
        self._fleet = fleet
        self._journal = Follower(journal)
        self._outbox = outbox(journal)
        self._rng = rng
        self._known: set[str] = set()
        self._calm = asyncio.Event()

    def finish(self) -> None:
        """Work takes no time any more."""
        self._calm.set()

    async def serve(self) -> None:
        self._outbox.mkdir()
        async with asyncio.TaskGroup() as group:
            while True:
                for effect in self._journal.more():
                    # It may be handed over more than once, if a worker dies meanwhile.
                    if effect.event == "handed" and effect.value not in self._known:
                        self._known.add(effect.value)
                        group.create_task(self._work(effect.value, effect.name))
                await asyncio.sleep(_LOOKS_EVERY)

    async def _work(self, handle: str, name: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(0, _LONGEST)):
                await self._calm.wait()
        first = self._word()
        if name == WATCHED:
            self._leave(handle, first[1])
            return
        chance = self._rng.random()
        if chance < 0.2:  # two different ones, at once
            await asyncio.gather(self._say(handle, name, first), self._say(handle, name, self._word()))
            return
        await self._say(handle, name, first)
        if chance < 0.4:
            await self._say(handle, name, first)
        elif chance < 0.6:
            await self._say(handle, name, self._word())

    def _leave(self, handle: str, text: str) -> None:
        self._client.leave(handle, WATCHED, text)
        draft = self._outbox / "draft"
        draft.write_text(text)
        draft.rename(self._outbox / handle)

    def _word(self) -> tuple[dict[str, str], str]:
        """What is said, and what the tool makes of it."""
        text = f"{self._rng.getrandbits(48):x}"
        return ({"error": text}, f"{FAILED}: {text}") if self._rng.random() < 0.2 else ({"result": text}, text)

    async def _say(self, handle: str, name: str, word: tuple[dict[str, str], str]) -> None:
        while True:
            seat = self._rng.choice(self._fleet.servers)
            with contextlib.suppress(Unanswered):
                await self._client.settle(seat.name, seat.port, handle, name, *word)
                return
            await asyncio.sleep(_AGAIN)
