"""The command line: which commands there are. Each is imported once it is needed, and with it what it needs.

So who lists tasks does not wait for the SDK, and who serves has no use for the client.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from .lazily import Lazily
from .loaded import Loading

__all__ = ["main"]

_LATER: Final = {
    **{
        name: f".calling.commands:{name}"
        for name in ("answer", "call", "cancel", "completion", "forget", "ls", "resume", "tools", "watch")
    },
    **{name: f".serving:{name}" for name in ("serve", "status", "worker")},
    **{name: f".keeping:run_{name}" for name in ("migrate", "rekey")},
    "tasks": ".operating:tasks",
}

_CODES: Final = """\b
Exit codes of all commands, beside their own:
  2    the command line is wrong
  6    the output could not be written
  130  ended by Ctrl-C
  141  whoever read the output has stopped"""


def _version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from importlib.metadata import version

        from perdure.wire.models import EXTENSION_VERSION

        click.echo(f"perdure {version('perdure')} (tasks extension {EXTENSION_VERSION})")
        context.exit()


@click.group(
    cls=Lazily,
    later=_LATER,
    within=__package__,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_CODES,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@click.pass_obj
def main(loading: Loading | None) -> None:
    """Durable MCP Tasks: tool calls that survive crashes, deploys and days of waiting for a person."""
    # Here the command that follows is imported.
    if loading is not None:
        loading.over()


@main.command("demo")
def run_demo() -> None:
    """Watch a task outlive a kill -9: a server, a client and a SIGKILL on a fresh store."""
    from . import demo

    sys.exit(demo.main())
