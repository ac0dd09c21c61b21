"""The command line. Parses, calls, prints; what it does is done elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click
from click.core import ParameterSource
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import PerdureError
from perdure.wire.models import EXTENSION_VERSION

from . import demo, loaded, migrate, operating, options, rekey, work
from .assembly import assembly_of
from .lazily import Lazily
from .serve import run

__all__ = ["main", "program"]

_CALLING = {
    name: f".calling.commands:{name}"
    for name in ("answer", "call", "cancel", "completion", "forget", "ls", "resume", "tools", "watch")
}
_LATER = {**_CALLING, "gateway": ".gateway:gateway"}


@click.group(cls=Lazily, later=_LATER, within=__package__, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("perdure"), message=f"perdure %(version)s (tasks extension {EXTENSION_VERSION})")
def main() -> None:
    """Durable MCP Tasks: tool calls that survive crashes, deploys and days of waiting for a person."""


def program() -> None:
    """The program `perdure`."""
    loaded.keep()
    main()


@main.command()
@click.argument("target", metavar="MODULE:APP")
@options.serving
@options.working
def serve(target: str, **given: Any) -> None:
    """Serve the MCPServer that the name APP has in MODULE (a module or a file.py)."""
    run(_load(target), **given)


@main.command()
@click.argument("target", metavar="MODULE:APP")
@options.store
@options.log_level
@options.working
def worker(target: str, queues: tuple[str, ...], **given: Any) -> None:
    """Run the tasks of the MCPServer that the name APP has in MODULE, without serving it."""
    served = options.served_queues(queues)
    work.run(_load(target), queues=served, **given)


@main.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@options.store
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(target: str | None, store: str | None, as_json: bool) -> None:
    """Show who works on a store, what waits there, and what no worker can run."""
    if store is None and target is None:
        raise click.UsageError(f"Say which store: MODULE:APP, or --store URL, or {options.STORE} in the environment.")
    assembly = None if target is None else assembly_of(_load(target))
    named = store or (assembly and assembly.named)
    if named is None:
        raise SystemExit(f"perdure: {target} has no Tasks: say --store URL")
    operating.echo(operating.status(named), None if as_json else operating.say_status)


main.add_command(operating.tasks)


@main.command("migrate")
@click.argument("url", required=False)
@click.option("--store", envvar=options.STORE, show_envvar=True, help="The same, as every other command has it.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if there is something to apply.")
@click.option("--sql", is_flag=True, help="Change nothing; print what would be run, for psql or sqlite3.")
@click.option("--post", is_flag=True, help="Also apply what must wait until no older release of Perdure runs.")
@click.pass_context
def run_migrate(context: click.Context, url: str | None, store: str | None, check: bool, sql: bool, post: bool) -> None:
    """Bring the schema of the store at URL up to date; its other users may go on meanwhile.

    URL may be said as --store too, or in the environment variable PERDURE_STORE; its password belongs into PGPASSWORD
    or a password file.
    """
    if check and sql:
        raise click.UsageError("Say --check or --sql, not both.")
    migrate.run(_named(context, url, store), check=check, sql=sql, post=post)


@main.command("rekey")
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


@main.command("demo")
def run_demo() -> None:
    """Watch a task outlive a kill -9: a server, a client and a SIGKILL on a fresh store."""
    sys.exit(demo.main())


def _load(target: str) -> MCPServer[Any]:
    module, _, name = target.rpartition(":")
    if "://" in target:
        raise _bad_target("a store goes by --store URL; write MODULE:APP, for example server:mcp")
    # What is neither is not quoted: it may be anything, with a password in it.
    if not name.isidentifier() or not (module.endswith(".py") or module.replace(".", "_").isidentifier()):
        raise _bad_target("write MODULE:APP, for example server:mcp")
    try:
        found: Any = getattr(_import_file(Path(module)) if module.endswith(".py") else _import(module), name)
    except AttributeError:
        raise _bad_target(f"{module} has no {name!r}") from None
    if not isinstance(found, MCPServer):
        raise _bad_target(f"{target} is a {type(found).__name__}, not an MCPServer")
    return cast("MCPServer[Any]", found)


def _bad_target(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="MODULE:APP")


def _import(name: str) -> ModuleType:
    """The module `name`, looked for in the working folder first."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _bad_target(f"there is no module {error.name!r} here") from None
        raise _broken(name, error) from None  # it is there, and something that it imports is not
    except Exception as error:  # noqa: BLE001 - the boundary to somebody else's module
        raise _broken(name, error) from None


def _import_file(path: Path) -> ModuleType:
    """The module that is this very file, as if it had been run: its folder comes first on the path."""
    # A name of its own: a module that is loaded already may be called like the file.
    name = path.stem if path.stem not in sys.modules else f"served_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise _bad_target(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - as above
        raise _broken(str(path), error) from None
    return module


def _broken(what: str, error: Exception) -> SystemExit:
    """What went wrong in somebody else's module, and where, in one line. What Perdure raised says itself what to do."""
    if isinstance(error, PerdureError):
        return SystemExit(f"perdure: {what}: {error}")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({frame.filename}, line {frame.lineno})"
    return SystemExit(f"perdure: {what} can't be loaded: {type(error).__name__}: {' '.join(str(error).split())}{where}")
