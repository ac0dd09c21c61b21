"""The stream of a watcher: one `subscriptions/listen` for all its tasks, where the server serves one.

Acknowledgements don't reach us (the SDK keeps them for its own driver), and need not: a task is *heard* once the open
stream has told of it, and polled as ever until then. So a server that leaves tasks out of a stream, or tells of none
when it opens, costs polls and no news.

A stream can't be added to, so new tasks are folded into a new one: opened before the old one is closed, and at growing
intervals, so that a thousand starts cause a handful of streams and not a thousand. What opens a stream in vain is tried
again ever more rarely; a server that does not listen at all is not asked again in the session.

A server that takes no stream for so many tasks gets half of them. If it had no room just now, that is no bound of its
own, and each stream that it takes is followed by one for twice as many.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from . import faults, pace
from .remote import Remote

__all__ = ["Audience", "Listening"]

logger = logging.getLogger(__name__)

_MOST: Final = 1_000
"""Tasks of one stream to begin with."""
_SHORTEST_GAP: Final = 0.02
"""Seconds in which tasks that begin together are gathered for one stream."""
_FIRST_GAP: Final = 0.5
_LAST_GAP: Final = 60.0
"""Seconds between the openings of two streams; doubled by each that follows another soon."""
_ODD: Final = 6
"""Openings in a row that may come to a bad moment, half a minute of them, before it is what the server means."""
_BEGINS_WITHIN: Final = 10.0
"""Seconds after which a stream that has said nothing is held to be open, of a server that tells of changes only."""


class Audience(Protocol):
    """For whom a stream is held."""

    def wanted(self) -> Iterable[str]:
        """The tasks that are waited for, the longest first."""
        ...

    def unheard(self, task_ids: Collection[str], *, dropped: bool) -> None:
        """No stream tells of these any more, or not yet; `dropped`: something may have been missed."""
        ...


@dataclass(eq=False)
class _Stream:
    ids: frozenset[str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    subscription: object = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    heard: set[str] = field(default_factory=set[str])
    error: Exception | None = None


class Listening:
    """Holds the stream. `chance`: from 0 to 1. `refused`: whether the server serves none."""

    def __init__(
        self,
        remote: Remote,
        audience: Audience,
        chance: Callable[[], float],
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._remote = remote
        self._audience = audience
        self._chance = chance
        self._now = now
        self._most = _MOST
        self._bound = _MOST
        self._gap = 0.0
        self._failures = 0
        self._last = -math.inf
        self._open: _Stream | None = None
        self._opening: _Stream | None = None
        self._retired: set[object] = set()
        self._changed = asyncio.Event()
        self.refused = False

    def audience_changed(self) -> None:
        """A task came, or went."""
        self._changed.set()

    def hears(self, task_id: str) -> bool:
        """Whether the open stream has told of that task before."""
        return self._open is not None and task_id in self._open.heard

    def told(self, task_id: str, subscription: object) -> bool:
        """A notification came of a task. Whether it is of a stream of ours, and the task heard from now on."""
        if subscription is None:
            return False
        for stream in (self._open, self._opening):
            if stream is not None and task_id in stream.ids and self._is_of(stream, subscription):
                stream.heard.add(task_id)
                stream.begun.set()
                return True
        return False

    async def run(self) -> None:
        """Listen, as far as the server does."""
        async with anyio.create_task_group() as group:
            while not self.refused:
                await self._unfolded()
                since = self._now() - self._last
                await asyncio.sleep(max(_SHORTEST_GAP, self._gap - since))
                self._last = self._now()
                if ids := frozenset(self._chosen()):
                    await self._fold(group, ids, soon=since < 4 * self._gap)

    async def _unfolded(self) -> None:
        """Wait until there is a task that the stream was not opened for."""
        while True:
            self._changed.clear()
            covered: frozenset[str] = frozenset() if self._open is None else self._open.ids
            if not covered.issuperset(self._chosen()):
                return
            await self._changed.wait()

    def _chosen(self) -> list[str]:
        return list(itertools.islice(self._audience.wanted(), self._most))

    async def _fold(self, group: TaskGroup, ids: frozenset[str], *, soon: bool) -> None:
        """Open a stream for `ids`, and close the one that there is once the new one tells of something."""
        stream = self._opening = _Stream(ids)
        group.start_soon(self._carry, stream)
        with anyio.move_on_after(_BEGINS_WITHIN):
            await _first(stream.begun, stream.over)
        self._opening = None
        if not stream.over.is_set():
            self._replace(stream)
        elif stream.error is not None and not stream.begun.is_set():
            self._learn(stream, stream.error)
            return
        self._failures = 0
        self._most = min(self._bound, self._most * 2)
        self._gap = min(_LAST_GAP, max(_FIRST_GAP, self._gap * 2)) if soon else _FIRST_GAP

    def _replace(self, stream: _Stream) -> None:
        old, self._open = self._open, stream
        if old is not None:
            self._retired.add(old.subscription)
            old.scope.cancel()
            # The new one tells of them in a moment.
            self._audience.unheard(old.heard - stream.heard, dropped=False)

    async def _carry(self, stream: _Stream) -> None:
        try:
            with stream.scope:
                await self._remote.listen(stream.ids)
        except Exception as error:  # noqa: BLE001 - boundary: whatever the SDK makes of a server
            stream.error = error
            logger.debug("a stream for %d tasks ended: %r", len(stream.ids), error)
        if not stream.scope.cancel_called:
            self._ended(stream)

    def _ended(self, stream: _Stream) -> None:
        stream.over.set()
        self._retired.add(stream.subscription)
        if self._open is stream:
            self._open = None
        told_by_another = frozenset[str]() if self._open is None else self._open.heard
        self._audience.unheard(stream.heard - told_by_another, dropped=True)
        self._changed.set()

    def _learn(self, stream: _Stream, error: Exception) -> None:
        """What the server means that opened no stream."""
        fault = faults.judge(error, "")
        self._failures += 1
        self._gap = pace.backoff(self._failures, fault.after, self._chance())
        # Too many for one, as far as anybody can tell: a number that it takes is found in a few tries.
        if len(stream.ids) > 1 and (_is_invalid(error) or faults.has_no_room(error)):
            self._most = len(stream.ids) // 2
            if _is_invalid(error):
                self._bound, self._gap = self._most, 0.0
        else:
            self.refused = fault.ends is not None and not (fault.is_odd and self._failures < _ODD)

    def _is_of(self, stream: _Stream, subscription: object) -> bool:
        """Whether a notification that names `subscription` is of `stream`; the first one tells which it is."""
        if stream.subscription is None and subscription not in self._retired:
            stream.subscription = subscription
        return stream.subscription == subscription


def _is_invalid(error: Exception) -> bool:
    return isinstance(error, MCPError) and error.code == INVALID_PARAMS


async def _first(*events: asyncio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: asyncio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in events:
            group.start_soon(wait, event)
