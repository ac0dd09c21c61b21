"""What a person typed, as the value that a JSON schema wants. Pure.

A string stays what it is wherever the schema allows one; only where it does not is the text read as a number, a yes or
no, or JSON. So nobody has to quote, and `007` does not become 7 behind anybody's back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from perdure.wire.forms import violations

__all__ = ["Unfit", "kinds", "parse", "parse_json", "parts", "resolved", "values", "wrong"]

Schema = Mapping[str, Any]

_DEPTH: Final = 8
_MOST_PARTS: Final = 1_000
_MOST_REFERENCES: Final = 10_000
"""What is looked at of a schema, which is a server's: it must not cost more time than anybody has."""
_YES: Final = frozenset({"true", "yes", "y", "1", "on"})
_NO: Final = frozenset({"false", "no", "n", "0", "off"})
_REASONS: Final[Mapping[str, str]] = {
    "minimum": "it must be at least {}",
    "maximum": "it must be at most {}",
    "exclusiveMinimum": "it must be more than {}",
    "exclusiveMaximum": "it must be less than {}",
    "multipleOf": "it must be a multiple of {}",
    "minLength": "it must have at least {} characters",
    "maxLength": "it must have at most {} characters",
    "minItems": "there must be at least {}",
    "maxItems": "there must be at most {}",
    "uniqueItems": "nothing may be there twice",
    "format": "it must be a valid {}",
    "pattern": "it must match {}",
    "enum": "it must be one of {}",
    "const": "it must be {}",
    "type": "it must be {}",
    "required": "it needs {}",
}


class Unfit(ValueError):
    """It is no such value; the message says what it has to be."""


