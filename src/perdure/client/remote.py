"""The extension's four requests over an SDK session, each bounded, and nothing of when they are sent.

The SDK stamps `Mcp-Method`, and `Mcp-Name` from `name_param` (contract 8); this is the one place that builds them.
Results are taken as dictionaries: what a task says is read by `snapshot`, with fields that nobody has heard of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import anyio
from mcp.client.session import ClientSession
from mcp_types import (
    Request,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel

from .errors import Malformed
from .snapshot import NotATask, Snapshot

__all__ = ["Remote"]

_STREAM: Final = 7 * 86_400.0
"""Seconds after which a stream is given up and opened anew. Its own end is what is waited for; this is for a session
whose own bound on requests would otherwise hold for streams as well."""


class _Said(RootModel[dict[str, Any]]):
    """A result as it came."""


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class Remote:
    """The tasks of one server, over one session. `timeout`: seconds that a request has, from its sending.

    What a request raises is the SDK's: `MCPError` for an error response, a lost connection and a time-out of its own,
    `TimeoutError` for ours, `pydantic.ValidationError` for what is no response at all.
    """

    def __init__(self, session: ClientSession, timeout: float) -> None:
        self.session = session
        self.timeout = timeout

    @property
    def may_listen(self) -> bool:
        """Whether the protocol has streams; whether the server serves them for tasks is seen when one is asked for."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def get(self, task_id: str) -> Snapshot:
        """What the server says of the task now.

        Raises:
            Malformed: what it says describes no task, or another one.
        """
        said = await self._ask("tasks/get", {"taskId": task_id})
        try:
            snapshot = Snapshot.parse(said)
        except NotATask as error:
            raise Malformed(task_id, f"What the server says is no task: {error}") from error
        if snapshot.id != task_id:
            raise Malformed(task_id, "The server answered with another task")
        return snapshot

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> None:
        """Answer questions. Twice is harmless: the first answer counts."""
        await self._ask("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)})

    async def cancel(self, task_id: str) -> None:
        """Ask the task to stop. Twice is harmless."""
        await self._ask("tasks/cancel", {"taskId": task_id})

    async def listen(self, task_ids: Collection[str]) -> None:
        """Keep a stream open for these tasks, to its end. What it says comes as notifications, not from here."""
        wanted = SubscriptionFilter.model_validate({"taskIds": [*task_ids]})
        request = SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=wanted))
        await self.session.send_request(request, _Said, request_read_timeout_seconds=_STREAM)

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request = _TaskRequest(method=method, params=params)
        # The SDK's own bound begins once the request is written, and writing may stall as well.
        with anyio.fail_after(self.timeout):
            said = await self.session.send_request(request, _Said, request_read_timeout_seconds=self.timeout)
        return said.root
