"""Task ids: how they are minted and what text is one.

    tsk_[TAG_]SECRET        TAG: 1 to 8 of a-z 0-9        SECRET: 32 of a-z 2-7, 160 random bits

Without authentication the id is the only key to its task, so it must be unguessable (specification, *Security
Considerations*: task ids may serve as bearer tokens); 160 bits leave no doubt. The alphabet is lower-case base32: safe
in a header, a URL, a file name and a shell, and the same after any case folding. TAG is reserved for placement: a later
version may spread tenants over several databases and route by it without a directory. Nothing mints one today, but
every reader admits it, so that the first release that does can be rolled out replica by replica.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from .errors import MalformedTaskId

__all__ = ["SECRET_BYTES", "abbreviated", "beginning", "mint", "parse"]

SECRET_BYTES = 20
_KEPT = 26
"""How many characters of an id stay out of the logs: 130 random bits, as many as an id must have to be a key."""
_GRAMMAR = re.compile(r"tsk_(?:[a-z0-9]{1,8}_)?[a-z2-7]{32}", re.ASCII)

_BEGINNING = re.compile(r"(tsk_[a-z0-9_]*)(?:…|\.\.\.)?", re.ASCII)


def mint(randbytes: Callable[[int], bytes]) -> str:
    """A new task id from `randbytes(n)`, which must be a cryptographic source such as `secrets.token_bytes`."""
    return "tsk_" + base64.b32encode(randbytes(SECRET_BYTES)).decode("ascii").lower()


def abbreviated(task_id: str) -> str:
    """An id as it may stand in a log: enough of it to find the lines of one task, too little to be the key to it."""
    return f"{task_id[:-_KEPT]}…"


def beginning(text: str) -> str:
    """How an id begins, of the whole of it or of as much as somebody has: `abbreviated` is enough.

    Raises:
        MalformedTaskId: no id begins so.
    """
    match = _BEGINNING.fullmatch(text)
    if match is None:
        raise MalformedTaskId
    return match[1]


def parse(text: str) -> str:
    """`text` itself if it is a task id.

    Raises:
        MalformedTaskId: it is not. Decided before any look-up.
    """
    if _GRAMMAR.fullmatch(text) is None:
        raise MalformedTaskId
    return text
