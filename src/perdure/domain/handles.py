"""Handles: what names one piece of external work, and proves that its bearer may say how it ended.

    TASK~PLACE~TOKEN        TASK: a task id        PLACE: of the work in the journal, its slashes as hyphens
                            TOKEN: 32 of A-Z a-z 0-9 _ -, 192 random bits

A token of its own, since clients know the task's id and places are counted (ADR 0012). The text is safe in a header, a
URL, a file name and a shell.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from . import ids
from .errors import MalformedTaskId, TaskNotFound

__all__ = ["TOKEN_BYTES", "Handle", "mint_token"]

TOKEN_BYTES: Final = 24
_BETWEEN: Final = "~"
_PLACE = re.compile(r"(?:\d{1,9}\.\d{1,9}/)*\d{1,9}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32}", re.ASCII)


def mint_token(randbytes: Callable[[int], bytes]) -> str:
    """A new token from `randbytes(n)`, which must be a cryptographic source such as `secrets.token_bytes`."""
    return base64.urlsafe_b64encode(randbytes(TOKEN_BYTES)).decode("ascii")


@dataclass(frozen=True, slots=True)
class Handle:
    """One piece of external work, and the right to say how it ended. Treat it like a password.

    `str(handle)` is the text to hand over: safe in a header, a URL, a file name, a shell and an environment variable.
    It is good for as long as the task is, across restarts, and the same each time `start` is called for this work.
    """

    task_id: str
    place: str
    token: str = field(repr=False)

    @property
    def id(self) -> str:
        """The handle as text. Opaque: what it is made of may change."""
        # A place has slashes, which a URL and a file name must not.
        return _BETWEEN.join((self.task_id, self.place.replace("/", "-"), self.token))

    def __str__(self) -> str:
        return self.id

    @classmethod
    def parse(cls, text: str) -> Handle:
        """The handle that `text` is.

        Raises:
            TaskNotFound: it is none. Whoever makes one up hears the same as whoever makes up a part of one.
        """
        task_id, _, rest = text.partition(_BETWEEN)
        place, _, token = rest.partition(_BETWEEN)
        place = place.replace("-", "/")
        try:
            ids.parse(task_id)
        except MalformedTaskId:
            raise TaskNotFound from None
        if not _PLACE.fullmatch(place) or not _TOKEN.fullmatch(token):
            raise TaskNotFound
        return cls(task_id, place, token)
