"""Values as nobody means them: JSON of every kind and of none, texts, headers, and what may become of a good request.

A value is written out by `written`, since `json.dumps` would not write what is wrong: members that stand there twice,
numbers of a thousand digits, brackets that are never closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.wire.envelopes import EVERYTHING, EXTENSION, NOTHING, TASKS, envelope

from .ground import ANSWERED, KEY
from .mixing import mixed
from .people import ADA, KINDS, PEOPLE, task_id

__all__ = [
    "Pairs",
    "Raw",
    "bodies",
    "edited",
    "edits",
    "ids",
    "json_values",
    "odd_values",
    "requests",
    "texts",
    "written",
]

JSON = Any


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that stands there as it is, whether or not it is JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object with members in this order, some of them twice."""

    members: tuple[tuple[str, JSON], ...]


def written(value: JSON) -> str:
    """As JSON text, or what passes for it. ASCII only."""
    match value:
        case Raw():
            return value.text
        case Pairs():
            return "{" + ",".join(f"{json.dumps(name)}:{written(each)}" for name, each in value.members) + "}"
        case Mapping():
            return written(Pairs(tuple(value.items())))  # pyright: ignore[reportUnknownArgumentType] - any JSON
        case list():
            return "[" + ",".join(map(written, value)) + "]"  # pyright: ignore[reportUnknownArgumentType] - any JSON
        case _:
            return json.dumps(value)


# -- values ------------------------------------------------------------------------------------------------------------

_ODD_TEXTS: Final = (
    "", " ", "\0", "\ud800", "a\udfff", "\u202e", "é", "💥", "null", "true", "NaN", "{}", "../../etc/passwd", "%00",
    "'; --", "__proto__", "$ref", "x" * 10_000, "=?base64?AA==?=", "2026-07-28", "2025-11-25", "1900-01-01", EXTENSION,
)  # fmt: skip
_ODD_NUMBERS: Final = (0, -1, 1, 2**31, 2**53, 2**63, -(2**63) - 1, 2**64, 0.5, -0.0, 1e308, float("nan"), float("inf"))
_FRAGMENTS: Final = (
    "1" + "0" * 400, "1" + "0" * 5000, "-1e999", "1E400", "01", "+1", ".5", "1.", "0x10", "Infinity", "-NaN", "a",
    "'a'", '"\t"', '"\\x41"', '"\\ud83d"', '"\\u0000"', "[" * 50 + "]" * 50, "[" * 300 + "]" * 300,
    "[" * 3000 + "]" * 3000, '{"a":' * 300 + "1" + "}" * 300, "[" * 50_000, '{"a":1,"a":2}', "{a:1}", "[1,]",
    "/* */ 1", "", "1 2", "\ufeff1",
)  # fmt: skip
_RAW: Final = tuple(Raw(text) for text in _FRAGMENTS)


def texts() -> SearchStrategy[str]:
    """Any text, lone surrogates and nulls included."""
    return st.one_of(
        st.sampled_from(_ODD_TEXTS), st.text(max_size=20), st.text(st.characters(exclude_categories=()), max_size=5)
    )


def json_values() -> SearchStrategy[JSON]:
    """Any JSON value, and what Python's parser takes for one."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_ODD_NUMBERS) | texts()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4),
        max_leaves=8,
    )


def odd_values() -> SearchStrategy[JSON]:
    """The same, and what is none."""
    pairs = st.lists(st.tuples(st.sampled_from(("a", "taskId", "method")), json_values()), max_size=3)
    return st.one_of(json_values(), st.sampled_from(_RAW), pairs.map(lambda found: Pairs(tuple(found))), ids())


# -- task ids ----------------------------------------------------------------------------------------------------------


def ids(*, foreign: bool = True) -> SearchStrategy[JSON]:
    """Ids of tasks: Ada's, other people's, nobody's, and what is nearly one."""
    real = [task_id(person, kind) for person in (PEOPLE if foreign else (ADA,)) for kind in KINDS]
    wrong = st.builds(_disturbed, st.sampled_from(real), st.integers(0, 40), texts())
    return mixed((3, st.sampled_from(real)), (1, wrong))


def _disturbed(task: str, at: int, text: str) -> str:
    """Wrong in one place, or in length."""
    return task[:at] + text[:4] + task[at + len(text[:4]) :] if text else task[:at]


# -- requests ----------------------------------------------------------------------------------------------------------


def _answers() -> SearchStrategy[JSON]:
    keys = st.sampled_from(("plain", ANSWERED, "url", "sampling", "roots", "nothing"))
    good = {"action": "accept", "content": {"ok": True}}
    return st.dictionaries(mixed((3, keys), (1, texts())), mixed((2, st.just(good)), (1, json_values())), max_size=4)


def _calls() -> SearchStrategy[dict[str, JSON]]:
    names = st.sampled_from(("greet", "must", "plain", "ask", "fail", "recite", "no such tool"))
    right, near = st.just({"label": ADA.canary}), st.fixed_dictionaries({"label": texts()})
    arguments = mixed((4, right), (1, near), (1, json_values()))
    return st.fixed_dictionaries({"name": names, "arguments": arguments})


