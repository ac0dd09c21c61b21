"""Asking a backend about a task while its owner is away: a `tasks/get` of the gateway's own, under the route's owner.

What `janitor` needs to know of backends, and nothing of what becomes of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain.routing import Route

from .backends import Asker, Backend
from .faults import BackendBroken, BackendRefused, Fault, IdentityRefused
from .janitor import Answer, Nothing, heard
from .tasks import GET

__all__ = ["Asking"]


class Asking:
    """What a `Janitor` asks, over the backends by their names."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends

    async def __call__(self, route: Route) -> Answer:
        """How the task stands. A backend that is not configured any more may be so again."""
        backend, theirs = self._backends.get(route.backend), route.backend_task_id
        if backend is None:
            return Nothing.UNREACHABLE
        try:
            response = await backend.ask(GET, {"taskId": theirs}, Asker(route.owner), name=theirs)
        except (BackendBroken, BackendRefused, IdentityRefused):  # of this task, or for this owner
            return Nothing.UNCLEAR
        except Fault:
            return Nothing.UNREACHABLE
        return heard(response, route)
