"""Puts the examples into the pages that show them, so that a page has its code on a site, on a code host and on disk.

A place is a comment, `<!-- file: examples/NAME.py -->`, `.mjs` or `.toml`, and the block of code below it. Every page
shows its files whole, but the README, which leaves their docstrings out: what those say stands around the block there.
Nobody edits a block by hand: a test compares each with its file, so no page can show other code than the one that runs.

`python -m docs.include` rewrites the blocks; `make docs` does so first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "README", "filled", "made", "shown", "without_docstring"]

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
PAGES: Final = (README, *sorted((ROOT / "docs").rglob("*.md")))

_BLOCK = re.compile(
    r"<!-- file: (?P<path>examples/\w+\.(?:py|mjs|toml)) -->\n```(?P<language>python|js|toml)\n(?P<code>.*?)```\n",
    re.DOTALL,
)
_DOCSTRING = re.compile(r'""".*?"""\n\n', re.DOTALL)


def shown(page: str) -> dict[str, str]:
    """The files that the text of a page names, with the code that it shows of each."""
    return {match["path"]: match["code"] for match in _BLOCK.finditer(page)}


def filled(page: str, *, whole: bool) -> str:
    """The text of a page with the code of each file that it names, whatever stood there.

    Raises:
        OSError: there is no such file.
    """

    def block(match: re.Match[str]) -> str:
        code = (ROOT / match["path"]).read_text("utf-8")
        code = code if whole else without_docstring(code)
        return f"<!-- file: {match['path']} -->\n```{match['language']}\n{code}```\n"

    return _BLOCK.sub(block, page)


def without_docstring(code: str) -> str:
    """The code of a module from its first statement on."""
    opening = _DOCSTRING.match(code)
    return code if opening is None else code[opening.end() :]


def made() -> dict[Path, str]:
    """Each page as it has to be."""
    return {page: filled(page.read_text("utf-8"), whole=page != README) for page in PAGES}


if __name__ == "__main__":
    for path, text in made().items():
        if text != path.read_text("utf-8"):
            path.write_text(text, "utf-8")
