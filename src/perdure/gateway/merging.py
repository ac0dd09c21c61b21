"""What several backends say of themselves in `server/discover`, as if one had said it. Pure.

What they said stays as it is: it is kept, and looked at by others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from perdure.domain.model import JSONObject
from perdure.domain.names import EXTENSION

from .backends import Backend, Naming

__all__ = ["UNHEARD", "capabilities", "instructions"]

UNHEARD: Final[JSONObject] = {
    "capabilities": {"extensions": {EXTENSION: {}}, "tools": {}, "prompts": {}, "resources": {}}
}
"""What stands in for the word of a backend that was never heard: that it may have anything.

A client asks once, and goes by that for as long as it runs. What it was told is not there it would not look for once
the backend is up.
"""


def capabilities(said: Sequence[JSONObject]) -> JSONObject:
    """The capabilities of all. An extension is offered if one has it; which tools honour keys, the listings say."""
    merged: JSONObject = {}
    for one in said:
        merged = _either(merged, cast("JSONObject", one.get("capabilities") or {}))
    extensions = merged.get("extensions")
    if isinstance(extensions, dict) and EXTENSION in extensions:
        return {**merged, "extensions": {**extensions, EXTENSION: {}}}
    return merged


def _either(one: JSONObject, other: JSONObject) -> JSONObject:
    merged = dict(one)
    for name, value in other.items():
        mine = merged.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[name] = _either(mine, value)
        elif mine is None or value is True:
            merged[name] = value
    return merged


def instructions(said: Sequence[tuple[Backend, JSONObject]]) -> str:
    """The instructions of all, each under the name of its backend; "" if there are none.

    They speak of tools by the names that these have there, so what the names are here is said beside them. Those of an
    only backend whose names are the same are passed on as they are.
    """
    parts: list[str] = []
    for backend, one in said:
        text = one.get("instructions")
        if isinstance(text, str) and text.strip():
            heading = f"# {backend.name}" if len(said) > 1 else ""
            parts.append("\n\n".join(filter(None, [heading, _names(backend.tools), text])))
    return "\n\n".join(parts)


def _names(naming: Naming) -> str:
    if naming.mapped is None:
        return f"The names of its tools begin with {naming.prefix} here." if naming.prefix else ""
    renamed = [f"{theirs} is {ours}" for ours, theirs in naming.mapped.items() if ours != theirs]
    return f"Tools have other names here: {', '.join(renamed)}." if renamed else ""
