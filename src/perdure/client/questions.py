"""One question to the client's own callbacks: from what a server sent to what it is answered with, as on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp.client.session import ClientRequestContext, ClientSession
from mcp_types import ErrorData, InputRequest
from pydantic import BaseModel, TypeAdapter, ValidationError

from .errors import InputDeclined, Malformed

__all__ = ["as_sent", "ask"]

_REQUEST: Final[TypeAdapter[InputRequest]] = TypeAdapter(InputRequest)


async def ask(session: ClientSession, task_id: str, key: str, request: object) -> dict[str, Any]:
    """What the callback for this kind of question says. What a callback raises is passed on.

    Raises:
        InputDeclined: it says that there is no answer.
        Malformed: it is no question, or of a kind that this SDK does not know.
    """
    try:
        asked = _REQUEST.validate_python(request, by_name=False)
    except ValidationError as error:
        raise Malformed(task_id, f"The question {key!r} is of no kind that is known here") from error
    meta = asked.params.meta if asked.params else None
    context = ClientRequestContext(session=session, request_id=key, meta=meta)
    said = await session.dispatch_input_request(context, asked)
    if isinstance(said, ErrorData):
        raise InputDeclined(task_id, key, said)
    return as_sent(said)


def as_sent(response: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """A response as on the wire."""
    if isinstance(response, BaseModel):
        return response.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(response)