def resolved(schema: object, root: Schema) -> dict[str, Any]:
    """The schema that a reference within `root` leads to; empty if that is nowhere."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict):
            return {}
        found = cast("dict[str, Any]", schema)
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        schema = _at(root, reference)
    return {}


def _at(root: Schema, reference: str) -> object:
    if not reference.startswith("#/"):
        return None
    place: object = root
    for part in reference[2:].split("/"):
        if not isinstance(place, Mapping):
            return None
        place = cast("Mapping[str, object]", place).get(part.replace("~1", "/").replace("~0", "~"))
    return place


def kinds(schema: object, root: Schema) -> frozenset[str]:
    """The JSON types that the schema allows; empty if it does not say."""
    return frozenset(kind for part in parts(schema, root) for kind in _kinds(part))


def values(schema: object, root: Schema) -> tuple[Any, ...]:
    """The values that the schema allows, if it lists them all."""
    found: list[Any] = []
    for part in parts(schema, root):
        listed = [None] if part.get("type") == "null" else _values(part)
        if not listed and not [*_ways(part)]:
            return ()
        found += listed
    return tuple(found)


def parts(schema: object, root: Schema) -> Iterator[dict[str, Any]]:
    """The schema and, if it names no type, the ways (`anyOf`) that it allows besides, and theirs.

    Each once: a schema may lead through its parts in more ways than anybody has time for.
    """
    visited, ahead = set[int](), [schema]
    while ahead and len(visited) < _MOST_PARTS:
        part = resolved(ahead.pop(0), root)
        if id(part) in visited:
            continue
        visited.add(id(part))
        yield part
        if "type" not in part:
            ahead += _ways(part)


def _kinds(part: dict[str, Any]) -> Iterator[str]:
    said = part.get("type")
    if isinstance(said, str):
        yield said
    elif isinstance(said, list):
        yield from (each for each in cast("list[object]", said) if isinstance(each, str))
    else:
        yield from (_kind(each) for each in _values(part))


def _values(schema: dict[str, Any]) -> list[Any]:
    listed = schema.get("enum")
    found: list[Any] = [*cast("list[Any]", listed)] if isinstance(listed, list) else []
    return [*found, schema["const"]] if "const" in schema else found


def _ways(schema: dict[str, Any]) -> Iterator[object]:
    for word in ("anyOf", "oneOf", "allOf"):
        ways: object = schema.get(word)
        if isinstance(ways, list):
            yield from cast("list[object]", ways)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return "array" if isinstance(value, list) else "object"


def parse(words: str, schema: object, root: Schema) -> Any:
    """The value that was typed.

    Raises:
        Unfit: it is none that the schema allows.
    """
    allowed = kinds(schema, root)
    if not allowed or "string" in allowed:
        return words
    for kind, read in _READ.items():
        if kind in allowed:
            try:
                return read(words.strip(), schema, root)
            except ValueError:
                continue
    raise Unfit(f"it must be {_or(allowed)}")


def _null(words: str, _schema: object, _root: Schema) -> None:
    if words != "null":
        raise ValueError


def _boolean(words: str, _schema: object, _root: Schema) -> bool:
    if words.lower() in _YES | _NO:
        return words.lower() in _YES
    raise ValueError


def _integer(words: str, _schema: object, _root: Schema) -> int:
    if "_" in words:
        raise ValueError
    return int(words)


def _number(words: str, schema: object, root: Schema) -> int | float:
    try:
        return _integer(words, schema, root)
    except ValueError:
        number = float(words)
    if "_" in words or not math.isfinite(number):
        raise ValueError
    return number


def _array(words: str, schema: object, root: Schema) -> list[Any]:
    if words.startswith("["):
        return _of(words, list)
    items = resolved(schema, root).get("items")
    try:
        return [parse(words, items, root)]
    except RecursionError:
        raise Unfit("it is a list of lists without end") from None


def _object(words: str, _schema: object, _root: Schema) -> dict[str, Any]:
    return _of(words, dict)


def _of(words: str, kind: type[Any]) -> Any:
    value = parse_json(words)
    if not isinstance(value, kind):
        raise Unfit("it is other JSON")
    return value


_READ: Final[Mapping[str, Callable[[str, object, Schema], Any]]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
}
_NAMES: Final = {
    "null": "null",
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list in JSON, or one item",
    "object": "an object in JSON",
    "string": "text",
}


def _or(allowed: frozenset[str]) -> str:
    named = [_NAMES.get(kind, kind) for kind in _NAMES if kind in allowed] or sorted(allowed)
    return " or ".join(named)


def parse_json(words: str) -> Any:
    """A value that is said in JSON.

    Raises:
        Unfit: it is not.
    """

    def refuse(constant: str) -> None:
        raise Unfit(f"{constant} is no JSON")

    try:
        value = json.loads(words, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"it is no JSON: {error}") from None
    # Half of a pair, which JSON can say and nothing can send.
    if any("\ud800" <= each <= "\udfff" for each in json.dumps(value, ensure_ascii=False)):
        raise Unfit("it has text in it that is none: half of a surrogate pair")
    return value


def wrong(value: object, schema: Schema) -> Iterator[tuple[str, str]]:
    """Where and why a value does not fit its schema. One that is none, or that refers elsewhere, judges nothing."""
    if _refers_elsewhere(schema):
        return
    try:
        found = [*violations(_without_dialect(schema), value, references=_MOST_REFERENCES)]
    except Exception:  # noqa: BLE001 - boundary: what jsonschema makes of a schema that is none
        return
    for violation in found:
        yield ".".join(map(str, violation.absolute_path)), _why(violation)


def _why(violation: Any) -> str:
    """The reason in words. Of several ways (`int | None`) those count that the value was of the right type for."""
    reasons = [*dict.fromkeys(_reason(str(each.validator), each.validator_value) for each in _nearest(violation))]
    return " or ".join([reasons[0], *(reason.removeprefix("it must be ") for reason in reasons[1:])])


def _nearest(violation: Any) -> list[Any]:
    ways = [each for each in violation.context if not each.context]
    near = [each for each in ways if each.validator != "type"]
    return near or ways or [violation]


def _reason(rule: str, value: object) -> str:
    if rule == "type":
        value = _or(frozenset({value} if isinstance(value, str) else cast("list[str]", value)))
    elif isinstance(value, list):
        value = ", ".join(map(str, cast("list[object]", value)))
    return _REASONS.get(rule, f"it breaks the rule {rule!r}").format(value)


def _without_dialect(schema: object) -> Any:
    if isinstance(schema, Mapping):
        found = cast("Mapping[str, object]", schema)
        return {
            name: _without_dialect(value)
            for name, value in found.items()
            if name != "$schema" or not isinstance(value, str)
        }
    return [*map(_without_dialect, cast("list[object]", schema))] if isinstance(schema, list) else schema


def _refers_elsewhere(schema: object) -> bool:
    """Whether it names another document. jsonschema fetches those, and no server says where this program goes."""
    if isinstance(schema, Mapping):
        found = cast("Mapping[str, object]", schema)
        words = (found.get("$ref"), found.get("$dynamicRef"))
        if any(isinstance(word, str) and not word.startswith("#") for word in words):
            return True
        return any(map(_refers_elsewhere, found.values()))
    return isinstance(schema, list) and any(map(_refers_elsewhere, cast("list[object]", schema)))
