"""Routes as rows of a table, which both databases have alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from perdure.domain import routing
from perdure.domain.errors import Unreadable
from perdure.domain.model import Owner
from perdure.domain.routing import Route

from .codec import UNREADABLE, is_plain, plain, sound
from .sealing import CLEAR

__all__ = ["COLUMNS", "by_id", "fit", "is_sayable", "route", "values"]

COLUMNS: Final = "id, tenant, principal, backend, backend_task_id, created_at, expires_at, ended_at, doubtful_at"
"""The columns as `route` reads and `values` gives them."""


def route(row: Any) -> Route:
    """The route in a row.

    Raises:
        Unreadable: a text in it was damaged. It is said in the log.
    """
    id_, tenant, principal, backend, backend_task_id, *times = row
    try:
        owner = Owner(sound(tenant), sound(principal))
        return Route(sound(id_), owner, sound(backend), sound(backend_task_id), *times)
    except UNREADABLE as error:
        raise CLEAR.damaged(error, str(id_), "route") from error


def by_id(rows: Iterable[Any]) -> dict[str, Route]:
    """The routes in rows, by their ids, without those that were damaged."""
    found: dict[str, Route] = {}
    for row in rows:
        try:
            found[row[0]] = route(row)
        except Unreadable:
            continue  # the log has it
    return found


def values(of: Route) -> tuple[object, ...]:
    """A row to be written."""
    owner = of.owner
    return (
        of.id, owner.tenant, owner.principal, of.backend, of.backend_task_id, of.created_at, of.expires_at, of.ended_at,
        of.doubtful_at,
    )  # fmt: skip


def fit(owner: Owner, backend: str, backend_task_id: str, id: str) -> None:
    """That a route with these texts can be stored, in a database of either kind.

    Raises:
        LimitExceeded, NotStorable: it can't.
    """
    plain("".join((owner.tenant, owner.principal, backend, backend_task_id, id)))
    routing.fits(backend, backend_task_id)


def is_sayable(id: str, owner: Owner | None = None) -> bool:
    """Whether there may be such a route at all. What is asked for comes from strangers, in a batch with others."""
    return id.isascii() and is_plain(id, *(() if owner is None else (owner.tenant, owner.principal)))
