"""`requirements.py` held against the tests: what it names exists, and it forgets no module of wire and tools."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS, ROOMS, Requirement

TESTS = Path(__file__).parent
SECTIONS = {f"contract {number}" for number in (1, 2, 3, 4, 5, 6, 8, 9)}


@cache
def functions(file: str) -> frozenset[str]:
    """The tests of one module, read and not run."""
    module = ast.parse((TESTS / file).read_text("utf-8"))
    defined = (node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in defined if node.name.startswith("test_"))


def label(requirement: Requirement) -> str:
    return f"{requirement.source}: {requirement.text[:60]}"


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=label)
def test_every_test_that_a_requirement_names_exists(requirement: Requirement) -> None:
    for name in requirement.tests:
        file, _, function = name.partition("::")
        assert (TESTS / file).is_file(), f"there is no {file}"
        assert function in functions(file), f"{file} has no {function}"


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=label)
def test_every_requirement_is_shown_or_says_what_it_waits_for(requirement: Requirement) -> None:
    assert bool(requirement.tests) is (requirement.later is None)
    assert requirement.later is None or requirement.later in ROOMS


def test_every_module_of_the_wire_and_of_the_tools_is_named() -> None:
    named = {name.partition("::")[0] for requirement in REQUIREMENTS for name in requirement.tests}
    modules = {f"{room}/{path.name}" for room in ("wire", "tools") for path in (TESTS / room).glob("test_*.py")}
    assert modules <= named


def test_no_sentence_is_listed_twice() -> None:
    listed = [(requirement.source, requirement.text) for requirement in REQUIREMENTS]
    assert len(listed) == len(set(listed))


def test_every_section_of_the_contract_that_is_implemented_is_listed() -> None:
    assert {requirement.source for requirement in REQUIREMENTS} >= SECTIONS
