"""What a worker would claim next: how much of which handler, and in which order. Pure.

Which queue a handler belongs to, how urgent it is and how many of its runs one worker may have are the code's
(`handler.Placement`), so a deploy changes them at once and no row has to be touched. A worker serves all queues, or
those that it was given, each up to a number of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from perdure.domain.model import Claim, Demand

from .handler import Handlers

__all__ = ["Planner", "Round"]


@dataclass(frozen=True, slots=True)
class Round:
    """One call of the store's `claim`: demands in order of priority, and how many runs in all."""

    demands: tuple[Demand, ...]
    limit: int


@dataclass(slots=True)
class Planner:
    """Keeps count of what runs, and plans.

    `queues`: the queues that are served, with how many runs each may have at once (None: as many as the worker). None
    in place of the map: all queues.
    """

    concurrency: int
    queues: Mapping[str, int | None] | None = None
    _running: dict[str, int] = field(default_factory=dict[str, int])
    _last: dict[str, str] = field(default_factory=dict[str, str])
    """The tenant that was served last, by handler."""
    _turn: int = 0

    @property
    def free(self) -> int:
        """How many runs more the worker may have."""
        return self.concurrency - sum(self._running.values())

    def began(self, claim: Claim) -> None:
        """A run was claimed."""
        handler = claim.operation.handler
        self._running[handler] = self._running.get(handler, 0) + 1
        self._last[handler] = claim.task.owner.tenant

    def ended(self, claim: Claim) -> None:
        """Its work has ended, and its slot is free."""
        handler = claim.operation.handler
        self._running[handler] -= 1
        if not self._running[handler]:
            del self._running[handler]

    def served(self, handlers: Handlers) -> list[str]:
        """The handlers whose queues are served, in the order of their names."""
        return sorted(name for name, handler in handlers.items() if self._serves(handler.placement.queue))

    def plan(self, handlers: Handlers) -> Iterator[Round]:
        """What to ask the store for, in turn.

        Handlers of one priority take turns at being first, so that a busy one does not starve the others. A queue with
        a bound of its own is asked for by itself, since the bound is on its handlers together; where priorities take
        turns between queues, so do the rounds. Each is planned when it is asked for, after what the one before brought
        has begun.
        """
        self._turn += 1
        for queue, group in groupby(self._in_order(handlers), lambda name: self._bounded(handlers, name)):
            limit = min(self.free, self._free_in(queue, handlers))
            demands = tuple(self._demands(handlers, group, limit))
            if demands:
                yield Round(demands, limit)

    def _in_order(self, handlers: Handlers) -> list[str]:
        """By priority; handlers of one priority by their turn, with those of one bounded queue side by side."""
        names = self.served(handlers)
        turn = self._turn % max(1, len(names))
        rotated = names[turn:] + names[:turn]
        first: dict[tuple[int, str | None], int] = {}

        def order(name: str) -> tuple[int, int]:
            priority = handlers[name].placement.priority
            return -priority, first.setdefault((priority, self._bounded(handlers, name)), len(first))

        return sorted(rotated, key=order)

    def _bounded(self, handlers: Handlers, name: str) -> str | None:
        """The queue of a handler, if it has a bound of its own."""
        queue = handlers[name].placement.queue
        return None if self.queues is None or self.queues[queue] is None else queue

    def _demands(self, handlers: Handlers, names: Iterator[str], limit: int) -> Iterator[Demand]:
        for name in names:
            most = handlers[name].placement.concurrency
            free = limit if most is None else min(limit, most - self._running.get(name, 0))
            if free > 0:
                yield Demand(name, free, self._last.get(name))

    def _free_in(self, queue: str | None, handlers: Handlers) -> int:
        most = None if queue is None or self.queues is None else self.queues[queue]
        if most is None:
            return self.concurrency
        return most - sum(
            count
            for name, count in self._running.items()
            if name in handlers and handlers[name].placement.queue == queue
        )

    def _serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues
