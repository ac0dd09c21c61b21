"""Where a task lies behind a gateway: the route from the id that a client was given to a backend and its own id.

A route is no task. It has no status, no result and no arguments, only what it takes to ask the right backend on behalf
of the right owner, and to know when nobody will ask any more. The backend's answers decide everything else, so what a
gateway was told of a task (`told`) moves that instant and nothing more.

What was told once may be out of date: a server may lengthen a ttl when a task ends, and a client may never ask how it
ended. So no route is over by the clock alone. Once its ttl has run out, or, without one, once a day has passed, a route
is doubtful, and stays until its task is known to be over. A task that ended and has no ttl is there for good, for all
that its backend says; so is its route, which is over only when the backend has no such task any more.

Backends are other people's programs. Their ids become part of a key in the database and their ttls a date, so both are
bounded here, whatever a backend says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .errors import LimitExceeded
from .model import Owner
from .policy import expires_at

__all__ = [
    "LATE_MS",
    "MAX_BACKEND",
    "MAX_BACKEND_TASK_ID",
    "UNHEARD_MS",
    "Route",
    "asked",
    "bounded",
    "fits",
    "is_doubtful",
    "is_news",
    "is_over",
    "laid",
    "pause",
    "told",
]

# The two share a row of an index, as what `limits` says of keys has it: 2,704 bytes, and up to four a character.
MAX_BACKEND: Final = 100
"""Characters in the name of a backend."""
MAX_BACKEND_TASK_ID: Final = 500
"""Characters in a task id that a backend has minted. Perdure's own have 36 to 45."""

UNHEARD_MS: Final = 86_400_000
"""Milliseconds after which a route without a ttl is doubtful: a day. Its task may be there for years, at work or over,
and each day of each such task is a request to its backend."""

LATE_MS: Final = 600_000
"""Milliseconds after which no snapshot is on its way any more that was taken before: ten minutes."""

_LONGEST: Final = 1000 * 366 * 86_400_000
"""Milliseconds: a thousand years. An instant that far ahead is still a date, and a number that every store can hold."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one task. `id` is the gateway's own and all that a client ever sees; `backend_task_id` never is.

    Times are milliseconds since the epoch, by the clock of the store. `created_at`: when the route was laid, which is a
    little later than when its task was made; so a route outlives its task by as much. `expires_at`: when the task's ttl
    runs out, None where it is unlimited. `ended_at`: when a gateway first heard that the task is over, and will not be
    there for good. `doubtful_at`: from when on its backend has to be asked whether it is, None once that is known.
    """

    id: str
    owner: Owner
    backend: str
    backend_task_id: str
    created_at: int
    expires_at: int | None = None
    ended_at: int | None = None
    doubtful_at: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the task is known to be over. It stays so, unless its backend says otherwise much later (`told`)."""
        return self.ended_at is not None

    @property
    def ttl_ms(self) -> int | None:
        """The ttl that the task was last said to have, None where it is unlimited."""
        return None if self.expires_at is None else self.expires_at - self.created_at

    @property
    def gone_ttl_ms(self) -> int:
        """The ttl to note, as ended, once the backend has no such task any more: one without a ttl had none left."""
        return self.ttl_ms or 0

    @property
    def over_at(self) -> int | None:
        """From when on nobody needs the route, but for the retention; None: that can't be told yet.

        A task that is over is there for as long as its ttl, and its owner has to have time to read how it ended, even
        if that was heard of when the ttl had run out already.
        """
        if self.ended_at is None or self.expires_at is None:
            return self.ended_at
        return max(self.ended_at, self.expires_at)


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
    expiry = expires_at(now, bounded(ttl_ms))
    doubtful_at = now + UNHEARD_MS if expiry is None else expiry
    return Route(id, owner, backend, backend_task_id, now, expiry, doubtful_at=doubtful_at)


def told(route: Route, ttl_ms: int | None, now: int, *, ended: bool) -> Route:
    """The route after a snapshot of its task: the ttl that it had there, and whether it was over.

    Snapshots may come late, and from several gateways at once. What is over stays so with the ttl that it ended with,
    which may be longer than the one before: a snapshot of a task that was not over yet is older, and says nothing new.
    But none is as late as `LATE_MS`. A task that is not over by then never was: somebody else had answered for its
    backend, such as a wrong server that did not know it.

    Over and without a ttl is there for good. That is believed at once, whatever was said before: at worst, its backend
    is asked about a task that is gone, once more.
    """
    expiry = expires_at(route.created_at, bounded(ttl_ms))
    if ended and expiry is not None:
        ended_at = now if route.ended_at is None else route.ended_at
        return replace(route, expires_at=expiry, ended_at=ended_at, doubtful_at=None)
    if route.ended_at is None and expiry == route.expires_at:
        return route
    if route.ended_at is not None and not ended and now - route.ended_at < LATE_MS:
        return route
    return replace(route, expires_at=expiry, ended_at=None, doubtful_at=_doubtful_at(route, expiry, now))


def _doubtful_at(route: Route, expiry: int | None, now: int) -> int:
    """From when on a route is doubtful whose ttl has changed.

    One whose new ttl has run out as well is asked about when it was to be asked about anyway: a backend that names
    another ttl each time, all of them past, would be asked in a circle.
    """
    if expiry is not None and expiry > now:
        return expiry
    soon = now + UNHEARD_MS
    return soon if expiry is None or route.doubtful_at is None else min(route.doubtful_at, soon)


def is_news(route: Route, ttl_ms: int | None, *, ended: bool) -> bool:
    """Whether `told` may change anything: if not, whoever holds a route need not ask a store for that."""
    return (route.ended and not ended) or told(route, ttl_ms, route.created_at, ended=ended) != route


def is_doubtful(route: Route, now: int) -> bool:
    """Whether the route's backend has to be asked if the task is there yet."""
    return route.doubtful_at is not None and route.doubtful_at <= now


def pause(again_ms: int, *, unlimited: bool) -> int:
    """For how many milliseconds a route that somebody is asking about is not doubtful, by whether it has no ttl."""
    return max(again_ms, UNHEARD_MS) if unlimited else again_ms


def asked(route: Route, again_ms: int, now: int) -> Route:
    """A doubtful route that somebody is asking about from `now` on."""
    return replace(route, doubtful_at=now + pause(again_ms, unlimited=route.expires_at is None))


def is_over(route: Route, retention_ms: int, now: int) -> bool:
    """Whether the route's time has passed, and `retention_ms` after it."""
    return route.over_at is not None and route.over_at <= now - retention_ms
