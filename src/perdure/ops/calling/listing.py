"""A tool and its arguments, in a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from mcp_types import Tool

from perdure.ops import text

from . import typed
from .typed import Schema

__all__ = ["told"]


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
    kinds = " or ".join(sorted(typed.kinds(schema, root))) or "anything"
    default = f", else {text.document(found['default'])}" if "default" in found else ""
    about: object = found.get("description")
    words = f"{name}  {kinds}{', needed' if required else default}"
    return text.line(f"{words}  {about}" if isinstance(about, str) else words)
