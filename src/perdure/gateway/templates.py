"""Whether the address of a resource may have come of a template. Pure."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["fits"]

_BRACES: Final = re.compile(r"\{[^{}]*\}")


def fits(uri: str, template: str) -> bool:
    """Whether an address may have come of a template (RFC 6570), roughly: what is in braces may be anything.

    Not by an expression, which a template with many braces would make slow.
    """
    first, *parts = _BRACES.split(template)
    if not parts:
        return uri == first
    *between, last = parts
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for part in between:
        at = uri.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end
