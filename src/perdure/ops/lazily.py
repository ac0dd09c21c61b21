"""A group of commands some of which are imported once they are needed: who serves has no use for the client, say."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from .discretion import Group

__all__ = ["Lazily"]


class Lazily(Group):
    """`later`: commands by their names, each as `MODULE:NAME` of the package `within`."""

    def __init__(self, *args: Any, later: Mapping[str, str], within: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._later = later
        self._within = within

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As click has it."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """As click has it."""
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._later[cmd_name].partition(":")
        found = getattr(importlib.import_module(module, self._within), name)
        if not isinstance(found, click.Command):
            raise TypeError(f"{self._later[cmd_name]} is no command")
        return found
