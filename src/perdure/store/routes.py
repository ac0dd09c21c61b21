"""The `Routes` protocol: what a gateway may ask of the table that says where tasks lie.

A protocol of its own beside `Store`, since whoever proxies tasks keeps none: a gateway needs a database and neither
workers nor a journal, and a store without a gateway never touches a route. They lie in one database all the same, with
one schema, so that one address, one backup and one migration are enough.

Each verb is one atomic operation, and what it wrote when it returns survives the loss of the process and of power
(`memory` aside). Time is the store's own: verbs take spans, never instants. Any number of gateways may share what lies
beneath, and none of them remembers anything for the others; so every gateway finds every route, at once.

Every verb may raise `StoreUnavailable`: nothing was changed, or the outcome is unknown to the caller, and the verb is
safe to call again. One that reads may raise `Unreadable`: the row was damaged. A verb that is cancelled while it waits
may still happen.

Routes are not sealed under a store's keys. There is no payload in them: names, ids, owners and times, which are in the
clear everywhere else in the database. That includes the backend's id, which opens the task to anybody who can reach a
backend that asks nobody who they are; but so does the id of a task in such a backend's own database, and the gateway's
id of a task here, wherever the gateway asks nobody. What would be gained is little. What it would cost is the table in
each walk that seals values anew, and routes that are lost, with all their tasks, once a key is. A backend that is
reached through a gateway has to take requests from the gateway only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from perdure.domain.model import Owner
from perdure.domain.routing import Route

__all__ = ["Routes"]


class Routes(Protocol):
    """Durable routes. One instance serves one process; several processes may share what lies beneath it."""

    async def open(self) -> None:
        """Open for use from the running event loop.

        An embedded store brings its schema up to date here; one that is shared by machines is migrated before.

        Raises:
            StoreUnusable: it can't be used as it stands; one line says why and what to do.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun and release everything. Safe to call twice."""
        ...

    async def lay(self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str) -> Route:
        """Lay a route to a task that `backend` has made for `owner`; durable when this returns.

        `gateway_id`: what the client will know it by, minted at random (`domain.ids`). `ttl_ms`: the task's ttl in
        milliseconds, None where it is unlimited.

        If a route of this owner's leads there already, that one is returned as it stands, with its own id: a call that
        was made again may be answered with the task of the first. So may this very call, after `StoreUnavailable`.

        Raises:
            RouteTaken: the route that leads there is another owner's, so the backend lies or can't tell its callers
                apart; or `gateway_id` leads elsewhere, and was not minted at random.
            LimitExceeded: a name is longer than a store can keep (`routing.fits`).
            NotStorable: one of the texts can't be stored.
        """
        ...

    async def find(self, owner: Owner, id: str) -> Route:
        """The owner's route of that id. Every request about a task asks this first.

        Unknown, foreign and purged are one answer, and take equally long: the owner is a part of what is looked for.

        Raises:
            TaskNotFound: there is none.
        """
        ...

    async def find_many(self, owner: Owner, ids: Collection[str]) -> Mapping[str, Route]:
        """Of the routes of those ids, the ones that are this owner's, by their ids; the others are just not there.

        All in one look; how many ids there may be is for the caller to bound. A row that was damaged is left out.
        """
        ...

    async def update(self, id: str, *, ttl_ms: int | None, ended: bool) -> None:
        """Note what a snapshot of the task told: the ttl it has now, and whether it is over (`routing.told`).

        One that is over and has no ttl is there for good, and its route stays doubtful. That there is no such task any
        more is noted as an end too, with `Route.gone_ttl_ms`.

        Nothing is written where that is no news, and nothing happens if there is no such route any more. Whoever holds
        the route can tell without asking (`routing.is_news`). Takes no owner: the snapshot was asked for by one.
        """
        ...

    async def take_doubtful(self, limit: int, again_ms: int) -> Mapping[str, Route]:
        """Up to `limit` routes, by their ids, of which somebody has to ask their backends whether the tasks are there.

        That is so once the ttl has run out, and a day after the laying where it is unlimited (`routing.UNHEARD_MS`), as
        long as the task was not found to be over, or, where it is unlimited, gone; the longest doubtful are taken
        first. `update` notes the answer.

        Whoever takes a route asks: for `again_ms` milliseconds from now on, and for a day at least where the ttl is
        unlimited, nobody else gets it. So any number of gateways may call this at once, and one that dies, or can't
        reach the backend, has only put off the asking. A row that was damaged is left out.
        """
        ...

    async def purge(self, limit: int, retention_ms: int) -> int:
        """Delete up to `limit` routes whose time passed at least `retention_ms` ago, the oldest first; how many.

        That time is when the ttl had run out and the task was found to be over, both; without a ttl, when it was found
        to be gone. So a route of which nobody has asked how its task ended stays, whatever the clock says. Any number
        of gateways may call this at once.
        """
        ...

    async def count(self) -> int:
        """How many routes there are. Looks at each of them: for a gauge that is read now and then, and no request."""
        ...
