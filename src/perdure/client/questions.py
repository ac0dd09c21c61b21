"""One question to the client's own callbacks: from what a server sent to what it is answered with, as on the wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, cast

from mcp.client.session import ClientRequestContext, ClientSession
from mcp_types import ErrorData, InputRequest
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, TypeAdapter, ValidationError

from .errors import InputDeclined, Malformed, Unsendable

__all__ = ["as_sent", "ask", "digest", "place", "sendable"]

T = TypeVar("T")

_REQUEST: Final[TypeAdapter[InputRequest]] = TypeAdapter(InputRequest)


async def ask(session: ClientSession, task_id: str, key: str, request: object) -> dict[str, Any]:
    """What the callback for this kind of question says. What a callback raises is passed on.

    Raises:
        InputDeclined: it says that there is no answer.
        Malformed: it is no question, or of a kind that this SDK does not know.
        Unsendable: what it says is no answer.
    """
    try:
        asked = _parsed(request)
    except ValidationError as error:
        raise Malformed(task_id, f"The question {key!r} is of no kind that is known here") from error
    meta = asked.params.meta if asked.params else None
    context = ClientRequestContext(session=session, request_id=key, meta=meta)
    said: object = await session.dispatch_input_request(context, asked)
    if isinstance(said, ErrorData):
        raise InputDeclined(task_id, key, said)
    return as_sent(said)


def digest(key: str, request: object) -> str:
    """By which the same question is known again, whether a round asks it or a task.

    It is of what the core has for questions: a server leaves the rest out in a round, and may say it in a task.
    """
    said = {"resultType": "input_required", "inputRequests": {key: request}}
    try:
        _parsed(request)
        asked = serialize_server_result("tools/call", LATEST_MODERN_VERSION, said)["inputRequests"][key]
    except ValidationError:
        asked = request
    else:
        asked["params"] = {name: value for name, value in asked.get("params", {}).items() if name != "_meta"}
    return hashlib.sha256(json.dumps([key, asked], sort_keys=True).encode()).hexdigest()


def place(number: int | Literal["*"], digest: str) -> str:
    """Where the answer to a question of a call's round is in the journal. `*`: of any round, as a pattern."""
    return f"round {number}: {digest}"


def _parsed(request: object) -> InputRequest:
    return _REQUEST.validate_python(request, by_name=False)


def as_sent(response: object) -> dict[str, Any]:
    """A response as on the wire.

    Raises:
        Unsendable: it is no answer, or holds what has no JSON form.
    """
    if isinstance(response, BaseModel):
        said: object = response.model_dump(by_alias=True, mode="json", exclude_none=True)
    else:
        said = response
    if not isinstance(said, Mapping):
        raise Unsendable(f"An answer is an ElicitResult, say, or the same as a dictionary, and not {response!r}")
    return sendable(dict(cast("Mapping[str, Any]", said)), "The answer")


def sendable(value: T, what: str) -> T:
    """`value`, which JSON has a form for.

    Raises:
        Unsendable: it has none; `what` it is begins the message.
    """
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Unsendable(f"{what} can't be sent: {error}") from error
    return value
