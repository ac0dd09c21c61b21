"""The hub: who waits for a task to change, and waking them.

Level-triggered. A wake-up is a hint that says "look again", so hints may be folded, repeated or come for nothing, and
whoever waits reads the store after each one. A watcher registers before its first look, or a change between the look
and the wait would be missed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain

from perdure.domain.model import Change

__all__ = ["Hub"]


class Hub:
    """Wakes those who watch a task. Its `notify` is a store's listener."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def notify(self, change: Change | None) -> None:
        """Wake everybody who watches the task that changed; if nobody knows which did, everybody."""
        told = chain(*self._watchers.values()) if change is None else self._watchers.get(change.task_id, ())
        for event in told:
            event.set()

    @contextmanager
    def watch(self, task_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever the task may have changed. Clear it, look, then wait."""
        event = asyncio.Event()
        self._watchers[task_id].add(event)
        try:
            yield event
        finally:
            self._watchers[task_id].discard(event)
            if not self._watchers[task_id]:
                del self._watchers[task_id]
