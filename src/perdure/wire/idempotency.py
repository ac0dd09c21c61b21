"""The idempotency key of a call: where it stands, what is one, and in what calls under one key must be equal.

A client that did not hear the answer to its `tools/call` can't know whether there is a task. With a key of its own
making it calls again and is given the task that there is, whatever has become of it meanwhile. A key is its owner's,
and stands for its task for as long as that can be read; once the task is purged, the key is free. Without
authentication all clients are one owner, so there a key has to be as hard to guess as a task id: a random UUID, say.

Calls are the same if they name the same tool and send the same arguments: neither what a default made of them, nor the
tool's version, nor what `prepare` found out, since none of these is the client's doing. Of the rest of `_meta` nothing
is kept.

That keys are honoured is advertised in `server/discover`, beside the extensions: no extension of the SDK's, which a
server put together by hand would have to be given too. Of which tools it holds is said in their listings: an ordinary
tool of the same server takes a second call for another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.extension import ToolBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from perdure.domain.limits import Limits
from perdure.domain.names import IDEMPOTENCY, IDEMPOTENCY_KEY
from perdure.store.codec import plain

__all__ = ["Key", "advertised", "marked", "read"]


@dataclass(frozen=True, slots=True)
class Key:
    """What a call is known by: the client's text, and the digest of what it asked for."""

    text: str
    digest: str


def read(params: CallToolRequestParams, limits: Limits) -> Key | None:
    """The key of a call; None without one.

    Raises:
        MCPError: -32602, there is something else in its place.
        NotStorable: it is no valid Unicode.
    """
    meta = cast("Mapping[str, Any]", params.meta or {})
    if IDEMPOTENCY_KEY not in meta:
        return None
    text = meta[IDEMPOTENCY_KEY]
    if not isinstance(text, str) or not 1 <= len(text) <= limits.idempotency_key:
        wanted = f"a string of 1 to {limits.idempotency_key} characters (idempotency_key)"
        raise MCPError(INVALID_PARAMS, f"{IDEMPOTENCY_KEY} must be {wanted}")
    return Key(plain(text), _digest(params))


def advertised(discovered: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `server/discover`, saying as well that keys are honoured."""
    capabilities: dict[str, Any] = discovered["capabilities"]
    extensions: dict[str, Any] = {**capabilities.get("extensions", {}), IDEMPOTENCY: {}}
    return {**discovered, "capabilities": {**capabilities, "extensions": extensions}}


def marked(binding: ToolBinding) -> ToolBinding:
    """A task tool as it is listed: saying, beside its author's own `meta`, that it honours keys."""
    rest = {name: value for name, value in binding.kwargs.items() if name != "meta"}
    meta: dict[str, Any] = {**(binding.kwargs.get("meta") or {}), IDEMPOTENCY: {}}
    return ToolBinding(binding.fn, meta, rest)


def _digest(params: CallToolRequestParams) -> str:
    # No arguments and none at all are one call. The order of the members is no part of a JSON object.
    asked = json.dumps([params.name, params.arguments or {}], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(asked.encode()).hexdigest()
