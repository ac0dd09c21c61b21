"""The commands that are about somebody's program: they load it, and serve it, run its tasks or look at its store."""

from __future__ import annotations

from typing import Any

import click

from . import operating, options, work
from .assembly import assembly_of
from .discretion import Command
from .serve import run
from .targets import load

__all__ = ["serve", "status", "worker"]


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:APP")
@options.serving
@options.working
def serve(target: str, **given: Any) -> None:
    """Serve the MCPServer that the name APP has in MODULE (a module or a file.py)."""
    run(load(target), **given)


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:APP")
@options.store
@options.log_level
@options.working
def worker(target: str, queues: tuple[str, ...], **given: Any) -> None:
    """Run the tasks of the MCPServer that the name APP has in MODULE, without serving it."""
    served = options.served_queues(queues)
    work.run(load(target), queues=served, **given)


@click.command(cls=Command)
@click.argument("target", metavar="[MODULE:APP]", required=False)
@options.store
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(target: str | None, store: str | None, as_json: bool) -> None:
    """Show who works on a store, what waits there, and what no worker can run."""
    if store is None and target is None:
        raise click.UsageError(f"Say which store: MODULE:APP, or --store URL, or {options.STORE} in the environment.")
    assembly = None if target is None else assembly_of(load(target))
    named = store or (assembly and assembly.named)
    if named is None:
        raise SystemExit(f"perdure: {target} has no Tasks: say --store URL")
    operating.echo(operating.status(named), None if as_json else operating.say_status)
