"""What a backend says of itself and lists, as far as it is the protocol's. Pure.

To clients all backends are one server, whose answer they read whole or not at all: by one tool without a schema, or one
capability that is none, a backend would take away everything that the others have. So what does not fit is left out,
and the rest stays as it came, with fields that nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from mcp_types import ServerCapabilities, methods
from mcp_types.version import LATEST_MODERN_VERSION

from perdure.domain.model import JSON, JSONObject

from .rawjson import encode

__all__ = ["capabilities", "entries"]


def capabilities(said: JSON) -> tuple[JSONObject, int]:
    """Those that are some, and how many are not."""
    if not isinstance(said, dict):
        return {}, 1
    good = {name: value for name, value in said.items() if _is_capability(name, value)}
    return good, len(said) - len(good)


def entries(method: str, field: str, found: Sequence[JSON]) -> list[JSONObject]:
    """Those that are some, of what is in `field` of a result of `method`."""
    good = found if _fit(method, field, found) else [each for each in found if _fit(method, field, [each])]
    return cast("list[JSONObject]", [*good])


def _is_capability(name: str, value: JSON) -> bool:
    try:
        ServerCapabilities.model_validate_json(encode({name: value}), strict=True)
    except (ValueError, RecursionError):
        return False
    return value is not None


def _fit(method: str, field: str, found: Sequence[JSON]) -> bool:
    result: dict[str, Any] = {field: [*found], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    try:
        methods.validate_server_result(method, LATEST_MODERN_VERSION, result)
        # A lone surrogate is text to Python, and to no client that reads UTF-8.
        json.dumps(result, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # the first is pydantic's, an encoder's, and what nests too deep for pydantic
        return False
    return True
