"""Whether the content of a form fits its schema.

An answer that fits is stored, and nobody can take it back; then the tool's model has to take it. So numbers, dates and
addresses are judged by the engine of those models besides, which is stricter where JSON Schema says nothing: an integer
that no float can hold, a minute of 61 seconds. Patterns are matched by it too, which is linear in the
text; `re` is not, and holds the interpreter lock meanwhile, so that not even a thread would help.

What a list holds again and again is judged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema import ValidationError as Violation
from pydantic_core import SchemaError, SchemaValidator, core_schema

__all__ = ["TooMuch", "misfit", "violations"]

_LONGEST_FORMATTED: Final = 16_384
"""Characters of a date, an address or a URI."""


class TooMuch(Exception):
    """A schema leads through so many references that nobody waits for the end."""


class _Violation(Protocol):
    """What is used of jsonschema's errors; its own stubs leave them untyped."""

    absolute_path: Iterable[str | int]
    path: Iterable[str | int]
    relative_schema_path: Sequence[str | int]
    context: Sequence[_Violation]
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
        return
    yield from _STANDARD["format"](validator, name, instance, schema)
    if isinstance(instance, str) and name in _TAKEN and not _TAKEN[name].isinstance_python(instance):
        yield Violation("no model takes it")


def _type(validator: Any, name: Any, instance: object, schema: object) -> Iterator[Violation]:
    yield from _STANDARD["type"](validator, name, instance, schema)
    if name in ("number", "integer") and not _TAKEN[name].isinstance_python(instance):
        yield Violation("no model takes it")


def _multiple_of(_validator: object, factor: float, instance: object, _schema: object) -> Iterator[Violation]:
    if (
        isinstance(instance, int | float)
        and not isinstance(instance, bool)
        and not _divider(factor).isinstance_python(instance)
    ):
        yield Violation("is no multiple")


@lru_cache(maxsize=256)
def _divider(factor: float) -> SchemaValidator:
    """The engine's arithmetic: 0.07 is a multiple of 0.01, though the quotient of the two is a little more than 7."""
    if isinstance(factor, int):
        return SchemaValidator(core_schema.int_schema(multiple_of=factor))
    return SchemaValidator(core_schema.float_schema(multiple_of=factor))


def _items(validator: Any, items: object, instance: object, _schema: object) -> Iterator[Violation]:
    """Each item of a list, but for those that it has had already: forms have choices, of which there are a few."""
    seen: set[object] = set()
    for index, item in enumerate(cast("list[object]", instance) if isinstance(instance, list) else ()):
        if isinstance(item, str):
            if item in seen:
                continue
            seen.add(item)
        yield from validator.descend(item, items, path=index)


_STANDARD: Final[Any] = Draft202012Validator.VALIDATORS
_RULES: Final = {"pattern": _pattern, "format": _format, "type": _type, "multipleOf": _multiple_of, "items": _items}
_Judge: Final[Any] = cast("Any", validators).extend(Draft202012Validator, _RULES)
_FORMATS: Final = FormatChecker()
_TAKEN: Final = {
    "number": SchemaValidator(core_schema.float_schema()),
    "integer": SchemaValidator(core_schema.int_schema()),
    "date": SchemaValidator(core_schema.date_schema()),
    "date-time": SchemaValidator(core_schema.datetime_schema()),
    "uri": SchemaValidator(core_schema.url_schema()),
}
"""What the plain type of a model takes, by the type or the format that it has in a schema."""


def violations(schema: Any, content: object, *, references: int | None = None) -> Iterator[_Violation]:
    """Each rule of `schema` that `content` breaks.

    `references`: how many are followed at most, of a schema that is not to be trusted. A short one may ask for any
    number of steps, but not without references. It must name no dialect (`$schema`), which would have its own judge.

    Raises:
        TooMuch: it has more of them.
    """
    judge = _Judge if references is None else _following(references)
    return cast("_Validator", judge(schema, format_checker=_FORMATS)).iter_errors(content)


def _following(left: int) -> Any:
    """A judge that follows so many references, all in all."""

    def followed(word: str) -> Any:
        def follow(validator: Any, reference: str, instance: object, schema: object) -> Iterator[Violation]:
            nonlocal left
            left -= 1
            if left < 0:
                raise TooMuch
            yield from _STANDARD[word](validator, reference, instance, schema)

        return follow

    return cast("Any", validators).extend(_Judge, {word: followed(word) for word in ("$ref", "$dynamicRef")})


def misfit(schema: Any, content: object) -> str | None:
    """Why `content` does not fit `schema`, or None."""
    error = next(violations(schema, content), None)
    # The message of a schema error quotes the value, and answers belong in no log and no error: only the rule that was
    # broken is named.
    return None if error is None else f"{'.'.join(['content', *map(str, error.path)])}: violates {error.validator!r}"
