"""Each rule finds a history that breaks it, and lets pass what only looks like it: `rules` has these tests."""

from pathlib import Path

from chaos.oracle import RULES
from tests.chaos.support import LAWFUL, broken


def test_a_lawful_history_breaks_no_rule() -> None:
    assert not broken(LAWFUL)


def test_each_rule_is_named_by_a_test_that_breaks_it() -> None:
    tests = "".join(path.read_text() for path in (Path(__file__).parent / "rules").glob("test_*.py"))
    assert [rule for rule in RULES if f'"{rule}"' not in tests] == []
