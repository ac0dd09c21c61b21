"""Judging a response to an outstanding question, before anything is stored (contract 4).

It happens on the event loop, to what a client chose, so each check has to be linear in it, and there is a bound of how
many values it may be; and whatever goes wrong in judging an answer is the answer's fault, not the server's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CreateMessageResult, CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import BaseModel, ValidationError

from perdure.domain.limits import Limits, within
from perdure.domain.model import JSON, InputRequest, JSONObject
from perdure.store.codec import encode
from perdure.tools.kinds import FORM, ROOTS, SAMPLING, SAMPLING_TOOLS, URL, kind_of

from .extent import check_answers

__all__ = ["check"]

_SHAPES: Final[Mapping[str, type[BaseModel]]] = {
    FORM: ElicitResult,
    URL: ElicitResult,
    SAMPLING: CreateMessageResult,
    SAMPLING_TOOLS: CreateMessageResultWithTools,
    ROOTS: ListRootsResult,
}

_TOLD: Final = 1_000
"""Errors of a shape, of which the first is told."""


def check(questions: Iterable[InputRequest], responses: Mapping[str, Any], limits: Limits) -> dict[str, JSON]:
    """The responses that answer one of a task's open questions; all others are left out, whatever they are.

    Raises:
        LimitExceeded: one of them is larger than `Limits.answer`, or all of them have more values than they may.
        NotStorable: one has no JSON form.
        MCPError: -32602 with the reason: one of them does not fit its question.
    """
    chosen = {question.key: question.request for question in questions if question.key in responses}
    check_answers({key: responses[key] for key in chosen}, limits.answer_values)
    for key, request in chosen.items():
        within(f"The response to {key!r}", len(encode(responses[key]).encode()), limits.answer, "answer")
        reason = _reason(request, responses[key])
        if reason is not None:
            raise MCPError(INVALID_PARAMS, f"The response to {key!r} does not fit its request: {reason}")
    return {key: responses[key] for key in chosen}


def _reason(request: JSONObject, response: Any) -> str | None:
    try:
        return _misfit(request, response)
    except Exception:  # noqa: BLE001 - the boundary to those who judge: what they make nothing of is no answer
        return "it can't be judged"


def _misfit(request: JSONObject, response: Any) -> str | None:
    """Why `response` is no answer to `request`, or None."""
    kind = kind_of(request)
    try:
        shape = _SHAPES[kind].model_validate(response, by_name=False)
    except ValidationError as error:
        if error.error_count() > _TOLD:  # all of them would have to be written down to tell the first
            return "response: nothing in it is as it should be"
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'response'}: {first['msg']}"
    if kind == FORM and isinstance(shape, ElicitResult) and shape.action == "accept":
        return _unfit_content(request, response.get("content"))
    return None


def _unfit_content(request: JSONObject, content: Any) -> str | None:
    if content is None:
        return "content: required when the action is accept"
    # Here, since what judges forms takes a twentieth of a program's start to import, and most programs answer none.
    from .forms import misfit

    params: Any = request["params"]
    return misfit(params["requestedSchema"], content)
