"""Commands that are told to somebody who is to paste them into a shell.

Ids, questions and fields have the names that servers give them. None of these does something in the shell, and none is
taken for an option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perdure.ops import text

__all__ = ["Hints", "is_plain", "quoted"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]*")


def is_plain(word: str) -> bool:
    """Whether a shell takes the word as it is, wherever it comes to stand, and no command takes it for an option.

    bash puts what is completed into the line unquoted.
    """
    return _PLAIN.fullmatch(word) is not None


def quoted(word: str) -> str:
    """A server's word for a shell: not one that does something there."""
    return shlex.quote(text.line(word))


@dataclass(frozen=True, slots=True)
class Hints:
    """`journal`: the file that commands have to be told of, if it is not the user's own."""

    journal: str | None = None

    def command(self, verb: str, *words: str, options: Sequence[str] = ()) -> str:
        """The command with these words, which are `quoted` already."""
        place = [] if self.journal is None else ["--journal", quoted(self.journal)]
        if any(word.removeprefix("'").startswith("-") for word in words):
            return " ".join(["perdure", verb, *place, *options, "--", *words])
        return " ".join(["perdure", verb, *place, *words, *options])

    def about(self, id: str, verb: str = "resume") -> str:
        """The command that does something about a task or a call."""
        return self.command(verb, quoted(id))
