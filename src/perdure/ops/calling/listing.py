"""A tool and its arguments, in a few lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from mcp_types import Tool

from perdure.ops import text

from . import typed
from .typed import Schema

__all__ = ["told"]


_MOST_LISTED: Final = 20


def told(tool: Tool) -> Iterator[str]:
    """Its name, what it does, and a line for each argument."""
    about = text.line((tool.description or "").strip().partition("\n")[0])
    yield f"{text.line(tool.name)}  {about}".rstrip()
    properties: object = tool.input_schema.get("properties")
    needed: object = tool.input_schema.get("required")
    for name, schema in cast("dict[str, Any]", properties).items() if isinstance(properties, dict) else ():
        required = isinstance(needed, list) and name in cast("list[object]", needed)
        yield f"  {_argument(name, schema, tool.input_schema, required)}"


def _argument(name: str, schema: object, root: Schema, required: bool) -> str:
    found = typed.resolved(schema, root)
    default = f", else {json.dumps(found['default'])}" if "default" in found else ""
    about: object = found.get("description")
    words = f"{name}  {_wanted(schema, root)}{', needed' if required else default}"
    return text.line(f"{words}  {about}" if isinstance(about, str) else words)


def _wanted(schema: object, root: Schema) -> str:
    """What it may be: its values if they are listed, else its types, of a list with what its items may be."""
    listed = [each if isinstance(each, str) else json.dumps(each) for each in typed.values(schema, root)]
    if listed:
        return "|".join(listed[:_MOST_LISTED]) + ("|…" if len(listed) > _MOST_LISTED else "")
    kinds = [_named(kind, schema, root) for kind in sorted(typed.kinds(schema, root))]
    return " or ".join(kinds) or "anything"


def _named(kind: str, schema: object, root: Schema) -> str:
    if kind != "array":
        return kind
    items = next((each["items"] for each in typed.parts(schema, root) if "items" in each), None)
    if items is None or "array" in typed.kinds(items, root):
        return kind
    return f"array of {_wanted(items, root)}"
