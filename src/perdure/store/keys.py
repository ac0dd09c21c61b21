"""The key ring: under which key values are sealed at rest, and which keys open them.

AES-256 in Galois/counter mode, with a nonce of 96 random bits for each value. A sealed value is a text that says under
which key it was sealed, so a ring may hold several keys: the first one seals, all of them open. That is what makes a
change of keys a matter of restarts one after the other. What a value is bound to is sealed along with it: in another
place it does not open (`sealing` says what that is).

A key that is lost may stand in a ring by its id alone. It opens nothing; it says that this is known, so that a store is
not refused over it (`sealing.check`).

No key is ever shown: not by `repr`, not in an error.
"""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode, b64encode
from typing import Final, NoReturn, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from perdure.domain.errors import ConfigurationError, Unreadable

__all__ = ["KEYS", "KEYS_FILE", "MARK", "KeyRing", "key_id_of", "new_key"]

KEYS: Final = "PERDURE_KEYS"
KEYS_FILE: Final = "PERDURE_KEYS_FILE"
"""The environment variables for the keys themselves (`KeyRing.parse`), and for a file that has them. They are read by
the commands (`ops/keys.py`), and nothing that a tool starts needs them."""

MARK: Final = "~1."
"""What a sealed text begins with. No JSON does; the number is that of this form."""

_CLEAR: Final = "clear"
"""In a ring, in place of its first key: nothing is sealed any more."""
_LOST: Final = "lost"
"""In place of what is secret of a key: nobody has it any more. In base64 it would be three bytes, and so no key."""

_NONCE: Final = 12
_KEY: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


class KeyRing:
    """The keys that values are sealed under in the store, for `Tasks(keys=…)`.

    `keys`: texts such as `2026-11:ub5V…`, an id of your own and 32 random bytes in base64, as `perdure rekey --new-key`
    prints them. The first seals, all open. The word `clear` in place of a first key: all open, and nothing is sealed
    any more. `2026-11:lost`, after the first: that key is gone for good, and what it sealed stays unread.

    Raises:
        ConfigurationError: one of the texts is no such key, or there is none, or two have one id, or the first one is
            lost. What is said names ids and positions only.
    """

    __slots__ = ("_ciphers", "_lost", "_sealing")

    def __init__(self, *keys: str) -> None:
        clear = keys[:1] == (_CLEAR,)
        ring: dict[str, AESGCM | None] = {}
        for position, text in enumerate(keys[1:] if clear else keys, 1 + clear):
            id_, cipher = _parsed(text, position)
            if id_ in ring:
                raise ConfigurationError(f"the key {id_!r} is there twice: give each key an id of its own")
            ring[id_] = cipher
        if not clear and not ring:
            raise ConfigurationError(
                "there is no key: `perdure rekey --new-key` makes one; the word `clear` stands for storing in the clear"
            )
        self._sealing = None if clear else next(iter(ring))
        if self._sealing is not None and ring[self._sealing] is None:
            raise ConfigurationError(f"the first key is to seal, and {self._sealing!r} is lost: put another before it")
        self._ciphers = {id_: cipher for id_, cipher in ring.items() if cipher is not None}
        self._lost = frozenset(ring.keys() - self._ciphers.keys())

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """The ring of the keys in `text`, with commas or white space between them; a line may be a `#` comment.

        Raises:
            ConfigurationError: as the constructor.
        """
        if not isinstance(cast("object", text), str):  # most often a variable that is not there
            raise ConfigurationError(f"the keys are a {type(text).__name__}: write them as one text")
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        return cls(*" ".join(lines).replace(",", " ").split())

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its keys, in their order."""
        return tuple(self._ciphers)

    @property
    def lost(self) -> frozenset[str]:
        """The ids of the keys that are known to be lost."""
        return self._lost

    @property
    def sealing(self) -> str | None:
        """The id of the key that seals; None if nothing is sealed any more."""
        return self._sealing

    def __repr__(self) -> str:
        lost = (f"{id_}:{_LOST}" for id_ in sorted(self._lost))
        return f"KeyRing({', '.join(map(repr, (*(() if self._sealing else (_CLEAR,)), *self.ids, *lost)))})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A key ring is not copied to where it might be kept")

    def seal(self, text: str, bound: bytes) -> str:
        """`text`, sealed and bound to what `bound` says of it; itself, if nothing is sealed any more."""
        if self._sealing is None:
            return text
        nonce = os.urandom(_NONCE)
        sealed = self._ciphers[self._sealing].encrypt(nonce, text.encode(), bound)
        return f"{MARK}{self._sealing}.{b64encode(nonce + sealed).decode('ascii')}"

    def open(self, text: str, bound: bytes) -> str:
        """What was sealed as `text`, which begins with `MARK`.

        Raises:
            Unreadable: the key is not in the ring, or this is not what was sealed with it and bound so.
        """
        id_ = key_id_of(text)
        cipher = self._ciphers.get(id_)
        if cipher is None:
            raise Unreadable(
                id_,
                f"can't be opened, since {'that key is lost' if id_ in self._lost else 'this process has no such key'}",
            )
        try:
            raw = b64decode(text[len(MARK) + len(id_) + 1 :], validate=True)
            return cipher.decrypt(raw[:_NONCE], raw[_NONCE:], bound).decode()
        except (InvalidTag, ValueError) as error:  # ValueError: it is not so much as base64, or too short
            raise Unreadable(
                id_, "does not open: it was changed or moved in the store, or another key goes by that name"
            ) from error


def key_id_of(text: str) -> str:
    """Under which key a text that begins with `MARK` was sealed, as far as it says so itself."""
    return said[0] if (said := _ID.match(text, len(MARK))) else "?"


def new_key(id_: str) -> str:
    """A text for a ring, with a key that nobody has had before.

    Raises:
        ConfigurationError: the id is none.
    """
    if not _ID.fullmatch(id_):
        raise ConfigurationError("the id of a key is up to 32 letters, digits, - and _")
    return f"{id_}:{b64encode(os.urandom(_KEY)).decode('ascii')}"


def _parsed(text: str, position: int) -> tuple[str, AESGCM | None]:
    """The id and the cipher of a key, None if it is lost. What can't be read may be the key, so no part is repeated."""
    if not isinstance(cast("object", text), str):
        raise ConfigurationError(f"key number {position} is none: write texts, not a {type(text).__name__}")
    id_, colon, encoded = text.partition(":")
    if not colon or not _ID.fullmatch(id_):
        raise ConfigurationError(
            f"key number {position} is none: write ID:KEY, an id of up to 32 letters, digits, - and _, and 32 bytes in "
            "base64"
        )
    if encoded == _LOST:
        return id_, None
    try:
        key = b64decode(encoded.translate(_URL_SAFE) + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY:
        raise ConfigurationError(f"the key {id_!r} is none: after its id and a colon come 32 bytes in base64")
    return id_, AESGCM(key)


_URL_SAFE: Final = str.maketrans("-_", "+/")
