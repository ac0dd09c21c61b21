"""Asking a backend how a task stands: a `tasks/get` of the gateway's own, under the route's owner.

What whoever looks after routes needs to know of backends, and nothing of what becomes of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp.server.auth.provider import AccessToken

from perdure.domain.routing import Route

from .backends import Asker, Backend
from .faults import BackendBroken, BackendRefused, Fault, IdentityRefused
from .janitor import Nothing, Standing, heard

__all__ = ["GET", "Asking"]

GET: Final = "tasks/get"


class Asking:
    """What a `Janitor` asks, and `TaskRequests` when in doubt, over the backends by their names."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends

    async def __call__(self, route: Route, token: AccessToken | None = None) -> Standing:
        """How the task stands. A backend that is not configured any more may be so again.

        `token`: the owner's, if the owner is here.
        """
        backend, theirs = self._backends.get(route.backend), route.backend_task_id
        if backend is None:
            return Nothing.UNREACHABLE
        try:
            response = await backend.ask(GET, {"taskId": theirs}, Asker(route.owner, token), name=theirs)
        except (BackendBroken, BackendRefused, IdentityRefused):  # of this task, or for this owner
            return Nothing.UNCLEAR
        except Fault:
            return Nothing.UNREACHABLE
        return heard(response, route)
