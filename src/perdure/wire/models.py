"""The shapes of what arrives at the extension's own methods, and its names.

`inputResponses` is a map of anything on purpose: a response to a key that nobody waits for must be ignored whatever its
value is (contract 4), so the values are judged only once their questions are known (`answers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types import RequestParams

from perdure.domain.names import DISCOVER, EXTENSION

__all__ = [
    "DISCOVER",
    "EXTENSION",
    "EXTENSION_VERSION",
    "LISTEN",
    "METHODS",
    "RequestContext",
    "TaskParams",
    "UpdateParams",
    "misplaces_tasks",
    "names_tasks",
]

EXTENSION_VERSION: Final = "2026-07-28+e434597"
"""The revision that is implemented: the protocol version whose core it runs on, and the commit of
modelcontextprotocol/ext-tasks whose text and schema it follows."""

METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})

LISTEN: Final = "subscriptions/listen"
"""A method of the protocol's core, to whose parameters the extension adds `notifications.taskIds`."""


RequestContext = ServerRequestContext[Any, Any]
"""A request as the SDK hands it over, whatever the server's lifespan yields and its transport is."""


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any]


def names_tasks(params: Mapping[str, Any] | None) -> bool:
    """Whether the raw parameters of a `subscriptions/listen` ask for tasks, be it well or badly."""
    notifications = (params or {}).get("notifications")
    return isinstance(notifications, dict) and "taskIds" in notifications


def misplaces_tasks(params: Mapping[str, Any] | None) -> bool:
    """Whether they have `taskIds` where the core's parameters are, beside `notifications`."""
    return "taskIds" in (params or {})
