"""The names that the source of a function may use, as far as they are there by now."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["names_for"]


def names_for(function: Callable[..., Any]) -> dict[str, Any]:
    """Its module's names, and those around it that it uses itself."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    cells = zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False)
    return {**getattr(function, "__globals__", {}), **{free: _content(cell) for free, cell in cells}}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
