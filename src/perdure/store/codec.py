"""JSON as it lies in a store: the one place where values become text and come back.

Strict on the way in: what is stored must come back equal and must be valid JSON for every reader, so NaN, infinities,
lone surrogates, unknown types and bottomless nesting are refused here, before a transaction sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, cast

from perdure.domain import verdicts
from perdure.domain.errors import NotStorable
from perdure.domain.limits import MAX_DEPTH
from perdure.domain.model import JSON, JSONObject

__all__ = [
    "UNREADABLE",
    "copied",
    "decode",
    "decode_object",
    "encode",
    "is_deeper",
    "is_plain",
    "mended",
    "named",
    "plain",
    "sound",
]

UNREADABLE: Final = (TypeError, ValueError, RecursionError)
"""What reading raises where the text is none that `encode` made: it is sealed, or was damaged."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder()


def encode(value: JSON) -> str:
    """`value` as compact JSON text that UTF-8 can carry.

    Raises:
        NotStorable: it has no such form.
    """
    try:
        text = _encoder.encode(value)
        # SQLite and PostgreSQL take UTF-8 only; a lone surrogate would fail inside a transaction of many.
        text.encode("utf-8")
        if is_deeper(value, text, MAX_DEPTH):
            raise ValueError
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(verdicts.NOT_JSON.format(type=type(error).__name__)) from error
    return text


def is_deeper(value: JSON, text: str, most: int) -> bool:
    """Whether `value`, which is `text` as JSON, nests deeper than `most` levels."""
    # No value is deeper than its brackets are many; most have few, and only the others are worth a walk.
    if text.count("[") + text.count("{") <= most:
        return False
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            return True
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list))]
    return False


def _children(node: JSON) -> Iterable[JSON]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def plain(text: str) -> str:
    """`text` itself, if it is text, UTF-8 can carry it, and there is no null in it.

    PostgreSQL's texts hold none, so no store takes one: what runs on one machine must not fail on many. Within a JSON
    value, where it is written as an escape, a null is like any other character.

    Raises:
        NotStorable: there is a lone surrogate or a null in it, or it is no text: a key of 1 would come back as "1",
            another key.
    """
    if not isinstance(cast("object", text), str):
        raise NotStorable(f"Text was expected, and a {type(text).__name__} can't be stored as such")
    if "\0" in text:
        raise NotStorable("Text with a null character in it can't be stored")
    if not text.isascii():  # as most text is, which then needs no closer look
        encode(text)
    return text


def named(what: str, text: str) -> str:
    """As `plain`, of a text that its author has to find again by what it is: `what`."""
    try:
        return plain(text)
    except NotStorable as error:
        raise NotStorable(f"{what} {repr(text)[:40]} can't be stored: {error}") from None


def is_plain(*texts: str) -> bool:
    """Whether `plain` takes all of them. What was sought by any other was never stored."""
    try:
        plain("".join(texts))
    except NotStorable:
        return False
    return True


def mended(text: str) -> str:
    """`text` that `plain` takes, with a question mark for each character that it would not.

    For words about an error, which must not fail in turn.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def sound(text: str) -> str:
    """`text` itself, which a store has read. One of `UNREADABLE` is raised if it was no UTF-8 (`sqlite.schema`)."""
    if not str.isascii(text):  # so written, it refuses what is no text at all
        text.encode()
    return text


def decode(text: str) -> JSON:
    """The value that `encode` made `text` from. One of `UNREADABLE` is raised if it was not."""
    # The text is `encode`'s own, with nothing before or after the value: what `json.loads` does besides costs as much
    # again as the parsing, at every read of a task.
    return cast("JSON", _decoder.raw_decode(sound(text))[0])


def copied(value: JSON) -> JSON:
    """`value` as it comes back from a store.

    Raises:
        NotStorable: as `encode`.
    """
    return decode(encode(value))


def decode_object(text: str) -> JSONObject:
    """The same for a value that is known to be an object."""
    value: object = _decoder.raw_decode(sound(text))[0]
    if not isinstance(value, dict):
        raise TypeError(f"not an object but {type(value).__name__}")
    return cast("JSONObject", value)
