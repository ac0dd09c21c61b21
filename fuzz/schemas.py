"""Values that a JSON schema allows, made from the schema: as much of the language as those of the protocol use.

What the schema leaves open, such as which tool or which task, is decided by `known`: strategies for members by name,
and for definitions. Each value is validated in the end, so that a word of the language that is not known here makes
fewer cases and no wrong ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from tests.wire.checker import SCHEMAS

__all__ = ["CORE", "EXTENSION", "Known", "allowed", "plain_texts", "plain_values"]

JSON = Any
Known = Mapping[str, SearchStrategy[JSON]]

CORE: Final = "mcp-2026-07-28.schema.json"
EXTENSION: Final = "ext-tasks.schema.json"
_MOST: Final = 2**53 - 1


@cache
def _definitions(file: str) -> dict[str, JSON]:
    return json.loads((SCHEMAS / file).read_text("utf-8"))["$defs"]


def allowed(file: str, name: str, known: Known) -> SearchStrategy[JSON]:
    """Values of the definition `name`. `known`: by the name of a member, or of a definition."""
    whole = {"$ref": f"#/$defs/{name}", "$defs": _definitions(file)}
    validator = Draft202012Validator(whole)
    values = _Maker(_definitions(file), known).of({"$ref": f"#/$defs/{name}"})
    return values.filter(lambda value: _fits(validator, value))


def _fits(validator: Draft202012Validator, value: JSON) -> bool:
    return validator.is_valid(value)  # pyright: ignore[reportUnknownMemberType] - its stubs


def plain_texts() -> SearchStrategy[str]:
    """Text that UTF-8 can carry."""
    return st.text(max_size=12)


def plain_values() -> SearchStrategy[JSON]:
    """JSON that every parser reads alike."""
    leaves = st.none() | st.booleans() | st.integers(-_MOST, _MOST) | plain_texts()
    leaves |= st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_texts(), inner, max_size=3),
        max_leaves=4,
    )


class _Maker:
    def __init__(self, definitions: Mapping[str, JSON], known: Known) -> None:
        objects = st.dictionaries(plain_texts(), plain_values(), max_size=2)
        self._definitions = definitions
        # These two are all that is recursive in earnest.
        self._known: Known = {"JSONValue": plain_values(), "JSONObject": objects, **known}
        self._made: dict[str, SearchStrategy[JSON]] = {}

    def of(self, schema: JSON) -> SearchStrategy[JSON]:
        """Values of `schema`."""
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return st.one_of([self.of(each) for each in schema[several]])
        if "allOf" in schema:
            return st.tuples(*(self.of(each) for each in schema["allOf"])).map(_merged)
        return self._typed(schema)

    def _named(self, name: str) -> SearchStrategy[JSON]:
        if name in self._known:
            return self._known[name]
        if name not in self._made:
            self._made[name] = st.deferred(lambda: self.of(self._definitions[name]))
        return self._made[name]

    def _typed(self, schema: JSON) -> SearchStrategy[JSON]:
        kind = schema.get("type")
        if isinstance(kind, list):
            return st.one_of([self._typed({**schema, "type": each}) for each in kind])  # pyright: ignore[reportUnknownVariableType]
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                items = self.of(schema.get("items", {}))
                return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 3))
            case "string":
                return _string(schema)
            case "integer":
                return st.integers(schema.get("minimum", -_MOST), schema.get("maximum", _MOST))
            case "number":
                return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case _:
                return plain_values()

    def _object(self, schema: JSON) -> SearchStrategy[JSON]:
        required = set(schema.get("required", ()))
        members = {
            name: self._known[name] if name in self._known else self.of(inner)
            for name, inner in schema.get("properties", {}).items()
        }
        fixed = st.fixed_dictionaries(
            {name: each for name, each in members.items() if name in required},
            optional={name: each for name, each in members.items() if name not in required},
        )
        more = schema.get("additionalProperties")
        if not isinstance(more, dict):
            return fixed
        names = self._known.get("*", plain_texts()).filter(lambda name: name not in members)
        return st.tuples(st.dictionaries(names, self.of(more), max_size=2), fixed).map(_merged)


def _string(schema: JSON) -> SearchStrategy[str]:
    match schema.get("format"):
        case "uri":
            return st.sampled_from(("https://example.com/a", "file:///a", "urn:a:b"))
        case "byte":
            return st.sampled_from(("", "AA==", "AAAA"))
        case _:
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 12))


def _merged(parts: Any) -> JSON:
    merged: dict[str, JSON] = {}
    for part in parts:
        for name, value in part.items():
            both = isinstance(value, dict) and isinstance(merged.get(name), dict)
            merged[name] = _merged((merged[name], value)) if both else value
    return merged
