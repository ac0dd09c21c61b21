"""What tasks are about: shown only to who asks for it, and has the keys where it is sealed.

Tokens of work elsewhere are no content. Who has one may say how that work ended, so they are left out even here.
"""

from __future__ import annotations

from perdure.domain.journal import Entry, Verb
from perdure.domain.model import JSON, InputRequest
from perdure.domain.timeline import Inspection

from .plain import Plain

__all__ = ["contents"]


def contents(found: Inspection) -> Plain:
    """Everything that was ordered, recorded, asked, answered and returned."""
    task, error = found.task, found.task.error
    return {
        "params": found.operation.params,
        "message": task.message,
        "result": task.result,
        "error": None if error is None else {"code": error.code, "message": error.message, "data": error.data},
        "values": {place: _value(entry) for place, entry in found.journal.entries.items()},
        "questions": {key: _question(question) for key, question in found.journal.questions.items()},
    }


def _value(entry: Entry) -> JSON:
    if entry.verb is not Verb.EXTERNAL:
        return entry.value
    return entry.value.get("value") if isinstance(entry.value, dict) else None


def _question(question: InputRequest) -> Plain:
    return {"request": question.request, "response": question.response}
