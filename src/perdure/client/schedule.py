"""When each task of a watcher is asked for next: one heap of due times, without a clock and without requests.

`now` is always the caller's, by any clock that does not go back. What moves a poll is a reason to ask sooner
(`at_once`) or later (`heard`), an answer, or a failure. A reason to ask sooner never asks before the server's newest
interval is over, nor before the server has room again if it said when; and it never puts off what is planned.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Final

from . import pace
from .snapshot import Snapshot
from .watched import Watched

__all__ = ["Schedule"]

_SPARE: Final = 64
"""Entries that were overtaken and are left where they are; with more, the heap is made anew. A server that tells much
of what it needn't would fill it else."""


class Schedule:
    """Due times of the tasks in `watched`. `chance`: from 0 to 1."""

    def __init__(self, watched: Mapping[str, Watched], chance: Callable[[], float]) -> None:
        self._watched = watched
        self._chance = chance
        self._heap: list[tuple[float, int, Watched]] = []
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._heap)

    def begin(self, task: Watched, now: float) -> None:
        """Poll a task that was just added: at once, but for what is left of an interval or a pause."""
        due = max(now + self._spread(), task.not_before)
        if task.snapshot is not None:
            due = max(due, task.answered + self._interval(task.snapshot))
        if task.failures:
            due = max(due, task.answered + pace.backoff(task.failures, 0.0, self._chance()))
        self._plan(task, due)

    def at_once(self, task: Watched, now: float, *, after: float = 0.0) -> None:
        """Poll `task` as soon as manners allow, and not within `after` seconds; sooner, if that is planned."""
        due = max(now + after + self._spread(), task.not_before)
        if task.snapshot is not None:
            due = max(due, task.answered + self._interval(task.snapshot))
        if due >= task.due:
            return
        if task.polling:
            task.due = due  # for `answered`
        else:
            self._plan(task, due)

    def heard(self, task: Watched, now: float) -> None:
        """The stream told of `task`: a poll is only needed in case that the stream is dead."""
        if task.snapshot is None or not task.is_open or task.polling:
            return
        due = max(now + pace.listened(task.snapshot, self._chance()), task.not_before)
        if due < task.due:
            self._plan(task, due)
        else:
            # Written down and not pushed: the heap's entry is looked at when its own time comes.
            task.due = due

    def answered(self, task: Watched, snapshot: Snapshot, now: float) -> None:
        """A poll of `task` came to `snapshot`, which it has taken.

        If there was a reason to ask again meanwhile, it is not forgotten.
        """
        least = now + self._interval(snapshot)
        usual = now + pace.listened(snapshot, self._chance()) if task.heard else least
        self._plan(task, min(usual, max(task.due, least)))

    def failed(self, task: Watched, hint: float, now: float) -> None:
        """A poll came to nothing. `hint`: seconds in which the server does not want to be asked again."""
        task.failures += 1
        task.answered, task.not_before = now, now + hint
        least = 0.0 if task.snapshot is None else pace.interval(task.snapshot, 0.0)
        self._plan(task, now + max(least, pace.backoff(task.failures, hint, self._chance())))

    def pop(self, now: float) -> Watched | None:
        """The task that has been due for longest; it is not planned any more."""
        while self._heap and self._heap[0][0] <= now:
            due, entry, task = heapq.heappop(self._heap)
            if entry != task.entry or not self._is_wanted(task):
                continue
            if task.due <= due:
                # Should the poll be cut off, the next one still keeps to the interval.
                task.entry, task.due, task.answered = 0, math.inf, now
                return task
            self._plan(task, task.due)
        return None

    def wait(self, now: float) -> float | None:
        """Seconds until something may be due; None: nothing is planned."""
        return max(0.0, self._heap[0][0] - now) if self._heap else None

    def _is_wanted(self, task: Watched) -> bool:
        return self._watched.get(task.id) is task and task.is_open

    def _plan(self, task: Watched, due: float) -> None:
        task.due, task.entry = due, next(self._numbers)
        heapq.heappush(self._heap, (due, task.entry, task))
        if len(self._heap) > 2 * len(self._watched) + _SPARE:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].entry]
            heapq.heapify(self._heap)

    def _interval(self, snapshot: Snapshot) -> float:
        return pace.interval(snapshot, self._chance(), len(self._watched))

    def _spread(self) -> float:
        """What is asked for at once is still asked for one after the other, if it is many."""
        return pace.spread(len(self._watched), self._chance())
