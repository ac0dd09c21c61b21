"""What callers bring, made fit for the database, before it is put into a batch with what others bring."""

from __future__ import annotations

from dataclasses import replace

from perdure.domain.errors import TaskNotFound
from perdure.domain.journal import Entry
from perdure.domain.model import JSONObject, Owner
from perdure.store.codec import copied, decode_object, encode, is_plain, plain

from .finding import Sought

__all__ = ["copy_of", "is_sayable", "sayable", "sought", "stored"]


def sought(owner: Owner | None, task_id: str) -> Sought:
    """A task to look for.

    Raises:
        TaskNotFound: the database would not take one of the names, and they come in a batch with others'.
    """
    if owner is not None and not is_plain(owner.tenant, owner.principal):
        raise TaskNotFound
    return Sought(owner, sayable(task_id))


def sayable(text: str) -> str:
    if not is_sayable(text):
        raise TaskNotFound
    return text


def is_sayable(text: str) -> bool:
    # Ids and places are ASCII; anything may come from strangers, and the database would not so much as look for some.
    return text.isascii() and "\0" not in text


def stored(entry: Entry) -> Entry:
    return replace(entry, place=plain(entry.place), name=plain(entry.name), value=copied(entry.value))


def copy_of(value: JSONObject) -> JSONObject:
    return decode_object(encode(value))
