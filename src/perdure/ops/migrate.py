"""Bringing a store's schema up to date, as a step of its own: before a deploy, by whoever may change tables."""

from __future__ import annotations

import shlex

import anyio
import click

from perdure.domain.errors import PerdureError
from perdure.store import migrate
from perdure.store.migrate import Migration, Upgrade

from . import stores

__all__ = ["run"]


def run(url: str, *, check: bool, sql: bool, post: bool) -> None:
    """Apply what is due, or say it, and say what has to wait.

    Raises:
        SystemExit: with `check`, something is due (status 1); or the store can't be used, and one line says why.
    """
    try:
        upgrade = stores.upgrade_of(url)
        if sql:
            _print(upgrade, post)
        elif check:
            _check(upgrade, post)
        else:
            _apply(upgrade, post)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


def _print(upgrade: Upgrade, post: bool) -> None:
    script = anyio.run(lambda: upgrade.script(post=post))
    click.echo(script or f"-- {upgrade.shown} is up to date\n", nl=False)


def _check(upgrade: Upgrade, post: bool) -> None:
    lacking = anyio.run(upgrade.pending)
    due = migrate.due(lacking, post=post)
    _say(upgrade, "pending", due, lacking[len(due) :])
    if due:
        raise SystemExit(1)


def _apply(upgrade: Upgrade, post: bool) -> None:
    applied = anyio.run(lambda: upgrade.apply(post=post))
    _say(upgrade, "applied", applied, anyio.run(upgrade.pending))


def _say(upgrade: Upgrade, word: str, migrations: tuple[Migration, ...], waiting: tuple[Migration, ...]) -> None:
    for migration in migrations:
        click.echo(f"{word} {migration}")
    if not migrations:
        click.echo(f"{upgrade.shown} is up to date")
    if waiting:
        click.echo(
            f"left for later: {', '.join(map(str, waiting))}: once no older release of Perdure runs, "
            f"run perdure migrate --post {shlex.quote(upgrade.shown)}"
        )
