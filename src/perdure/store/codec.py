"""JSON as it lies in a store: the one place where values become text and come back.

Strict on the way in: what is stored must come back equal and must be valid JSON for every reader, so NaN, infinities,
lone surrogates and unknown types are refused here, before a transaction sees them.
"""

from __future__ import annotations

import json
from typing import cast

from perdure.domain.errors import NotStorable
from perdure.domain.model import JSON, JSONObject

__all__ = ["decode", "decode_object", "encode", "plain"]

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(value: JSON) -> str:
    """`value` as compact JSON text that UTF-8 can carry.

    Raises:
        NotStorable: it has no such form.
    """
    try:
        text = _encoder.encode(value)
        # SQLite and PostgreSQL take UTF-8 only; a lone surrogate would fail inside a transaction of many.
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"The value can't be stored as JSON: {type(error).__name__}") from error
    return text


def plain(text: str) -> str:
    """`text` itself, if UTF-8 can carry it.

    Raises:
        NotStorable: there is a lone surrogate in it.
    """
    encode(text)
    return text


def decode(text: str) -> JSON:
    """The value that `encode` made `text` from."""
    return cast("JSON", json.loads(text))


def decode_object(text: str) -> JSONObject:
    """The same for a value that is known to be an object."""
    return cast("JSONObject", json.loads(text))
