"""Who reaches a server that asks nobody who they are: this machine, unless somebody says otherwise."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

from perdure.domain.hosts import is_this_machine

from .assembly import assembly_of

__all__ = ["refuse", "say_open", "warn"]


def refuse(app: MCPServer[Any], host: str, *, allowed: bool, say: str) -> None:
    """Refuse to open `app` to the network without authentication by mistake. `say` is how to do it on purpose.

    Raises:
        SystemExit: the host is not this machine only, `app` has no authentication, and nobody allowed it.
    """
    if app.settings.auth is None and not (allowed or is_this_machine(host)):
        raise SystemExit(
            f"perdure: {app.name} has no authentication, so anybody who reaches {host} could call it: "
            f"configure auth=, listen on 127.0.0.1, or say {say}"
        )


def warn(app: MCPServer[Any]) -> None:
    """Tell whoever starts `app` what protects its tasks if it has no authentication."""
    if app.settings.auth is not None:
        return
    assembly = assembly_of(app)
    if assembly is not None and assembly.identified:
        _say("no authentication but by identify=, which alone says whose a task is")
    else:
        say_open()


def say_open() -> None:
    """Say that nothing protects them."""
    _say("no authentication: whoever knows a task's id may read it")


def _say(what: str) -> None:
    print(f"perdure: {what}", file=sys.stderr, flush=True)
