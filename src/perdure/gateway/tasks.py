"""`tasks/get`, `tasks/update` and `tasks/cancel`: found under their owner, asked of the backend that has the task.

A backend that says -32602 to a client's `tasks/get` may have forgotten the task, or dislike something else in that
request. So it is asked once more, by a request of the gateway's own, before the route is over. The client's answer is
the backend's own in any case.
"""

from __future__ import annotations

from typing import Final, cast

from mcp_types import INVALID_PARAMS

from perdure.domain.model import JSONObject
from perdure.domain.routing import Route

from . import rewriting
from .answers import Answer, invalid_params, passed
from .asking import GET, Asking
from .backends import Asker, Backend
from .envelope import Request, check_name, require_tasks
from .faults import BackendBroken, BackendUnavailable
from .inflight import Pending
from .janitor import Nothing
from .routing import Routing

__all__ = ["METHODS", "TaskRequests"]

UPDATE: Final = "tasks/update"
METHODS: Final = frozenset({GET, UPDATE, "tasks/cancel"})


class TaskRequests:
    """The three methods, over the routes to the tasks of all backends."""

    def __init__(self, routing: Routing, backends: dict[str, Backend]) -> None:
        self._routing = routing
        self._backends = backends
        self._asking = Asking(backends)

    async def serve(self, request: Request, asker: Asker, pending: Pending) -> Answer:
        """The answer to one of them.

        Raises:
            MCPError: as a server says it.
            TaskNotFound, MalformedTaskId: the owner has no such task.
            Fault: its backend does not answer.
        """
        require_tasks(request)
        check_name(request)
        task_id = request.params.get("taskId")
        if not isinstance(task_id, str) or not _fits(request):
            raise invalid_params()
        route = await self._routing.find(asker.owner, task_id)
        pending.backend = route.backend
        return await self.ask(route, request, asker)

    async def ask(self, route: Route, request: Request, asker: Asker) -> Answer:
        """The backend's answer to a request about a task of its own.

        Raises:
            Fault: there is none.
        """
        backend, theirs = self.backend_of(route), route.backend_task_id
        message = request.message({**request.params, "taskId": theirs})
        headers = rewriting.named(request.headers, theirs)
        reply = await backend.request(message, headers, asker, retry=backend.upstream.safe(message))
        response = cast("JSONObject", reply.message)
        if "error" in response:
            error = cast("JSONObject", response["error"])
            if request.method == GET and error.get("code") == INVALID_PARAMS:
                await self._doubt(route, asker)
            said = rewriting.error(error, theirs, route.id)
            return passed({**response, "id": request.id, "error": said}, reply.status)
        result = cast("JSONObject", response["result"])
        if request.method == GET:
            result = await self.seen(route, result)
        return passed({**response, "result": rewriting.snapshot(result, theirs, route.id)}, reply.status)

    async def seen(self, route: Route, snapshot: JSONObject) -> JSONObject:
        """A snapshot of a task, noted.

        Raises:
            BackendBroken: it is of another one.
        """
        if snapshot.get("taskId") != route.backend_task_id:
            raise BackendBroken(route.backend, "it answered with another task")
        await self._routing.note(route, snapshot)
        return snapshot

    async def _doubt(self, route: Route, asker: Asker) -> None:
        """End the route if its backend is sure that there is no such task."""
        if not route.ended and await self._asking(route, asker.token) is Nothing.GONE:
            await self._routing.end(route)

    def backend_of(self, route: Route) -> Backend:
        """The backend that has a task.

        Raises:
            BackendUnavailable: it is not configured any more.
        """
        try:
            return self._backends[route.backend]
        except KeyError:
            raise BackendUnavailable(route.backend, "is not configured here", counts=False) from None


def _fits(request: Request) -> bool:
    return request.method != UPDATE or isinstance(request.params.get("inputResponses"), dict)
