"""The endpoint for other systems: whoever bears no handle hears one answer, and who bears one is told what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import values
from fuzz.http import post
from fuzz.mixing import mixed
from fuzz.oracle import Found
from fuzz.people import ADA, PEOPLE, handle
from fuzz.scene import Scene

from .base import Needs, Target

__all__ = ["TARGET", "Word"]

JSON = Any
_OPEN: Final = {handle(person, kind) for person in PEOPLE for kind in ("external", "watched")}
_OVER: Final = {handle(person, "cancelled") for person in PEOPLE}
_GRAMMAR: Final = re.compile(r"tsk_([a-z0-9]{1,8}_)?[a-z2-7]{32}~[0-9.-]+~[A-Za-z0-9_-]{32}", re.ASCII)
_SCHEMES: Final = ("bearer {}", "BEARER {} ", "Basic {}", "{}", "Bearer", "Bearer{}")
_UNKNOWN: Final = b'{"error":"Unknown handle"}'


@dataclass(frozen=True, slots=True)
class Word:
    """What is said. `scheme` is how the handle is borne, with the handle in it."""

    scheme: str
    handle: str
    body: JSON
    kind: str


def _handles() -> SearchStrategy[str]:
    real = st.sampled_from(sorted(_OPEN | _OVER))
    wrong = st.builds(_disturbed, real, st.integers(0, 75), _latin())
    others = st.sampled_from((handle(ADA, "external", "1"), handle(ADA, "done")))
    return mixed((6, real), (1, others), (2, wrong))


def _disturbed(text: str, at: int, odd: str) -> str:
    return text[:at] + odd + text[at + 1 :]


def _latin() -> SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=3)


def _bodies() -> SearchStrategy[JSON]:
    words = st.fixed_dictionaries(
        {}, optional={"result": values.odd_values(), "error": values.odd_values(), "message": values.odd_values()}
    )
    said = st.one_of(values.texts(), st.just("half of it"))
    good = st.one_of([st.fixed_dictionaries({name: said}) for name in ("result", "error", "message")])
    return mixed((4, good), (2, words), (2, values.odd_values()), (1, st.just({"result": "x" * (1 << 20)})))


def check(scene: Scene, word: Word) -> None:
    """Say it."""
    fields = [("authorization", word.scheme.format(word.handle)), ("content-type", word.kind)]
    replies = scene.send(post("/perdure/external", values.written(word.body).encode(), fields))
    for reply in replies:
        if reply.status not in (204, 400, 401, 409, 413):
            raise Found("the endpoint has these answers", f"HTTP {reply.status} {reply.content!r}")
        said = word.handle.strip()
        bears = word.scheme.strip().lower() == "bearer {}"
        if reply.status == 401 and ((bears and said in _OPEN | _OVER) or reply.content != _UNKNOWN):
            raise Found("who bears a handle is heard, and who bears none hears one answer", f"{reply.content!r}")
        if reply.status != 401 and not (bears and _GRAMMAR.fullmatch(said)):
            raise Found("who bears no handle is not listened to", f"HTTP {reply.status} {reply.content!r}")
        if reply.status == 204 and word.handle.strip() not in _OPEN:
            raise Found("what is over is not settled", f"HTTP {reply.status}")


TARGET: Final = Target(
    "callbacks",
    Needs.QUIET,
    st.builds(
        Word,
        mixed((6, st.just("Bearer {}")), (2, st.sampled_from(_SCHEMES))),
        _handles(),
        _bodies(),
        st.sampled_from(("application/json", "text/plain", "", "application/json; charset=utf-16")),
    ),
    check,
)
