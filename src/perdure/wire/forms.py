"""Whether the content of a form fits its schema.

Patterns are matched by the engine that pydantic matches them with, which is linear in the text; `re` is not, and holds
the interpreter lock meanwhile, so that not even a thread would help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema import ValidationError as Violation
from pydantic_core import SchemaError, SchemaValidator, core_schema

__all__ = ["misfit", "violations"]

_LONGEST_FORMATTED: Final = 16_384
"""Characters of a date, an address or a URI."""


class _Violation(Protocol):
    """What is used of jsonschema's errors; its own stubs leave them untyped."""

    absolute_path: Iterable[str | int]
    path: Iterable[str | int]
    validator: str
    validator_value: object


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


def violations(schema: Any, content: object) -> Iterator[_Violation]:
    """Each rule of `schema` that `content` breaks."""
    return cast("_Validator", _Judge(schema, format_checker=_FORMATS)).iter_errors(content)


def misfit(schema: Any, content: object) -> str | None:
    """Why `content` does not fit `schema`, or None."""
    error = next(violations(schema, content), None)
    # The message of a schema error quotes the value, and answers belong in no log and no error: only the rule that was
    # broken is named.
    return None if error is None else f"{'.'.join(['content', *map(str, error.path)])}: violates {error.validator!r}"
