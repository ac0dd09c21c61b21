"""What SECURITY.md says is shown by tests is: each that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def shown_by() -> list[list[str]]:
    """The files that each row of the tables names in its last column."""
    rows = [line.split("|")[3] for line in PAGE.splitlines() if line.startswith("|")]
    cells = [cell for cell in rows if "`" in cell]
    return [re.findall(r"`([^`]+)`", cell) for cell in cells]


def test_every_row_names_a_test_that_is_there() -> None:
    rows = shown_by()
    assert len(rows) > 20
    for paths in rows:
        for path in paths:
            assert (ROOT / "tests" / path).exists() or (ROOT / path).exists(), path


def test_every_row_has_its_proof() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
    without = [line for line in rows if "`" not in line.split("|")[3] and "shown by" not in line]
    assert not without
