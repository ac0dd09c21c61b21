"""The commands that change how a whole store is kept: its schema, and under which key its values are sealed."""

from __future__ import annotations

import click
from click.core import ParameterSource

from . import migrate, options, rekey
from .discretion import Command

__all__ = ["run_migrate", "run_rekey"]


@click.command("migrate", cls=Command)
@click.argument("url", required=False)
@click.option("--store", envvar=options.STORE, show_envvar=True, help="The same, as every other command has it.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if there is something to apply.")
@click.option("--sql", is_flag=True, help="Change nothing; print what would be run, for psql or sqlite3.")
@click.option("--post", is_flag=True, help="Also apply what must wait until no older release of Perdure runs.")
@click.pass_context
def run_migrate(context: click.Context, url: str | None, store: str | None, check: bool, sql: bool, post: bool) -> None:
    """Bring the schema of the store at URL up to date.

    The other users of a PostgreSQL database may go on meanwhile; those of a SQLite file have to be stopped first.

    URL may be said as --store too, or in the environment variable PERDURE_STORE; its password belongs into PGPASSWORD
    or a password file.
    """
    if check and sql:
        raise click.UsageError("Say --check or --sql, not both.")
    migrate.run(_named(context, url, store), check=check, sql=sql, post=post)


@click.command("rekey", cls=Command)
@click.argument("url", required=False)
@click.option("--store", envvar=options.STORE, show_envvar=True, help="The same, as every other command has it.")
@click.option("--verify", is_flag=True, help="Change nothing; open everything, and exit with 1 if that fails.")
@click.option("--new-key", is_flag=True, help="Touch no store; print a new key, to be put last into PERDURE_KEYS.")
@click.pass_context
def run_rekey(context: click.Context, url: str | None, store: str | None, verify: bool, new_key: bool) -> None:
    """Seal what is in the store at URL under the first of the keys, so that the others are needed no more.

    The keys are in the environment variable PERDURE_KEYS, or in the file that PERDURE_KEYS_FILE names. The users of the
    store may go on meanwhile; all of them must have the same first key by now. May be broken off and begun again.
    """
    if new_key and verify:
        raise click.UsageError("Say --new-key or --verify, not both.")
    if new_key:
        rekey.make_key()
    else:
        (rekey.verify if verify else rekey.run)(_named(context, url, store))


def _named(context: click.Context, url: str | None, store: str | None) -> str:
    """The store that a command was told, as its argument or as its option."""
    if url is not None and context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        raise click.UsageError("Say which store once: URL or --store URL.")
    named = store if url is None else url
    if named is None:
        raise click.UsageError(f"Say which store: URL, or --store URL, or {options.STORE} in the environment.")
    return named
