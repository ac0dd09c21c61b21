"""Values on their way to a store's texts and back: as `codec` writes them, or sealed under a key ring.

A store holds one `Codec` and passes every value of a task through it, with what the value belongs to: its owner, its
task's id, and what it is. With that a sealed value is bound to its place (`KeyRing`): who can write to the database
can't have one task's arguments read as another's, nor as somebody else's by another name in the owner's column.

Sealed and unsealed values may stand side by side, so that a store which has been used for a while can be sealed, and
its keys be changed, while it is in use (`reseal`). Which is which can be told by the first character. JSON never begins
with a tilde. Words (status messages, notes of the timeline, digests) may, so words in the clear that do have another
one put before them.

Without keys this is `codec` and nothing else: every poll comes by here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, Self

from perdure.domain import ids
from perdure.domain.errors import StoreUnusable, Unreadable
from perdure.domain.model import JSON, JSONObject, Owner
from perdure.domain.timeline import EventKind

from . import codec
from .base import PUT_OFF
from .codec import UNREADABLE, mended, plain, sound
from .keys import MARK, KeyRing, key_id_of

__all__ = ["BLIND", "CLEAR", "NOTES", "SEALED", "Codec", "Unopened", "check", "codec_for", "verifying"]

logger = logging.getLogger("perdure.store")

_TILDE: Final = MARK[0]
_SAID: Final = 1000
"""For how many values it is said in the log that they can't be read."""

SEALED: Final = 0
"""What `BLIND` says that an error's code is."""
_SEALED_ERROR: Final[JSONObject] = {"code": SEALED, "message": "", "data": None}

NOTES: Final = frozenset({EventKind.RETRY, EventKind.STEP_RETRY})
"""The events whose details are sealed: they quote errors. What the others say are numbers and names."""


class Unopened(str):
    """Words in place of a status message that can't be opened, which is kept as it is stored.

    A message is an aside. If one that can't be read were an error, nothing could happen to its task any more, nor to
    the others that a verb is about: nobody could take it over from a dead worker or end it when its time is up.
    """

    __slots__ = ("stored",)

    stored: str

    def __new__(cls, stored: str) -> Self:
        self = super().__new__(cls, "The status message can't be read")
        self.stored = stored
        return self


