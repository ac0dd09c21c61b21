"""Command lines may hold passwords: in the URL of a store, in the wrong place as easily as in the right one.

What is wrong with an argument is told by quoting it, and errors end in logs. So of what may hold a password nothing is
quoted, whichever command it was given to.
"""

from __future__ import annotations

import re
from typing import Any, Final

import click

__all__ = ["Command", "Group", "Told", "hidden", "is_secretive", "without_secrets", "without_values"]

_SECRETIVE: Final = re.compile(r"[\w+.-]*://.*|\S*@.*|\bpass\w*\s*=.*", re.IGNORECASE | re.DOTALL)
"""From where something begins that may be the URL of a store, or what libpq has instead, to the end."""


_CREDENTIALS: Final = re.compile(r"[\w+.-]*://.*@.*|\S*@.*|\bpass\w*\s*=.*", re.IGNORECASE)
"""The same, of commands that are about URLs of another kind: of these a secret is in front of an @, or in the query."""
_QUERY: Final = re.compile(r"(?<=[?&])(?P<name>[^=&\s]+)=[^&\s]+")
_SECRETS: Final = re.compile(
    r"(?:^|[^a-z])(?:apikey|key|token|secret|pass(?:word|wd)?|pwd|auth|credentials?|sig|signature)(?:[^a-z]|$)"
)


def is_secretive(name: str) -> bool:
    """Whether what is called so, in the query of a URL, is likely to be a secret: `api_key`, `accessToken`."""
    return _SECRETS.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) is not None


class Told(click.UsageError):
    """An error of a command to which URLs are said as a matter of course: what is no secret of them is shown.

    `quotes`: False of what quotes no arguments, but what a server asks.
    """

    def __init__(self, message: str, ctx: click.Context | None = None, *, quotes: bool = True) -> None:
        super().__init__(without_secrets(message) if quotes else message, ctx)


def without_secrets(text: str) -> str:
    """The text, without what may be a secret in a URL or in what libpq has instead."""
    return without_values(_CREDENTIALS.sub("…", text))


def without_values(text: str) -> str:
    """The text, without the values in the query of a URL that are likely to be secrets."""

    def value(found: re.Match[str]) -> str:
        return f"{found['name']}=…" if is_secretive(found["name"]) else found[0]

    return _QUERY.sub(value, text)


def hidden(text: str) -> str:
    """The text, without what may be a password."""
    return _SECRETIVE.sub("…", text)


def _discreet(error: click.UsageError) -> click.UsageError:
    """The error, without what it quotes. It goes on as a new one, since this one's class may tell it otherwise."""
    if isinstance(error, Told):
        return error
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
