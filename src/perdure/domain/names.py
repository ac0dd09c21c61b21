"""The names on the wire that both sides must spell alike: the server writes them and the client library reads them.

They are here since neither room may import the other. What only one side says stays where it is said.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DISCOVER", "EXTENSION", "IDEMPOTENCY", "IDEMPOTENCY_KEY"]

DISCOVER: Final = "server/discover"

EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension's identifier (SEP-2663)."""

IDEMPOTENCY_KEY: Final = "dev.perdure/idempotencyKey"
"""The name in `_meta` of a `tools/call` under which a client puts its key."""

IDEMPOTENCY: Final = "dev.perdure/idempotency"
"""What a server advertises, among the extensions of `server/discover` and with empty settings, that honours such keys.

A name of its own, since the settings of the tasks extension are exactly empty (contract 1). A client that may not call
twice has to know: a server that has never heard of keys takes the second call for another one.
"""
