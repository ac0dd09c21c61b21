"""MODULE:APP on a command line: somebody's module, imported, and the server that it has under a name.

What is wrong with it is told in one line: with what was typed, or with what it imports or does while it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import PerdureError

__all__ = ["load"]


def load(target: str) -> MCPServer[Any]:
    """The server that `target` names.

    Raises:
        BadParameter: it names none.
        SystemExit: what it names can't be loaded; one line says why.
    """
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
