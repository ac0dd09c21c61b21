"""Who listens to which tasks, and what they are told: how each stands now, read once for all of them.

A change is a hint that says which task to look at. Whoever listens for it is not asked: a task is looked at again once
per process, however many listen, and one look takes all tasks that have changed since the last. It reads how they stand
and no more (a result may take megabytes); the rest is read when a reader comes for it, once for all who do (`news`).
They share what comes of that, and whatever they make of it. Nobody listens, nothing is read.

Level-triggered, as the hub is. A reader is handed the newest state of a task that it has not had, whenever it comes for
one: what it missed is folded, its versions only grow, and one that comes slowly, or never, holds up nobody and fills
nothing. Nor can a change be missed between the first look at a task and the next hint: it is registered before that.

Hints may be lost. So all that is listened to is asked for now and then (`_BACKSTOP`); and where other processes commit
to the same file and can't tell us, whenever one has (`Clients.commits_by_others`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from time import perf_counter
from typing import Final
from weakref import WeakValueDictionary

from perdure.domain.errors import StoreUnavailable, TaskExpired, TaskNotFound
from perdure.domain.model import Change, Owner, Task
from perdure.store.base import Clients

from . import patience
from .news import News, Reading
from .seats import Bounds, Seats
from .subscription import Subscription

__all__ = ["Snapshots"]

_BATCH: Final = 500
"""Tasks in one read, at most."""
_BREATH: Final = 0.005
"""Seconds between two reads. The first change after a while is read at once; in a burst each read takes a few."""
_BACKSTOP: Final = 2.0
"""Seconds after which all that is listened to is asked for, at the latest."""
_LOOK_EVERY: Final = 0.01
"""Seconds between looks for commits of others."""
_SHARE: Final = 10
"""The rest after a look, or after a read of what nobody told of, in multiples of what that took."""
_LONGEST_REST: Final = 0.02
"""Seconds of rest after a read, at most: so long a change that somebody tells of may have to wait."""


class _Watched:
    """A task that somebody listens to. `coming`: how many more are about to, and look at it for the first time."""

    __slots__ = ("coming", "id", "news", "readers")

    def __init__(self, task_id: str) -> None:
        self.id = task_id
        self.news: News | None = None
        self.readers: set[Subscription] = set()
        self.coming = 0

    @property
    def version(self) -> int:
        return 0 if self.news is None else self.news.task.version


class Snapshots:
    """All subscriptions of one process. Its `notify` is a store's listener; `keep_up` has to run.

    Store and bounds are asked for each time, since both may be set after the program was put together.
    """

    def __init__(
        self, store: Callable[[], Clients], bounds: Callable[[], Bounds], clock: Callable[[], float] = perf_counter
    ) -> None:
        self._store = store
        self._seats = Seats(bounds)
        self._clock = clock
        self._closed = True
        self._subscriptions: set[Subscription] = set()
        self._watched: dict[str, _Watched] = {}
        self._told: WeakValueDictionary[str, News] = WeakValueDictionary()
        """What some reader has not read yet, by task."""
        self._dirty: dict[str, None] = {}
        """Which of them have changed since they were read, in the order of the hints."""
        self._doubtful: dict[str, None] = {}
        """Which of them may have: all, now and then, which takes many reads. Those that did change go first."""
        self._commits: int | None = None
        self._look_at = 0.0
        self._all_at = 0.0
        """When, by the clock, to look for commits of others, and when to ask for all of them in any case."""
        self._begin()

    def _begin(self) -> None:
        """Make what belongs to one event loop, since it may be another one than the last time."""
        self._woken = asyncio.Event()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._reading = Reading(self._get, self._clock)

    @property
    def subscribed(self) -> int:
        """How many subscriptions are open."""
        return len(self._subscriptions)

    @property
    def watched(self) -> Collection[str]:
        """The tasks that somebody listens to, or is about to."""
        return self._watched

    def open(self) -> None:
        """Take subscriptions, from now on, on this event loop."""
        self._begin()
        self._closed = False

    def close(self) -> None:
        """End all subscriptions and take no more. Safe to call twice."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.end()

    async def given_back(self) -> None:
        """Wait until no subscription is open."""
        await self._nobody.wait()

    # -- who listens ---------------------------------------------------------------------------------------------------

    async def subscribe(
        self, owner: Owner, task_ids: Iterable[str], *, counted: bool = True, stays: bool = False
    ) -> Subscription:
        """Listen to those of the tasks that are the owner's; all others are left out, whatever they are.

        `counted`: its owner has a bound of its own. `stays`: as in `Subscription`.

        Raises:
            LimitExceeded: too many tasks for one subscription.
            SubscriptionsFull: too many subscriptions, or too many tasks of all of them.
            StoreUnavailable: the store is, or the engine has come to its end.
        """
        asked = tuple(dict.fromkeys(task_ids))
        self._seats.check_asked(len(asked))
        subscription = self._admit(owner, counted=counted, stays=stays)
        try:
            for chunk in _chunks(asked, _BATCH):
                await self._accept(subscription, owner, chunk)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def _admit(self, owner: Owner, *, counted: bool, stays: bool) -> Subscription:
        if self._closed:
            raise StoreUnavailable("The server is shutting down")
        whose = owner if counted else None
        self._seats.take(owner, whose)
        subscription = Subscription(self, whose, stays=stays)
        self._subscriptions.add(subscription)
        self._nobody.clear()
        return subscription

    async def _accept(self, subscription: Subscription, owner: Owner, task_ids: list[str]) -> None:
        chunk = [self._expect(task_id) for task_id in task_ids]
        try:
            await asyncio.sleep(0)  # a store that reads on the loop would let nobody else have it until all are read
            found = await self._store().changed(dict.fromkeys(task_ids, 0), owner)
            for watched in chunk:
                task = found.get(watched.id)
                if watched.id not in found:  # it is there, and can't be read: not even how it stands
                    subscription.unreadable = True
                elif task is not None and task.owner == owner:
                    self._join(subscription, watched, self._take(watched, task))
        finally:
            for watched in chunk:
                watched.coming -= 1
                self._tidy(watched)

    def _join(self, subscription: Subscription, watched: _Watched, news: News) -> None:
        if not news.task.status.terminal:  # else nothing more will come of it
            self._seats.take_task(subscription.owner, besides=len(subscription.open))
            watched.readers.add(subscription)
        subscription.accept(news)

    def _expect(self, task_id: str) -> _Watched:
        """What is kept of a task from before somebody looks at it on."""
        watched = self._watched.get(task_id)
        if watched is None:
            if not self._watched:
                self._woken.set()  # there is something to look after from now on
            watched = self._watched[task_id] = _Watched(task_id)
        watched.coming += 1
        return watched

    def forget(self, subscription: Subscription) -> None:
        """As `Home.forget`."""
        if subscription not in self._subscriptions:
            return
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self._nobody.set()
        self._seats.give_back(subscription.owner)
        for task_id in subscription.open:
            self._leave(subscription, task_id)

    def leave(self, subscription: Subscription, task_id: str) -> None:
        """As `Home.leave`."""
        if subscription in self._subscriptions:  # or it was forgotten, with all of its tasks
            self._leave(subscription, task_id)

    def _leave(self, subscription: Subscription, task_id: str) -> None:
        watched = self._watched[task_id]
        self._seats.give_back_task(subscription.owner)
        watched.readers.remove(subscription)
        self._tidy(watched)

    def _let_go(self, watched: _Watched) -> None:
        """Nothing more will come of this task."""
        for reader in watched.readers:
            self._seats.give_back_task(reader.owner)
        watched.readers.clear()
        self._tidy(watched)

    def _tidy(self, watched: _Watched) -> None:
        if not watched.readers and not watched.coming:
            self._watched.pop(watched.id, None)
            self._was_read(watched.id)

    # -- what they are told --------------------------------------------------------------------------------------------

    def notify(self, change: Change | None) -> None:
        """Look at the task that changed, if anybody listens to it; if nobody knows which did, at all of them."""
        if change is None:
            self._doubtful.update(dict.fromkeys(self._watched))
        elif change.task_id in self._watched:
            self._dirty[change.task_id] = None
        else:
            return
        self._woken.set()

    async def keep_up(self) -> None:
        """Read what has changed, again and again, until cancelled."""
        while True:
            if not (self._dirty or self._doubtful):
                await self._wait()
            if self._watched and self._clock() >= self._look_at:
                self._look()
            if self._dirty or self._doubtful:
                await asyncio.sleep(await self._read())

    async def _wait(self) -> None:
        """Until somebody tells of a change, or it is time to look."""
        wait = max(0.0, self._look_at - self._clock()) if self._watched else None
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._woken.wait()
        self._woken.clear()

    def _look(self) -> None:
        """Find whether all have to be asked for: somebody else has committed, or it is time."""
        begun = self._clock()
        try:
            commits = self._store().commits_by_others()
        except StoreUnavailable:
            self._look_at = begun + patience.BACKOFF
            return
        now = self._clock()
        if commits != self._commits or now >= self._all_at:
            self._commits, self._all_at = commits, now + _BACKSTOP
            self.notify(None)
        self._look_at = self._all_at if commits is None else now + max(_LOOK_EVERY, _SHARE * (now - begun))

    async def _read(self) -> float:
        """Read again what has changed, and some of what may have. Returns for how many seconds to rest then."""
        known = {task_id: self._watched[task_id].version for task_id in islice(self._next(), _BATCH)}
        hints = len(self._dirty)
        for task_id in known:  # before the read: what changes during it has to be read again
            self._was_read(task_id)
        begun = self._clock()
        try:
            found = await self._store().changed(known)
        except StoreUnavailable:
            self._dirty |= dict.fromkeys(task_id for task_id in known if task_id in self._watched)
            return patience.BACKOFF
        took = self._clock() - begun
        for task_id, task in found.items():
            # Less than was known before the read: the database was set back. Nobody is shown an older state, so that is
            # the end of it for all of its readers; they listen anew.
            self._tell(task_id, None if task is not None and task.version < known[task_id] else task)
        if len(known) <= hints:
            return _BREATH
        # The larger part of them is asked for in vain.
        rest = min(max(_BREATH, _SHARE * took), _LONGEST_REST)
        self._look_at = max(self._look_at, begun + took + rest)
        return rest

    def _was_read(self, task_id: str) -> None:
        """Nothing is to be read of it, until somebody says so again."""
        self._dirty.pop(task_id, None)
        self._doubtful.pop(task_id, None)

    def _next(self) -> Iterator[str]:
        """What to read, in this order: a change that somebody told of does not wait for those that nobody did."""
        yield from self._dirty
        yield from (task_id for task_id in self._doubtful if task_id not in self._dirty)

    def _tell(self, task_id: str, task: Task | None) -> None:
        watched = self._watched.get(task_id)
        if watched is None:
            return
        if task is not None:
            self._take(watched, task)
        else:
            for reader in watched.readers:
                reader.lose(task_id)
            watched.news = None  # whoever is about to come begins with what there is now
            self._let_go(watched)

    def _take(self, watched: _Watched, task: Task) -> News:
        """Tell the readers, if this is newer than what they know. Returns the newest there is."""
        newest = watched.news
        if newest is None or task.version > newest.task.version:
            newest = watched.news = self._news_of(task)
            for reader in watched.readers:
                reader.put(newest)
            if task.status.terminal:
                self._let_go(watched)
        return newest

    def _news_of(self, task: Task) -> News:
        """The same for whoever comes late to a task that is over, and is no longer watched."""
        news = self._told.get(task.id)
        if news is None or news.task.version != task.version:
            news = self._told[task.id] = News(task, self._reading)
        return news

    async def _get(self, task: Task) -> Task | None:
        with suppress(TaskNotFound, TaskExpired):
            return await self._store().get(task.owner, task.id)
        return None


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, size)):
        yield chunk