class Codec:
    """Values as text in the clear. `owner`, `id` and `what` say what a value belongs to, and which of its values it is.

    What was sealed can't be read without keys, and is an error.
    """

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: set[tuple[str, ...]] = set()

    # -- values --------------------------------------------------------------------------------------------------------

    def encode(self, value: JSON, owner: Owner, id: str, *what: str) -> str:
        """The value as it is stored.

        Raises:
            NotStorable: as `codec.encode`.
        """
        return codec.encode(value)

    def decode(self, text: str, owner: Owner, id: str, *what: str) -> JSON:
        """The value that `encode` made `text` from.

        Raises:
            Unreadable: it was sealed, and can't be opened; or it was damaged.
        """
        try:
            return codec.decode(text)
        except UNREADABLE as error:
            self._open(text, owner, id, *what)
            raise self.damaged(error, id, *what) from error

    def decode_object(self, text: str, owner: Owner, id: str, *what: str) -> JSONObject:
        """The same for a value that is known to be an object."""
        try:
            return codec.decode_object(text)  # not by `decode`: each poll of a task that is over comes by here
        except UNREADABLE as error:
            self._open(text, owner, id, *what)
            raise self.damaged(error, id, *what) from error

    def seal(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """What `codec.encode` made of a value, as it is stored."""
        return text

    # -- words ---------------------------------------------------------------------------------------------------------

    def encode_words(self, words: str, owner: Owner, id: str, *what: str) -> str:
        """Words, which are not JSON, as they are stored.

        Raises:
            NotStorable: as `codec.plain`.
        """
        plain(words)
        return _TILDE + words if words.startswith(_TILDE) else words

    def decode_words(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """The words that `encode_words` made `text` from.

        Raises:
            Unreadable: as `decode`.
        """
        if text.startswith(MARK):
            return self._open(text, owner, id, *what)
        self._sound(text, id, *what)
        return text[1:] if text.startswith(_TILDE * 2) else text

    def encode_message(self, message: str, owner: Owner, id: str) -> str:
        """A status message as it is stored."""
        if isinstance(message, Unopened):
            return message.stored
        return self.encode_words(message, owner, id, "message")

    def decode_message(self, text: str, owner: Owner, id: str) -> str:
        """The status message that was stored; `Unopened` if it can't be opened, or was damaged."""
        if text.isascii() and not text.startswith(_TILDE):
            return text
        try:
            return self.decode_words(text, owner, id, "message")
        except Unreadable:
            return Unopened(mended(text))  # what is no UTF-8 can't be put back

    def encode_note(self, kind: EventKind, detail: str, owner: Owner, id: str) -> str:
        """An event's detail as it is stored."""
        return self.encode_words(detail, owner, id, "event", kind.value) if kind in NOTES else plain(detail)

    def decode_note(self, kind: EventKind, text: str, owner: Owner, id: str) -> str:
        """The event's detail that was stored."""
        if kind in NOTES:
            return self.decode_words(text, owner, id, "event", kind.value)
        return self._sound(text, id, "event", kind.value)

    def _sound(self, text: str, id: str, *what: str) -> str:
        try:
            return sound(text)
        except UNREADABLE as error:
            raise self.damaged(error, id, *what) from error

    # -- opening -------------------------------------------------------------------------------------------------------

    def _open(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """What was sealed, or the text itself if it was not; and a line in the log if that can't be told."""
        try:
            return self.unsealed(text, owner, id, *what)
        except Unreadable as error:
            self._say(logging.ERROR, error, id, *what)
            raise

    def damaged(self, error: Exception, id: str, *what: str) -> Unreadable:
        """What is to be raised where there is what no store has written. It is logged: only its operator can help."""
        found = Unreadable(None, f"was damaged, and has to be restored from a backup: {type(error).__name__}")
        self._say(logging.CRITICAL, found, id, *what)
        return found

    def _say(self, level: int, error: Unreadable | str, id: str, *what: str) -> None:
        """Once of each value, for as many as anybody would read."""
        value = (id, *what)
        if value not in self._said and len(self._said) < _SAID:
            self._said.add(value)
            logger.log(level, "%s of task %s: %s", mended(" ".join(what)), mended(ids.abbreviated(id)), error)

    def put_off(self, id: str) -> None:
        """Say, once of each task, that its run is put off, since it can't be read here."""
        self._say(logging.WARNING, f"put off for {PUT_OFF // 1000} s at a time, until it can be read", id, "run")

    def unsealed(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """The text that was sealed as `text`, or that itself if it was not; nothing is said in the log.

        Raises:
            Unreadable: it can't be opened.
        """
        return self._opened(text, owner, id, *what) if text.startswith(MARK) else text

    def _opened(self, text: str, owner: Owner, id: str, *what: str) -> str:
        raise Unreadable(key_id_of(text), "can't be opened, since this process has no keys")

    def goes_without(self, key_id: str) -> bool:
        """Whether it is known, and meant, that there is no such key here."""
        return False

    # -- resealing -----------------------------------------------------------------------------------------------------

    def resealed(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """A stored value as it would be stored now; the same text if it is that already.

        Raises:
            Unreadable: it can't be opened.
        """
        return text if self._is_fresh(text) else self.seal(self.unsealed(text, owner, id, *what), owner, id, *what)

    def resealed_words(self, text: str, owner: Owner, id: str, *what: str) -> str:
        """The same for words."""
        if self._is_fresh(text):
            return text
        sealed = text.startswith(MARK)
        words = self._opened(text, owner, id, *what) if sealed else self.decode_words(text, owner, id, *what)
        return self.encode_words(words, owner, id, *what)

    def _is_fresh(self, text: str) -> bool:
        """Whether it was sealed just as it would be now."""
        return False


class _Sealing(Codec):
    """Values sealed under a ring's first key. `lenient`: it may lack any key, and not only those that are lost."""

    __slots__ = ("_fresh", "_lenient", "ring")

    def __init__(self, ring: KeyRing, *, lenient: bool = False) -> None:
        super().__init__()
        self.ring = ring
        self._lenient = lenient
        self._fresh = None if ring.sealing is None else f"{MARK}{ring.sealing}."

    def encode(self, value: JSON, owner: Owner, id: str, *what: str) -> str:
        return self.seal(codec.encode(value), owner, id, *what)

    def decode(self, text: str, owner: Owner, id: str, *what: str) -> JSON:
        text = self._open(text, owner, id, *what) if text.startswith(_TILDE) else text
        return super().decode(text, owner, id, *what)

    def decode_object(self, text: str, owner: Owner, id: str, *what: str) -> JSONObject:
        text = self._open(text, owner, id, *what) if text.startswith(_TILDE) else text
        return super().decode_object(text, owner, id, *what)

    def seal(self, text: str, owner: Owner, id: str, *what: str) -> str:
        return self.ring.seal(text, _bound(owner, id, *what))

    def encode_words(self, words: str, owner: Owner, id: str, *what: str) -> str:
        if self._fresh is None:
            return super().encode_words(words, owner, id, *what)
        return self.seal(plain(words), owner, id, *what)

    def _opened(self, text: str, owner: Owner, id: str, *what: str) -> str:
        return self.ring.open(text, _bound(owner, id, *what))

    def goes_without(self, key_id: str) -> bool:
        return key_id in self.ring.lost or (self._lenient and key_id not in self.ring.ids)

    def _is_fresh(self, text: str) -> bool:
        return self._fresh is not None and text.startswith(self._fresh)


class _Verifying(_Sealing):
    """For whoever walks through a store to see whether everything opens (`reseal`): nothing is stored anew."""

    __slots__ = ()

    def resealed(self, text: str, owner: Owner, id: str, *what: str) -> str:
        try:
            codec.decode(self.unsealed(text, owner, id, *what))
        except UNREADABLE as error:
            raise Unreadable(None, f"was damaged: {type(error).__name__}") from error
        return text

    def resealed_words(self, text: str, owner: Owner, id: str, *what: str) -> str:
        self.unsealed(text, owner, id, *what)
        return text


class _Blind(Codec):
    """For whoever asks how tasks stand and needs nothing that is in them: what can't be read is passed over.

    What stays as it is stored may be written back: a task can be cancelled by who can't read its message.
    """

    __slots__ = ()

    def decode(self, text: str, owner: Owner, id: str, *what: str) -> JSON:
        try:
            return codec.decode(text)
        except UNREADABLE:
            return {}

    def decode_object(self, text: str, owner: Owner, id: str, *what: str) -> JSONObject:
        try:
            return codec.decode_object(text)
        except UNREADABLE:
            return dict(_SEALED_ERROR) if what == ("error",) else {}

    def decode_words(self, text: str, owner: Owner, id: str, *what: str) -> str:
        return "(sealed)" if text.startswith(MARK) else super().decode_words(mended(text), owner, id, *what)

    def decode_message(self, text: str, owner: Owner, id: str) -> str:
        return Unopened(text) if text.startswith(MARK) else super().decode_message(text, owner, id)


CLEAR: Final = Codec()
"""Without keys."""
BLIND: Final = _Blind()
"""Opens nothing and minds nothing. Not to write values with; to look, and to cancel, hasten or discard."""


def verifying(keys: KeyRing) -> Codec:
    """With it, `reseal` opens everything, names what does not open, and changes nothing."""
    return _Verifying(keys, lenient=True)


def codec_for(keys: KeyRing | None, *, lenient: bool = False) -> Codec:
    """What a store passes its values through, given the keys that its user has.

    `lenient`: the store is opened though it has tasks under keys that are not among them, for whoever says what those
    are.
    """
    return CLEAR if keys is None else _Sealing(keys, lenient=lenient)


def _bound(owner: Owner, id: str, *what: str) -> bytes:
    # No text in a store has a null in it, so no two places read alike.
    return "\0".join((id, owner.tenant, owner.principal, *what)).encode()


def _are_sound(texts: Iterable[str]) -> bool:
    try:
        return all(sound(text) is text for text in texts)
    except UNREADABLE:
        return False


# -- start-up ----------------------------------------------------------------------------------------------------------


def check(sample: Iterable[Any], held: Codec, shown: str) -> None:
    """That the keys are those that a store's values were sealed under, as far as some of its tasks tell.

    `sample`: id, tenant, principal, params of the oldest and the newest tasks. A single value that does not open is
    none of the start's business; but a key that opens nothing that was sealed under its id is another key, and what it
    sealed would not be readable for anybody else. A key that is lost is missed by whoever says so (`KeyRing`), and the
    store is opened: what it sealed is as good as damaged.

    Raises:
        StoreUnusable: they are not.
    """
    if held is BLIND:
        return
    errors, opened = dict[str, Unreadable](), set[str]()
    for texts in sample:
        if not _are_sound(texts):  # nor is a row that was damaged
            continue
        id_, tenant, principal, params = texts
        if params.startswith(MARK):
            key_id = key_id_of(params)
            try:
                held.unsealed(params, Owner(tenant, principal), id_, "params")
                opened.add(key_id)
            except Unreadable as error:
                errors[key_id] = error
    for key_id in sorted(errors.keys() - opened):
        if not held.goes_without(key_id):
            raise StoreUnusable(
                f"{shown} has tasks that were sealed under the key {key_id!r}, and it is not among the keys here, or "
                "another one goes by its id: put it into PERDURE_KEYS, or Tasks(keys=…); if it is lost for good, put "
                f"{key_id}:lost there, and those tasks stay unread"
            )
