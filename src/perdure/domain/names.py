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
"""What says that such keys are honoured. It stands in two places, with empty settings, and promises something by both.

Among the extensions of `server/discover` it says that this server knows keys at all. In `_meta` of a tool, as
`tools/list` has it, it says that a second call of that tool under the key of a first one, with the same arguments, does
no work of its own: it is answered by what came of the first one, for as long as the server has its task. A server has
ordinary tools as well, which know no keys; so a client makes a call again only where both are said, and whoever passes
on the tools of other servers passes on the mark of a tool only with what it promises.

A name of its own, since the settings of the tasks extension are exactly empty (contract 1). A client that may not call
twice has to know: a server that has never heard of keys takes the second call for another one.
"""
