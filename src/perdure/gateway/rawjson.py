"""Bytes to a JSON object and back, for what is passed on and belongs to somebody else.

Python's parser takes what is no JSON (`NaN`, `Infinity`), makes an infinity of a number that is too large, and
recurses; whoever sends such a thing must hear of it here, and not the reader of what we would make of it. Texts leave
as ASCII, so that a lone surrogate, which JSON can say and UTF-8 can't, goes through unchanged.
"""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn, cast

from perdure.domain.model import JSONObject

__all__ = ["NotJSON", "TooDeep", "decode", "encode"]


class NotJSON(ValueError):
    """It is not one JSON object. The text says why, and repeats nothing of it."""


class TooDeep(NotJSON):
    """It may be JSON, and nobody here can read it, or could write it again."""


def _constant(name: str) -> NoReturn:
    raise NotJSON(f"{name} is no JSON")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJSON("a number is too large")
    return value


_SHALLOW: Final = 200
"""Objects and lists in a text that can't be nested too deeply anywhere, however they are."""

_decoder: Final = json.JSONDecoder(parse_constant=_constant, parse_float=_number)
_encoder: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode(data: bytes | str, spare: int = 0) -> JSONObject:
    """The object that `data` is.

    `spare`: frames of the stack that have to be left. Writing takes as many as reading; so what is read near the top of
    the stack, and written further down, needs some.

    Raises:
        NotJSON: it is none, is no UTF-8, or is nested too deeply to be read.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = _below(spare, text) if spare and _may_be_deep(text) else _decoder.decode(text)
    except NotJSON:
        raise
    except RecursionError:
        raise TooDeep("it is nested too deeply") from None
    except ValueError:  # a number of too many digits, and bytes that are no UTF-8, are such errors too
        raise NotJSON("it is no JSON") from None
    if not isinstance(value, dict):
        raise NotJSON("it is no JSON object")
    return cast("JSONObject", value)


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > _SHALLOW


def _below(spare: int, text: str) -> object:
    return _decoder.decode(text) if spare == 0 else _below(spare - 1, text)


def encode(value: JSONObject) -> bytes:
    """`value` as bytes, which `decode` reads as the same."""
    return _encoder.encode(value).encode("ascii")
