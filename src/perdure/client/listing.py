"""What a server lists of one tool, read anew: to agree with it on headers, and to learn whether it honours keys."""

from __future__ import annotations

from typing import Final

import anyio
from mcp.client.client import Client
from mcp_types import Tool

from perdure.domain.names import IDEMPOTENCY

__all__ = ["honours_keys", "honours_keys_of", "listed"]

_WITHIN: Final = 60.0
_MOST_PAGES: Final = 100
"""Seconds in which the listing is read, and pages of it: a server may have cursors without end."""


async def listed(client: Client, name: str) -> Tool | None:
    """The tool of that name as the server lists it now; None if it is in none of the pages that were read.

    Raises:
        MCPError: the server's answer.
        TimeoutError: there was none in time.
    """
    cursor: str | None = None
    with anyio.fail_after(_WITHIN):
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found = next((tool for tool in page.tools if tool.name == name), None)
            cursor = page.next_cursor
            if found is not None or cursor is None:
                return found
    return None


def honours_keys(client: Client) -> bool:
    """Whether the server says that it honours idempotency keys; of which tools, their listings say."""
    capabilities = client.session.server_capabilities
    return capabilities is not None and IDEMPOTENCY in (capabilities.extensions or {})


def honours_keys_of(client: Client, tool: Tool | None) -> bool:
    """Whether the server says that a second call of `tool` under one key is the first one."""
    return honours_keys(client) and tool is not None and IDEMPOTENCY in (tool.meta or {})
