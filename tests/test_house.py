"""The house rules that no linter knows: what the domain may import, how long a file may grow, what users can read."""

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import perdure
import perdure.client

SRC = Path(perdure.__file__).parent
MAX_LINES = 450
FOR_JSONSCHEMA = {"rfc3339_validator", "rfc3986_validator"}
"""Dependencies that only jsonschema imports, once it finds them."""
IMPORTED_AS = {"pyjwt": "jwt", "opentelemetry_api": "opentelemetry"}
"""Distributions whose package has another name."""
SUITE = SRC / "testing" / "stores"
"""The conformance suite for stores, which alone may need pytest (`perdure[testing]`)."""
POSTGRES = SRC / "store" / "postgres"
"""The backend that alone may need its driver (`perdure[postgres]`)."""


def modules(room: str = "") -> list[Path]:
    return sorted((SRC / room).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute imports; a relative one stays in its room, since ruff bans those that climb."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def packages(paths: Iterable[Path]) -> set[str]:
    """What they import of other people's."""
    roots = {name.split(".")[0] for path in paths for name in imported(path)}
    return roots - sys.stdlib_module_names - {"perdure"}


@pytest.mark.parametrize("path", modules("domain"), ids=lambda path: path.name)
def test_the_domain_imports_the_standard_library_and_itself_only(path: Path) -> None:
    """import-linter forbids the packages that it is told of; this allows nothing but the standard library."""
    strangers = [
        name
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("perdure.domain")
    ]
    assert not strangers


@pytest.mark.parametrize("path", [path for path in modules() if path.parent != SRC], ids=lambda path: path.name)
def test_no_room_imports_the_public_surface_which_is_made_of_the_rooms(path: Path) -> None:
    assert "perdure" not in imported(path)


def test_the_dependencies_are_what_is_imported() -> None:
    project = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text())["project"]
    declared = {re.sub(r"[<>=\[ ].*", "", each).replace("-", "_") for each in project["dependencies"]}
    named = {IMPORTED_AS.get(each, each) for each in declared - FOR_JSONSCHEMA}
    assert packages(path for path in modules() if path.parent not in (SUITE, POSTGRES)) == named


def test_the_suite_for_stores_is_what_the_extra_is_for() -> None:
    extras = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert packages(SUITE.glob("*.py")) == {"pytest"}
    assert [name.partition(">")[0] for name in extras["testing"]] == ["pytest"]


def test_the_postgresql_backend_is_what_the_extra_is_for() -> None:
    extras = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert packages(POSTGRES.glob("*.py")) == {"asyncpg"}
    assert [name.partition(">")[0] for name in extras["postgres"]] == ["asyncpg"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_no_file_outgrows_a_reader(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{path.name} has {lines} lines: find the second subject in it and give that a file"


def test_the_public_names_stand_alike_in_all_three_places() -> None:
    """A type checker reads the imports, Python `__all__` and the table of what is imported when somebody takes it."""
    body = ast.parse((SRC / "__init__.py").read_text()).body
    (checked,) = [node for node in body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {
        each.module: tuple(name.name for name in each.names)
        for each in checked.body
        if isinstance(each, ast.ImportFrom)
    }
    assert vars(perdure)["_PLACES"] == seen
    assert sorted(perdure.__all__) == sorted(name for names in seen.values() for name in names)


def public_names() -> list[tuple[str, object]]:
    rooms: list[ModuleType] = [perdure, perdure.client]
    return [(f"{room.__name__}.{name}", getattr(room, name)) for room in rooms for name in sorted(room.__all__)]


@pytest.mark.parametrize(("name", "thing"), public_names(), ids=lambda each: each if isinstance(each, str) else "")
def test_every_public_name_is_documented(name: str, thing: object) -> None:
    """What the `__all__`s offer, and each public member that perdure itself defines on it, has a docstring."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return  # constants are documented where they are defined
    assert inspect.getdoc(thing), f"{name} has no docstring"
    if inspect.isclass(thing):
        bare = [
            member
            for member, value in vars(thing).items()
            if not member.startswith("_") and callable(value) and not inspect.getdoc(value)
        ]
        assert not bare, f"{name}: no docstring on {', '.join(bare)}"
