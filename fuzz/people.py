"""Who uses the server that is fuzzed, and which tasks they have in it.

Known to the server, which believes the tokens, and to the cases, which are made as one person and must never bring
anything of another's to light: whatever a task holds of its owner has the owner's canary in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ADA", "KINDS", "PEOPLE", "Person", "handle", "task_id"]

JSON = Any


@dataclass(frozen=True, slots=True)
class Person:
    """`tenant`: what the token claims. `token`: what proves it."""

    name: str
    tenant: str

    @property
    def token(self) -> str:
        return f"token-of-{self.name}"

    @property
    def canary(self) -> str:
        """What stands in all that is this person's, and in nothing else."""
        return f"canary-{self.name}-sings"


ADA: Final = Person("ada", "acme")
PEOPLE: Final = (ADA, Person("bob", "acme"), Person("eve", "other"))

KINDS: Final[Mapping[str, tuple[str, dict[str, JSON]]]] = {
    "done": ("greet", {}),
    "large": ("recite", {"words": 300}),
    "failed": ("fail", {}),
    "asking": ("ask", {}),
    "answered": ("ask_many", {}),
    "external": ("hand_over", {}),
    "watched": ("hand_over", {"twice": True}),
    "cancelled": ("hand_over", {}),
    "waiting": ("rest", {}),
}
"""The tasks that each person has: the tool and its arguments besides the label."""


def task_id(person: Person, kind: str) -> str:
    """The id of one of these tasks. Made up, so that a case that names it says what it means, and means it again."""
    return f"tsk_{(person.name + kind).translate(_DIGITS).ljust(32, 'a')}"


def handle(person: Person, kind: str, place: str = "0") -> str:
    """The handle of the external work of one of these tasks."""
    return "~".join((task_id(person, kind), place, token(person, kind)))


def token(person: Person, kind: str) -> str:
    """What the handle proves its right by."""
    return f"{person.name}-{kind}".ljust(32, "-")


_DIGITS: Final = str.maketrans({"_": "2", "-": "3"})
