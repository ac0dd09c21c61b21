"""Which requests may be sent twice, and when the second one goes out. Pure.

Safe is what changes nothing, by the protocol's own word: `tasks/get`, the lists, `server/discover`, and reading a
resource. A resource is data behind a name; whoever serves one has to expect that it is read again, and reading it makes
no task. Not so where the request brings something along, the answers of a round (`inputResponses`, `requestState`):
that may be good for one time only.

Not among them is `prompts/get`, although it reads: a prompt's arguments are a person's input, it is asked for once and
by hand, and that person sees the error. Nor are `tasks/cancel` and `tasks/update`: both may be repeated, but it is
their client that knows whether it still wants to.

`tools/call` is safe under an idempotency key, and only if the backend has said that it honours keys: one that has never
heard of them takes the second call for another one.

Nothing is hedged: a second request goes out when the first one has failed, never beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER, IDEMPOTENCY, IDEMPOTENCY_KEY

from .faults import Fault

__all__ = ["QUICK", "Safe", "honours_keys", "pause", "safe"]

QUICK: Final = frozenset(
    {
        "tasks/get",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        DISCOVER,
    }
)
"""What changes nothing and runs nobody's code, so that taking long says that the backend is not well."""

_READ: Final = "resources/read"
_ROUND: Final = ("inputResponses", "requestState")
_CALL: Final = "tools/call"

_JITTER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Safe:
    """Leave to send a request again, `tries` times in all, after pauses that grow from `first` to `longest` seconds."""

    tries: int = 3
    first: float = 0.1
    longest: float = 2.0


def safe(message: JSONObject, discovered: JSONObject | None, bounds: Safe) -> Safe | None:
    """`bounds`, if `message` may be sent twice to the backend whose result of `server/discover` this is; else None."""
    method, params = message.get("method"), _object(message.get("params"))
    if method in QUICK:
        return bounds
    if method == _READ:
        return None if any(name in params for name in _ROUND) else bounds
    if method == _CALL:
        key = _object(params.get("_meta")).get(IDEMPOTENCY_KEY)
        return bounds if isinstance(key, str) and key and honours_keys(discovered) else None
    return None


def honours_keys(discovered: JSONObject | None) -> bool:
    """Whether a backend says that calls under one idempotency key are one call."""
    capabilities = _object((discovered or {}).get("capabilities"))
    return isinstance(_object(capabilities.get("extensions")).get(IDEMPOTENCY), dict)


def pause(fault: Fault, failures: int, bounds: Safe, left: float, chance: float) -> float | None:
    """Seconds from the `failures`th failure to the next try; None: there is none.

    There is none where the fault would be the same again, where it wants more time than is `left`, and after the last
    try. `chance`: from 0 to 1.
    """
    if not fault.retryable or failures >= bounds.tries:
        return None
    grown = min(bounds.longest, bounds.first * 2 ** min(failures - 1, 30))
    # `retry_after_ms` is what a client is told, who has a way to go. What counts here is the backend's own wish.
    wait = max(grown * (1 - _JITTER * chance), fault.wish_ms / 1000)
    return wait if wait < left else None


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
