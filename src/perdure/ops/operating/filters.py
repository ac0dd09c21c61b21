"""How tasks are named by what they have in common: the options of all commands that are about several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click

from perdure.domain.model import Status
from perdure.ops.options import Duration

from .access import Meant

__all__ = ["FINISHED", "UNFINISHED", "Statuses", "filtered", "which"]

CommandT = TypeVar("CommandT", bound=Callable[..., None])

Statuses = frozenset[Status]
UNFINISHED: Final[Statuses] = frozenset(status for status in Status if not status.terminal)
FINISHED: Final[Statuses] = frozenset(Status) - UNFINISHED

_CALL: Final = "tools/call:"
"""How tools are called where they are listed, beside what else could become a task."""

_GROUPS: Final[dict[str, Statuses]] = {
    "unfinished": UNFINISHED,
    "finished": FINISHED,
    **{status.value: frozenset({status}) for status in Status},
}


def filtered(command: CommandT) -> CommandT:
    """The options of a command that is about all tasks that have something in common."""
    options = [
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice([*_GROUPS]),
            help="In this status; may be given again.",
        ),
        click.option(
            "--tool", metavar="NAME", help="Of this tool, whatever its version; of one version, as lists print it."
        ),
        click.option("--tenant", metavar="NAME", help="Of this tenant."),
        click.option("--principal", metavar="NAME", help="Of this principal."),
        click.option("--older", type=Duration(), help="Created at least so long ago: 90s, 15m, 2h, 7d."),
        click.option("--newer", type=Duration(), help="Created less long ago than that."),
        click.option(
            "--unchanged",
            type=Duration(),
            help="Its client has seen no change for so long; if it is over, for so long.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def which(
    statuses: tuple[str, ...],
    tool: str | None,
    tenant: str | None,
    principal: str | None,
    older: int | None,
    newer: int | None,
    unchanged: int | None,
    *,
    among: Statuses = frozenset(Status),
) -> Meant:
    """Which tasks the options mean, of those whose status is `among` these.

    Raises:
        UsageError: they name a status that is not.
    """
    named = frozenset(status for each in statuses for status in _GROUPS[each]) or among
    if not named <= among:
        raise click.UsageError(f"--status: this is for {' and '.join(sorted(among))} tasks only.")
    handler = tool if tool is not None and tool.startswith(_CALL) else None
    name = tool if handler is None else None
    return Meant(named, name, tenant, principal, older, newer, unchanged, handler)
