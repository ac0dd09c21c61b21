"""The arguments of a call, from the words of a command line and the tool's input schema.

`key=value` is read by the type that the schema gives the key; `key:=value` is JSON whatever it says. `key=@file` and
`key:=@file` take what is in a file (`-`: standard input), and `key=@@text` begins with an @. A key that is a list
may be there several times. What does not fit is told before anything is called.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from . import typed
from .typed import Schema, Unfit

__all__ = ["Asked", "Misfits", "arguments", "from_file", "looks_like_one", "read", "split"]

_WORD: Final = re.compile(r"(?P<key>[^=]+?)(?P<raw>:?)=(?P<said>.*)", re.DOTALL)


class Misfits(ValueError):
    """What is wrong with the arguments, a line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("; ".join(lines))


class Asked(Misfits):
    """Likewise, of an answer: what is asked, and how to answer it."""


def looks_like_one(word: str) -> bool:
    """Whether a word says `key=value`."""
    return _WORD.fullmatch(word) is not None


def read(name: str) -> str:
    """What is in the file `name`, or on standard input (`-`).

    Raises:
        Unfit: it can't be read.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unfit(f"{name} can't be read: {getattr(error, 'strerror', None) or 'it is no text in UTF-8'}") from None


def from_file(name: str) -> dict[str, Any]:
    """All arguments, from a file that is a JSON object.

    Raises:
        Unfit: it is none.
    """
    try:
        found = typed.parse_json(read(name))
    except Unfit as error:
        raise Unfit(f"--arguments {name}: {error}") from None
    if not isinstance(found, dict):
        raise Unfit(f"--arguments {name}: it is no JSON object")
    return cast("dict[str, Any]", found)


def split(word: str) -> tuple[str, bool, str]:
    """The key of `key=value`, whether its value is said in JSON, and what is said, files read.

    Raises:
        Unfit: it is no such word.
    """
    found = _WORD.fullmatch(word)
    if found is None:
        raise Unfit(f"{word!r} is no KEY=VALUE")
    if not word.isascii() and any("\ud800" <= each <= "\udfff" for each in word):
        raise Unfit(f"{word!r} is no UTF-8")
    said = found["said"]
    if said.startswith("@@"):
        said = said[1:]
    elif said.startswith("@"):
        try:
            said = read(said[1:])
        except Unfit as error:
            raise Unfit(f"{found['key']}: {error}") from None
    return found["key"], found["raw"] == ":", said


def arguments(words: Iterable[str], given: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The arguments that the words say, over those that are `given` already.

    Raises:
        Misfits: they are not what the tool takes.
    """
    found, faults = dict(given), list[str]()
    repeated: set[str] = set()
    for word in words:
        try:
            key, raw, said = split(word)
        except Unfit as error:
            faults.append(str(error))
            continue
        try:
            _put(found, repeated, key, _value(key, raw, said, schema))
        except Unfit as error:
            faults.append(f"{key}: {error}")
    faults = faults or [*_unknown(found, schema), *_misfits(found, schema)]
    if faults:
        raise Misfits(faults)
    return found


def _value(key: str, raw: bool, said: str, schema: Schema) -> Any:
    if raw:
        return typed.parse_json(said)
    return typed.parse(said, _properties(schema).get(key), schema)


def _put(found: dict[str, Any], repeated: set[str], key: str, value: Any) -> None:
    if key not in repeated:
        found[key] = value
    elif isinstance(found[key], list) and isinstance(value, list):
        found[key] = [*cast("list[Any]", found[key]), *cast("list[Any]", value)]
    else:
        raise Unfit("it is there twice")
    repeated.add(key)


def _properties(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _unknown(found: Mapping[str, Any], schema: Schema) -> Iterable[str]:
    known = _properties(schema)
    if schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema:
        return
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
            yield f"{key}: the tool has no such argument; {hint}"


def _misfits(found: Mapping[str, Any], schema: Schema) -> Iterable[str]:
    required: object = schema.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    missing = [key for key in needed if isinstance(key, str) and key not in found]
    yield from (f"{key}: it is needed{_about(key, schema)}" for key in missing)
    for place, reason in typed.wrong(dict(found), {**schema, "required": [], "additionalProperties": True}):
        yield f"{place or 'the arguments'}: {reason}"


def _about(key: str, schema: Schema) -> str:
    told = typed.resolved(_properties(schema).get(key), schema).get("description")
    return f" ({told})" if isinstance(told, str) and told else ""
