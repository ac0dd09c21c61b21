"""What the server sends over a connection of revision 2025-11-25: questions, and how a task stands that is waited for.

`legacy` says when. The SDK's own models shape none of it, since they are those of later revisions.
"""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import uuid4

from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INVALID_PARAMS, InputRequiredResult, Notification, Request
from pydantic import RootModel, ValidationError

from perdure.domain.model import JSON, JSONObject
from perdure.tools.kinds import kind_of, unsupported_kind

from .models import RequestContext

__all__ = ["Wire", "ask_first", "put", "related", "tell"]

Wire = dict[str, Any]

_RELATED: Final = "io.modelcontextprotocol/related-task"


def related(task_id: str) -> Wire:
    """What `_meta` says of the task that something is about."""
    return {_RELATED: {"taskId": task_id}}


async def ask_first(ctx: RequestContext, asked: InputRequiredResult, kinds: frozenset[str]) -> Wire:
    """The answers to what a tool's `prepare` asks. There is no task yet, so they relate to none.

    `kinds`: the input that the client can give.

    Raises:
        MCPError: -32021, the client can't give such input; or it answered with an error.
    """
    given: Wire = {}
    for key, request in (asked.input_requests or {}).items():
        question = cast("JSONObject", request.model_dump(mode="json", by_alias=True, exclude_none=True))
        if kind_of(question) not in kinds:
            raise unsupported_kind(kind_of(question))
        given[key] = await put(ctx, question, {})
    return given


async def put(ctx: RequestContext, question: JSONObject, meta: Wire) -> JSON:
    """What the client answers to a question. It goes along with the answer to the request where there is room for that.

    Raises:
        MCPError: it answered with an error or with nonsense, or is gone.
    """
    params = cast("Wire", question.get("params") or {})
    params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
    if params.get("mode") == "url":
        params.setdefault("elicitationId", uuid4().hex)  # required in that revision, and unknown to later ones
    way = ServerMessageMetadata(related_request_id=ctx.request_id if ctx.session.can_send_request else None)
    try:
        answer = await ctx.session.send_request(
            Request[Wire, str](method=str(question["method"]), params=params),  # pyright: ignore[reportArgumentType] - as it was asked, whatever models say today
            RootModel[Wire],
            metadata=way,
        )
    except ValidationError as error:
        raise MCPError(INVALID_PARAMS, "The client's answer is none to what it was asked") from error
    return {name: value for name, value in answer.root.items() if name != "_meta"}


async def tell(ctx: RequestContext, before: Wire, now: Wire) -> None:
    """Tell the client that waits of a change that it can see, if there is room for that before the answer."""
    if ctx.session.can_send_request and _visible(before) != _visible(now):
        changed = Notification[Wire, str](method="notifications/tasks/status", params=now)
        # The SDK's own model would leave a ttl out that is null, and clients insist on it.
        await ctx.session.send_notification(changed, ctx.request_id)  # pyright: ignore[reportArgumentType] - see above


def _visible(shown: Wire) -> Wire:
    return {name: value for name, value in shown.items() if name != "lastUpdatedAt"}
