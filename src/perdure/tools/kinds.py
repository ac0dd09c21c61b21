"""The kinds of input that a tool can ask for, and what its client has to have declared for each.

The names are the words that the store keeps with a task (`accepts`). What a request declared is read in the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from perdure.domain.model import JSONObject

__all__ = [
    "FORM",
    "KINDS",
    "ROOTS",
    "SAMPLING",
    "SAMPLING_TOOLS",
    "URL",
    "kind_of",
    "missing_capability",
    "unsupported_kind",
]

FORM: Final = "elicitation"
URL: Final = "elicitation.url"
SAMPLING: Final = "sampling"
SAMPLING_TOOLS: Final = "sampling.tools"
ROOTS: Final = "roots"

_REQUIRED: Final[Mapping[str, JSONObject]] = {
    FORM: {"elicitation": {}},
    URL: {"elicitation": {"url": {}}},
    SAMPLING: {"sampling": {}},
    SAMPLING_TOOLS: {"sampling": {"tools": {}}},
    ROOTS: {"roots": {}},
}
KINDS: Final = frozenset(_REQUIRED)
"""All kinds of input that there are."""


def kind_of(request: JSONObject) -> str:
    """The kind of input that an input request asks for."""
    params = request.get("params")
    params = params if isinstance(params, dict) else {}
    match request["method"]:
        case "elicitation/create":
            return URL if params.get("mode") == "url" else FORM
        case "sampling/createMessage":
            return SAMPLING_TOOLS if params.get("tools") else SAMPLING
        case _:
            return ROOTS


def unsupported_kind(kind: str) -> MCPError:
    """What a question comes to when the client that called the tool can't answer its kind."""
    return missing_capability(
        _REQUIRED[kind], f"The client did not declare the {kind} capability, which the tool needs"
    )


def missing_capability(required: JSONObject, message: str) -> MCPError:
    """-32021, naming what the client would have had to declare."""
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": required})
