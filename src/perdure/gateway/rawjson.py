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

__all__ = ["NotJSON", "decode", "encode"]


class NotJSON(ValueError):
    """It is not one JSON object. The text says why, and repeats nothing of it."""


def _constant(name: str) -> NoReturn:
    raise NotJSON(f"{name} is no JSON")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJSON("a number is too large")
    return value


_decoder: Final = json.JSONDecoder(parse_constant=_constant, parse_float=_number)
_encoder: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode(data: bytes | str) -> JSONObject:
    """The object that `data` is.

    Raises:
        NotJSON: it is none, is no UTF-8, or is nested too deeply to be read.
    """
    try:
        value: object = _decoder.decode(data if isinstance(data, str) else data.decode("utf-8"))
    except NotJSON:
        raise
    except RecursionError:
        raise NotJSON("it is nested too deeply") from None
    except ValueError:  # a number of too many digits, and bytes that are no UTF-8, are such errors too
        raise NotJSON("it is no JSON") from None
    if not isinstance(value, dict):
        raise NotJSON("it is no JSON object")
    return cast("JSONObject", value)


def encode(value: JSONObject) -> bytes:
    """`value` as bytes, which `decode` reads as the same."""
    return _encoder.encode(value).encode("ascii")
