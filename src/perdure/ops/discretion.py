"""Command lines may hold passwords: in the URL of a store, in the wrong place as easily as in the right one.

What is wrong with an argument is told by quoting it, and errors end in logs. So of what may hold a password nothing is
quoted, whichever command it was given to.
"""

from __future__ import annotations

import re
from typing import Any, Final

import click

__all__ = ["Command", "Group", "hidden"]

_SECRETIVE: Final = re.compile(r"[\w+.-]*://.*|\S*@.*|\bpass\w*\s*=.*", re.IGNORECASE | re.DOTALL)
"""From where something begins that may be the URL of a store, or what libpq has instead, to the end."""


def hidden(text: str) -> str:
    """The text, without what may be a password."""
    return _SECRETIVE.sub("…", text)


def _discreet(error: click.UsageError) -> click.UsageError:
    """The error, without what it quotes. It goes on as a new one, since this one's class may tell it otherwise."""
    text = error.format_message()
    if _SECRETIVE.search(text) is None:
        return error
    return click.UsageError(f"{hidden(text)} (what may hold a password is not shown)", error.ctx)


class Command(click.Command):
    """A command whose errors quote nothing that may hold a password."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _discreet(error) from None


class Group(click.Group):
    """The same for a group, and for all of its commands."""

    command_class = Command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _discreet(error) from None
