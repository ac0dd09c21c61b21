"""Values on their way in: encoded and decoded, as the backends do it.

So nobody holds a part of the tables, what has no JSON form is refused, and what comes back is what JSON makes of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from perdure.domain.journal import Entry, Waits
from perdure.domain.model import JSON, Asked, Cancelled, Completed, Failed, JSONObject, NewTask, Outcome
from perdure.store.codec import decode, decode_object, encode, plain

__all__ = ["entry", "json", "json_object", "new_task", "outcome", "waits"]


def json(value: JSON) -> JSON:
    return decode(encode(value))


def json_object(value: JSONObject) -> JSONObject:
    return decode_object(encode(value))


def new_task(new: NewTask) -> NewTask:
    operation = new.operation
    texts = (new.id, new.owner.tenant, new.owner.principal, operation.method, operation.name, operation.version)
    for text in (*texts, new.key or "", new.digest or "", *operation.accepts):
        plain(text)
    return replace(new, operation=replace(operation, params=json_object(operation.params)))


def entry(given: Entry) -> Entry:
    return replace(given, place=plain(given.place), name=plain(given.name), value=json(given.value))


def waits(given: Waits) -> Waits:
    asked = {plain(key): _asked(question) for key, question in given.asked.items()}
    return replace(given, asked=asked, begun=tuple((entry(each), wake_in_ms) for each, wake_in_ms in given.begun))


def _asked(given: Asked) -> Asked:
    plain(given.place or "")
    return replace(given, request=json_object(given.request))


def outcome(given: Outcome) -> Outcome:
    match given:
        case Completed(result):
            return Completed(json_object(result))
        case Failed(error, message):
            error = replace(error, message=plain(error.message), data=json(error.data))
            return Failed(error, None if message is None else plain(message))
        case Cancelled():
            return given
        case _ as never:
            assert_never(never)
