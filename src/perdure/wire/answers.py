"""Judging a response to an outstanding question, before anything is stored (contract 4).

It happens on the event loop, to texts of a client's choice, so each check has to be linear in them. Patterns are
matched by the engine that pydantic matches them with, which is; `re` is not, and holds the interpreter lock meanwhile,
so that not even a thread would help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema import ValidationError as Violation
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CreateMessageResult, CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from perdure.domain.limits import Limits, within
from perdure.domain.model import JSON, InputRequest, JSONObject
from perdure.store.codec import encode
from perdure.tools.kinds import FORM, ROOTS, SAMPLING, SAMPLING_TOOLS, URL, kind_of

__all__ = ["check"]

_SHAPES: Final[Mapping[str, type[BaseModel]]] = {
    FORM: ElicitResult,
    URL: ElicitResult,
    SAMPLING: CreateMessageResult,
    SAMPLING_TOOLS: CreateMessageResultWithTools,
    ROOTS: ListRootsResult,
}
_LONGEST_FORMATTED: Final = 16_384
"""Characters of a date, an address or a URI."""


class _Violation(Protocol):
    """What is used of jsonschema's errors; its own stubs leave them untyped."""

    path: Iterable[str | int]
    validator: str


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterator[_Violation]: ...


def _pattern(_validator: object, pattern: str, instance: object, _schema: object) -> Iterator[Violation]:
    matcher = _matcher(pattern)
    if matcher is not None and isinstance(instance, str) and not matcher.isinstance_python(instance):
        yield Violation("does not match")


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> SchemaValidator | None:
    """The engine for one pattern; None if it does not know such ones (look-arounds).

    The author of such a question chose another engine for its model, which then judges alone.
    """
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True))
    except SchemaError:
        return None


def _format(validator: Any, name: str, instance: object, schema: object) -> Iterator[Violation]:
    if isinstance(instance, str) and len(instance) > _LONGEST_FORMATTED:
        yield Violation("too long")
    else:
        yield from Draft202012Validator.VALIDATORS["format"](validator, name, instance, schema)


_Judge: Final[Any] = cast("Any", validators).extend(Draft202012Validator, {"pattern": _pattern, "format": _format})
_FORMATS: Final = FormatChecker()


def check(questions: Iterable[InputRequest], responses: Mapping[str, Any], limits: Limits) -> dict[str, JSON]:
    """The responses that answer one of a task's open questions; all others are left out, whatever they are.

    Raises:
        LimitExceeded: one of them is larger than `Limits.answer`.
        NotStorable: one has no JSON form.
        MCPError: -32602 with the reason: one of them does not fit its question.
    """
    chosen = {question.key: question.request for question in questions if question.key in responses}
    for key, request in chosen.items():
        within(f"The response to {key!r}", len(encode(responses[key]).encode()), limits.answer)
        reason = _misfit(request, responses[key])
        if reason is not None:
            raise MCPError(INVALID_PARAMS, f"The response to {key!r} does not fit its request: {reason}")
    return {key: responses[key] for key in chosen}


def _misfit(request: JSONObject, response: Any) -> str | None:
    """Why `response` is no answer to `request`, or None."""
    kind = kind_of(request)
    try:
        shape = _SHAPES[kind].model_validate(response, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'response'}: {first['msg']}"
    if kind == FORM and isinstance(shape, ElicitResult) and shape.action == "accept":
        return _unfit_content(request, response.get("content"))
    return None


def _unfit_content(request: JSONObject, content: Any) -> str | None:
    if content is None:
        return "content: required when the action is accept"
    params: Any = request["params"]
    validator = cast("_Validator", _Judge(params["requestedSchema"], format_checker=_FORMATS))
    error = next(validator.iter_errors(content), None)
    # The message of a schema error quotes the value, and answers belong in no log and no error: only the rule that was
    # broken is named.
    return None if error is None else f"{'.'.join(['content', *map(str, error.path)])}: violates {error.validator!r}"