def _filters() -> SearchStrategy[JSON]:
    kinds = {"toolsListChanged": st.booleans(), "taskIds": st.lists(ids(), max_size=4)}
    return st.fixed_dictionaries({"notifications": st.fixed_dictionaries({}, optional=kinds)})


def _params() -> Mapping[str, SearchStrategy[dict[str, JSON]]]:
    task = st.fixed_dictionaries({"taskId": ids()})
    return {
        "tasks/get": task,
        "tasks/cancel": task,
        "tasks/update": st.fixed_dictionaries({"taskId": ids(), "inputResponses": _answers()}),
        "tools/call": _calls(),
        "subscriptions/listen": _filters(),
        "server/discover": st.just({}),
        "tools/list": st.fixed_dictionaries({}, optional={"cursor": texts()}),
        "tasks/list": st.just({}),
        "tasks/result": task,
        "ping": st.just({}),
        "initialize": st.fixed_dictionaries(_HANDSHAKE),
        "notifications/cancelled": st.fixed_dictionaries({"requestId": json_values()}),
    }


_HANDSHAKE: Final[dict[str, SearchStrategy[JSON]]] = {
    "protocolVersion": st.sampled_from(("2025-11-25", "2025-06-18", "2024-11-05", "2026-07-28", "1")),
    "capabilities": json_values(),
    "clientInfo": st.just({"name": "raw", "version": "0"}),
}


def _metas() -> SearchStrategy[JSON]:
    capabilities = st.sampled_from((EVERYTHING, EVERYTHING, EVERYTHING, TASKS, NOTHING))
    full = capabilities.map(lambda declared: envelope("", capabilities=declared)["params"]["_meta"])
    keys = st.one_of(st.just(KEY), texts())
    extra = st.fixed_dictionaries({}, optional={"dev.perdure/idempotencyKey": keys, "progressToken": json_values()})
    return st.builds(_joined, full, extra)


def _joined(one: dict[str, JSON], other: dict[str, JSON]) -> dict[str, JSON]:
    return {**one, **other}


_OURS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel", "tools/call"})


def requests(*methods: str) -> SearchStrategy[dict[str, JSON]]:
    """Requests as they should be, of these methods or of all, though not all of them name what there is."""
    known = _params()
    made = {each: st.builds(_request, st.just(each), known[each], _metas()) for each in methods or known}
    return mixed(*((3 if each in _OURS else 1, requests) for each, requests in made.items()))


def _request(method: str, params: dict[str, JSON], meta: JSON) -> dict[str, JSON]:
    return envelope(method, {**params, "_meta": meta})


# -- what becomes of them ----------------------------------------------------------------------------------------------

Edit = tuple[int, str, JSON]
"""Where in a value, counted; what is done there; with what."""


def edits() -> SearchStrategy[Sequence[Edit]]:
    """What is done to a value, one after the other."""
    doing = st.sampled_from(("replace", "remove", "double", "add", "wrap"))
    return st.lists(st.tuples(st.integers(0, 60), doing, odd_values()), max_size=3)


def edited(value: JSON, todo: Sequence[Edit]) -> JSON:
    """The value with all of that done to it."""
    for at, doing, other in todo:
        places = list(_places(value))
        value = _changed(value, places[at % len(places)], doing, other)
    return value


Place = tuple[str | int, ...]


def _places(value: JSON, so_far: Place = ()) -> Iterator[Place]:
    yield so_far
    if _is(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*so_far, name))
    elif _is(value, list):
        for number, inner in enumerate(value):
            yield from _places(inner, (*so_far, number))


def _is(value: JSON, kind: type) -> bool:
    """As `isinstance`, which would make something narrower of any JSON."""
    return isinstance(value, kind)


def _changed(value: JSON, place: Place, doing: str, other: JSON) -> JSON:
    if not place:
        return _done(value, doing, other)
    first, *rest = place
    copy = value.copy()
    if rest or doing in ("replace", "wrap"):
        copy[first] = _changed(value[first], tuple(rest), doing, other)
    elif doing == "remove":
        del copy[first]
    elif _is(copy, dict) and doing == "double":
        return Pairs((*copy.items(), (str(first), other)))
    elif _is(copy, dict):
        copy[str(other)[:20]] = other
    else:
        copy.append(other)
    return copy


def _done(value: JSON, doing: str, other: JSON) -> JSON:
    """To the whole of it."""
    match doing:
        case "wrap":
            return [value]
        case "replace" | "remove":
            return other
        case _:
            return value


def bodies() -> SearchStrategy[JSON]:
    """Requests of any method, most of them wrong in a place or two; a batch of them now and then."""
    anywhere = st.builds(edited, requests(), edits())
    return mixed(
        (3, requests()),
        (6, st.builds(_edited_within, requests(), edits())),
        (3, anywhere),
        (1, st.lists(anywhere, max_size=3)),
        (1, odd_values()),
    )


def _edited_within(request: dict[str, JSON], todo: Sequence[Edit]) -> dict[str, JSON]:
    """Only its parameters, so that it gets further."""
    return {**request, "params": edited(request["params"], todo)}
