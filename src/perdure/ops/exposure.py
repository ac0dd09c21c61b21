"""Who reaches a server that asks nobody who they are: this machine, unless somebody says otherwise."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

__all__ = ["refuse", "warn"]


def refuse(app: MCPServer[Any], host: str, *, allowed: bool, say: str) -> None:
    """Refuse to open `app` to the network without authentication by mistake. `say` is how to do it on purpose.

    Raises:
        SystemExit: the host is not this machine only, `app` has no authentication, and nobody allowed it.
    """
    if app.settings.auth is None and not (allowed or _is_loopback(host)):
        raise SystemExit(
            f"perdure: {app.name} has no authentication, so anybody who reaches {host} could call it: "
            f"configure auth=, listen on 127.0.0.1, or say {say}"
        )


def warn(app: MCPServer[Any], *, asks: bool = False) -> None:
    """Tell whoever starts `app` what protects its tasks without authentication. `asks`: as `Assembly` has it."""
    if app.settings.auth is None and not asks:
        print("perdure: no authentication: whoever knows a task's id may read it", file=sys.stderr, flush=True)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
