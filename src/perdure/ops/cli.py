"""The command line: `perdure serve`, `perdure demo`. Parses, calls, prints; what it does is done elsewhere."""

from __future__ import annotations

import importlib
import sys
from typing import Any, cast

import click
from mcp.server.mcpserver import MCPServer

import perdure

from . import demo
from .serve import run, serve_options

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(perdure.__version__, message=f"perdure %(version)s (tasks extension {perdure.EXTENSION_VERSION})")
def main() -> None:
    """Durable MCP Tasks: tool calls that survive crashes, deploys and days of waiting for a person."""


@main.command()
@click.argument("target", metavar="MODULE:APP")
@serve_options
def serve(target: str, **options: Any) -> None:
    """Serve the MCPServer that the name APP has in MODULE (a module or a file.py)."""
    run(_load(target), **options)


@main.command("demo")
def run_demo() -> None:
    """Watch a task outlive a kill -9: a server, a client and a SIGKILL on a fresh store."""
    sys.exit(demo.main())


def _load(target: str) -> MCPServer[Any]:
    module, _, name = target.rpartition(":")
    if not module:
        raise click.BadParameter("write MODULE:APP, for example server:mcp", param_hint="MODULE:APP")
    sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module.removesuffix(".py").replace("/", ".")), name)
    except ModuleNotFoundError as error:
        raise click.BadParameter(f"there is no module {error.name!r} here", param_hint="MODULE:APP") from error
    except AttributeError:
        raise click.BadParameter(f"{module} has no {name!r}", param_hint="MODULE:APP") from None
    if not isinstance(found, MCPServer):
        raise click.BadParameter(f"{target} is a {type(found).__name__}, not an MCPServer", param_hint="MODULE:APP")
    return cast("MCPServer[Any]", found)
