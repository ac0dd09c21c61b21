"""How many subscriptions may be open, and of how many tasks together: of all, and of one owner.

One owner could else take what there is for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from perdure.domain.errors import LimitExceeded, SubscriptionsFull
from perdure.domain.limits import Limits
from perdure.domain.model import Owner

__all__ = ["Bounds", "Seats"]

_FULL: Final = "Too many subscriptions{} are open already: {} is the limit {}"
_LISTENED: Final = "Too many tasks{} are listened to already: {} is the limit {}"


class Bounds(Protocol):
    """How many may be open, and of how many tasks together, in all and of one owner; None is no bound."""

    @property
    def subscriptions(self) -> int | None: ...

    @property
    def owner_subscriptions(self) -> int | None: ...

    @property
    def subscribed_tasks(self) -> int | None: ...

    @property
    def owner_subscribed_tasks(self) -> int | None: ...

    @property
    def limits(self) -> Limits: ...


class Seats:
    """How many are taken. `whose`: the owner that they count for besides; None: they count among all alone.

    The bounds are asked for each time, since they may be set after the program was put together.
    """

    def __init__(self, bounds: Callable[[], Bounds]) -> None:
        self._bounds = bounds
        self._subscriptions = 0
        self._subscriptions_of: Counter[Owner] = Counter()
        self._tasks = 0
        """Each as often as it is listened to."""
        self._tasks_of: Counter[Owner] = Counter()

    def check_asked(self, tasks: int) -> None:
        """That one subscription may ask for so many tasks.

        Raises:
            LimitExceeded: it may not.
        """
        most = self._bounds().limits.tasks_per_subscription
        if tasks > most:
            raise LimitExceeded(f"A subscription may ask for {most} tasks at most (tasks_per_subscription)")

    def take(self, owner: Owner, whose: Owner | None) -> None:
        """One subscription more, which is the owner's.

        Raises:
            SubscriptionsFull: there are as many as there may be.
        """
        bounds = self._bounds()
        if _is_full(self._subscriptions, bounds.subscriptions):
            raise SubscriptionsFull(_FULL.format("", bounds.subscriptions, "for all (subscriptions)"), owner=owner)
        if whose is not None:
            if _is_full(self._subscriptions_of[whose], bounds.owner_subscriptions):
                why = _FULL.format(" of this owner", bounds.owner_subscriptions, "(owner_subscriptions)")
                raise SubscriptionsFull(why, owner=owner)
            self._subscriptions_of[whose] += 1
        self._subscriptions += 1

    def give_back(self, whose: Owner | None) -> None:
        """One subscription less."""
        self._subscriptions -= 1
        _less(self._subscriptions_of, whose)

    def take_task(self, whose: Owner | None, *, besides: int) -> None:
        """One task more is listened to, by a subscription that listens to so many besides.

        Raises:
            LimitExceeded: no subscription may listen to so many, however few there are.
            SubscriptionsFull: there are as many as there may be.
        """
        bounds = self._bounds()
        held = [(self._tasks, bounds.subscribed_tasks, "", "for all (subscribed_tasks)")]
        if whose is not None:
            own = (" of this owner", "(owner_subscribed_tasks)")
            held.append((self._tasks_of[whose], bounds.owner_subscribed_tasks, *own))
        for _, bound, _, which in held:
            if _is_full(besides, bound):
                name = which.removeprefix("for all ")
                raise LimitExceeded(f"A subscription may ask for {bound} unfinished tasks at most {name}")
        for count, bound, who, which in held:
            if _is_full(count, bound):
                raise SubscriptionsFull(_LISTENED.format(who, bound, which), owner=whose)
        self._tasks += 1
        if whose is not None:
            self._tasks_of[whose] += 1

    def give_back_task(self, whose: Owner | None) -> None:
        """One task less."""
        self._tasks -= 1
        _less(self._tasks_of, whose)


def _less(counts: Counter[Owner], whose: Owner | None) -> None:
    """One less, and nothing kept of who has none."""
    if whose is not None:
        counts[whose] -= 1
        if not counts[whose]:
            del counts[whose]


def _is_full(count: int, bound: int | None) -> bool:
    return bound is not None and count >= bound
