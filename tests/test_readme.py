"""The code in the README is code that runs: each marked block is a file under examples/, and each example is served and called."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- file: (?P<path>\S+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)


def blocks() -> dict[str, str]:
    return {match["path"]: match["code"] for match in BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))}


def test_every_python_block_of_the_readme_names_its_file() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("```python") == len(blocks()) == 2


@pytest.mark.parametrize("path", ["examples/adopt.py", "examples/report_server.py"])
def test_a_block_is_the_end_of_its_file(path: str) -> None:
    """The file may begin with a docstring that the README tells in prose."""
    assert (ROOT / path).read_text("utf-8").endswith(blocks()[path])
