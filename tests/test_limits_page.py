"""The page on limits: it has every bound that there is, and the defaults that the code has."""

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

from perdure import Limits, Tasks
from tests.wire.test_limits import EDGES

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"


def table() -> dict[str, str]:
    """What the page says of each bound's default."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\w,%]+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_the_page_lists_every_limit_that_is_tested_at_its_edge() -> None:
    assert set(table()) == set(EDGES)


def test_the_page_gives_the_defaults_of_the_code() -> None:
    of_tasks: dict[str, Any] = {name: each.default for name, each in signature(Tasks).parameters.items()}
    defaults: dict[str, Any] = of_tasks | {each.name: each.default for each in fields(Limits)}
    assert table() == {name: shown(defaults[name]) for name in EDGES}


def shown(default: int | str | None) -> str:
    """A number, a share as it is written, or none."""
    return "none" if default is None else default if isinstance(default, str) else f"{default:,}"
