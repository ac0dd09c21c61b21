"""Where a task lies behind a gateway: the route from the id that a client was given to a backend and its own id.

A route is no task. It has no status, no result and no arguments, only what it takes to ask the right backend on behalf
of the right owner, and to know when nobody will ask any more. The backend's answers decide everything else, so what a
gateway was told of a task (`told`) moves that instant and nothing more.

Backends are other people's programs. Their ids become part of a key in the database and their ttls a date, so both are
bounded here, whatever a backend says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .errors import LimitExceeded
from .model import Owner
from .policy import expires_at

__all__ = ["MAX_BACKEND", "MAX_BACKEND_TASK_ID", "Route", "bounded", "fits", "is_news", "is_over", "laid", "told"]

# The two share a row of an index, as what `limits` says of keys has it: 2,704 bytes, and up to four a character.
MAX_BACKEND: Final = 100
"""Characters in the name of a backend."""
MAX_BACKEND_TASK_ID: Final = 500
"""Characters in a task id that a backend has minted. Perdure's own have 36 to 45."""

_LONGEST: Final = 1000 * 366 * 86_400_000
"""Milliseconds: a thousand years. An instant that far ahead is still a date, and a number that every store can hold."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one task. `id` is the gateway's own and all that a client ever sees; `backend_task_id` never is.

    Times are milliseconds since the epoch, by the clock of the store. `created_at`: when the route was laid, which is a
    little later than when its task was made; so a route outlives its task by as much. `expires_at`: when the task's ttl
    runs out, None where it is unlimited. `ended_at`: when a gateway first heard that the task is over.
    """

    id: str
    owner: Owner
    backend: str
    backend_task_id: str
    created_at: int
    expires_at: int | None = None
    ended_at: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the task is known to be over. It never becomes anything else again."""
        return self.ended_at is not None

    @property
    def over_at(self) -> int | None:
        """From when on nobody needs the route, but for the retention; None: that can't be told yet.

        A task with a ttl is there for as long as that, over or not. One without is there until its owner has had time
        to read how it ended.
        """
        return self.ended_at if self.expires_at is None else self.expires_at


def fits(backend: str, backend_task_id: str) -> None:
    """That a store can keep a route to there.

    Raises:
        LimitExceeded: one of the two is too long. The message shows neither: to a backend that asks nobody who they
            are, its id is the key to the task.
    """
    for what, text, most in (
        ("The name of a backend", backend, MAX_BACKEND),
        ("A task id of a backend", backend_task_id, MAX_BACKEND_TASK_ID),
    ):
        if len(text) > most:
            raise LimitExceeded(f"{what} has {len(text)} characters, and {most} is the limit")


def bounded(ttl_ms: int | None) -> int | None:
    """A ttl as a backend said it, in milliseconds; at least none, and a thousand years at most."""
    return None if ttl_ms is None else min(max(ttl_ms, 0), _LONGEST)


def laid(id: str, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, now: int) -> Route:
    """A route that is laid at `now`."""
    return Route(id, owner, backend, backend_task_id, now, expires_at(now, bounded(ttl_ms)))


def told(route: Route, ttl_ms: int | None, now: int, *, ended: bool) -> Route:
    """The route after a snapshot of its task: the ttl that it had there, and whether it was over.

    Snapshots may come late, and from several gateways at once. What is over stays so with the ttl that it ended with,
    which may be longer than the one before: a snapshot of a task that was not over yet is older, and says nothing new.
    """
    if route.ended and not ended:
        return route
    ended_at = route.ended_at if route.ended or not ended else now
    return replace(route, expires_at=expires_at(route.created_at, bounded(ttl_ms)), ended_at=ended_at)


def is_news(route: Route, ttl_ms: int | None, *, ended: bool) -> bool:
    """Whether `told` would change anything: whoever holds a route need not ask a store for that."""
    return told(route, ttl_ms, route.created_at, ended=ended) != route


def is_over(route: Route, retention_ms: int, now: int) -> bool:
    """Whether the route's time has passed, and `retention_ms` after it."""
    return route.over_at is not None and route.over_at <= now - retention_ms
