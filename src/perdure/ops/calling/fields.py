"""The fields of a form, from the schema of an elicitation: what each wants, and what a typed line says in it. Pure.

The specification's schemas are flat, with four types and lists of choices. What another schema has besides is asked for
in JSON, and judged by the schema like everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from . import typed
from .typed import Schema, Unfit

__all__ = ["NOTHING", "Choice", "Field", "fields", "misfits", "sendable"]

NOTHING: Final = object()
"""No value: the field is left out."""

Kind = Literal["choice", "choices", "boolean", "integer", "number", "string", "json"]

_PLAIN: Final = ("boolean", "integer", "number", "string")
_WANTS: Final[Mapping[Kind, str]] = {
    "choice": "one of these",
    "choices": "any of these, with commas between",
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "string": "",
    "json": "JSON",
}
_MOST_LISTED: Final = 20
_BOUNDS: Final = (
    ("format", "{}"),
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {}"),
    ("maxItems", "at most {}"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values that a field can have, and what it is called."""

    value: Any
    title: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. `default` is `NOTHING` if there is none. `choices`: of the two kinds that have some."""

    name: str
    title: str
    description: str
    kind: Kind
    required: bool
    default: Any
    schema: Schema = field(repr=False)
    choices: tuple[Choice, ...] = ()

    def hint(self, chosen: str = "") -> str:
        """What it wants, for people. `chosen`: the choices, where they are not listed."""
        bounds = [words.format(self.schema[word]) for word, words in _BOUNDS if word in self.schema]
        parts = [f"{_WANTS[self.kind]}{chosen}", *bounds, "" if self.required else "may be left out"]
        return ", ".join(part for part in parts if part)

    def listed(self) -> str:
        """What there is to know of it, in one line: what it is called in an answer first."""
        chosen = f": {', '.join(str(each.value) for each in self.choices)}" if self.choices else ""
        hint, default = self.hint(chosen), self.shown_default()
        parts = [self.name, hint, default and f"else {default}", self.description]
        return "  ".join(part for part in parts if part)

    def plain(self) -> dict[str, Any]:
        """As `--json` has it."""
        found: dict[str, Any] = {"name": self.name, "title": self.title, "kind": self.kind, "required": self.required}
        if self.description:
            found["description"] = self.description
        if self.default is not NOTHING:
            found["default"] = self.default
        if self.choices:
            found["choices"] = [{"value": each.value, "title": each.title} for each in self.choices]
        return found

    def shown_default(self) -> str:
        """The default as somebody would type it; empty if there is none."""
        return "" if self.default is NOTHING else self._shown(self.default)

    def _shown(self, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(self._shown, cast("list[Any]", value)))
        if isinstance(value, bool):
            return "yes" if value else "no"
        return next((choice.title for choice in self.choices if choice.value == value), str(value))

    def read(self, words: str) -> Any:
        """The value that was typed; of an empty line the default, or `NOTHING`.

        Raises:
            Unfit: it is none.
        """
        if not words.strip():
            return self._left_empty()
        if self.kind == "string" and words.strip() == '""':
            words = ""
        value = self._value(words)
        reason = next((reason for _, reason in typed.wrong(value, self.schema)), None)
        if reason is not None:
            raise Unfit(reason)
        return value

    def _left_empty(self) -> Any:
        if self.default is not NOTHING or not self.required:
            return self.default
        if self.kind == "choices" and not self.schema.get("minItems"):
            return []
        raise Unfit('it is needed; "" is an empty text' if self.kind == "string" else "it is needed")

    def _value(self, words: str) -> Any:
        match self.kind:
            case "choice":
                return self._chosen(words)
            case "choices":
                return [self._chosen(each) for each in words.split(",") if each.strip()]
            case "json":
                return sendable(typed.parse_json(words))
            case "string":
                return words
            case _:
                return typed.parse(words, self.schema, {})

    def _chosen(self, words: str) -> Any:
        """By its value, its title or its number, in this order: a value may look like a number."""
        wanted = words.strip()
        for choice in self.choices:
            if str(choice.value) == wanted:
                return choice.value
        for choice in self.choices:
            if choice.title.casefold() == wanted.casefold():
                return choice.value
        if wanted.isdecimal() and len(wanted) < 5 and 0 < int(wanted) <= len(self.choices):
            return self.choices[int(wanted) - 1].value
        listed = ", ".join(choice.title for choice in self.choices[:_MOST_LISTED])
        raise Unfit(f"{wanted!r} is none of {listed}{', …' if len(self.choices) > _MOST_LISTED else ''}")


def sendable(value: object) -> Any:
    """The value, if an answer can carry it. The SDK's has what the specification lets a form ask for.

    Raises:
        Unfit: it can't.
    """
    if isinstance(value, dict) or not all(isinstance(each, str) for each in _list(value)):
        raise Unfit("an answer can't carry that: only text, numbers, true, false, null, and lists of texts")
    return value


def fields(schema: object) -> tuple[Field, ...]:
    """The fields of the form that `schema` describes, in its order."""
    root = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    properties: object = root.get("properties")
    required: object = root.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    if not isinstance(properties, dict):
        return ()
    return tuple(
        _field(name, typed.resolved(each, root), name in needed)
        for name, each in cast("dict[str, object]", properties).items()
    )


def misfits(content: Mapping[str, Any], schema: object) -> list[str]:
    """What the whole of a form's content breaks."""
    root = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    return [f"{place or 'the form'}: {reason}" for place, reason in typed.wrong(dict(content), root)]


def _field(name: str, schema: dict[str, Any], required: bool) -> Field:
    kind, choices = _kind(schema)
    return Field(
        name=name,
        title=_text(schema.get("title")) or name,
        description=_text(schema.get("description")),
        kind=kind,
        required=required,
        default=schema.get("default", NOTHING) if schema.get("default") is not None else NOTHING,
        schema=schema,
        choices=choices,
    )


def _kind(schema: dict[str, Any]) -> tuple[Kind, tuple[Choice, ...]]:
    choices = tuple(_choices(schema))
    if choices:
        return "choice", choices
    items: object = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, dict):
        choices = tuple(_choices(cast("dict[str, Any]", items)))
        if choices:
            return "choices", choices
    kind: object = schema.get("type")
    return (cast("Kind", kind) if kind in _PLAIN else "json"), ()


def _choices(schema: dict[str, Any]) -> Iterator[Choice]:
    for word in ("oneOf", "anyOf"):
        for each in _list(schema.get(word)):
            if isinstance(each, dict) and "const" in each:
                way = cast("dict[str, Any]", each)
                yield Choice(way["const"], _text(way.get("title")) or str(way["const"]))
    values, names = _list(schema.get("enum")), _list(schema.get("enumNames"))
    for place, value in enumerate(values):
        name = names[place] if place < len(names) else None
        yield Choice(value, _text(name) or str(value))


def _list(found: object) -> Sequence[Any]:
    return cast("list[Any]", found) if isinstance(found, list) else ()


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""
