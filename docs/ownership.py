"""Who gets what: every way to ask for a task, by everybody who might, whatever has become of the task.

This is the one table. `make_ownership.py` prints it into `howto/ownership.md`, and `tests/wire/test_ownership.py` asks
servers on both databases each of its cells. A cell that is missing, or there twice, is an error there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ANSWERS", "ROWS", "Answer", "Ask", "Caller", "Row", "State"]


class Ask(StrEnum):
    """The ways to ask."""

    GET = "`tasks/get`"
    UPDATE = "`tasks/update`"
    CANCEL = "`tasks/cancel`"
    LISTEN = "`subscriptions/listen`"
    CALLBACK = "the HTTP callback"
    SHOW = "`perdure tasks show`"


class Caller(StrEnum):
    """Those who might. The handle of external work is known to whoever it was given to, and to them alone."""

    OWNER = "its owner"
    NEIGHBOUR = "another user of the tenant"
    ELSEWHERE = "the same user in another tenant"
    OTHER_ISSUER = "the same name at another issuer"
    NO_TOKEN = "nobody: no token"  # noqa: S105 - a name for people
    LATE = "nobody: an expired token"
    UNDECLARED = "its owner, by a client that did not declare the extension"


class State(StrEnum):
    """What has become of the task."""

    LIVE = "live"
    OVER = "over"
    EXPIRED = "expired"
    PURGED = "purged"
    NEVER = "never was"
    MALFORMED = "no id"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered.

    `http`: the status; None where there is no HTTP. `code` and `message`: of the error, if it is one; of a callback the
    message alone. `says`: in the words of the documentation, what comes with it.
    """

    name: str
    http: int | None
    says: str
    code: int | None = None
    message: str | None = None


TASK: Final = Answer("task", 200, "the task as it is, its result included")
DONE: Final = Answer("done", 200, "the empty acknowledgement; it takes effect if the task is not over")
STREAM: Final = Answer("stream", 200, "a stream that accepts the id, shows the task, and ends once it is over")
NOTHING: Final = Answer("nothing", 200, "a stream that accepts no id, and ends at once")
UNKNOWN: Final = Answer("unknown", 400, "", -32602, "Task not found")
GONE: Final = Answer("expired", 400, "", -32602, "Task has expired")
MALFORMED: Final = Answer("malformed", 400, "", -32602, "Malformed task id")
UNDECLARED: Final = Answer(
    "undeclared",
    400,
    "with `data.requiredCapabilities`",
    -32021,
    "Missing required client capability: io.modelcontextprotocol/tasks",
)
REFUSED: Final = Answer("refused", 401, "by the SDK, with `WWW-Authenticate`; not JSON-RPC", None, "invalid_token")
SAID: Final = Answer("said", 204, "it is passed on to the tool")
TOO_LATE: Final = Answer("too late", 409, "", None, "The work was settled before, or its task is over")
NO_HANDLE: Final = Answer("no handle", 401, "the same for every handle that names nothing", None, "Unknown handle")
SHOWN: Final = Answer("shown", None, "how far it is; exit code 0")
LOOK: Final = "perdure tasks ls shows which there are"
NOT_THERE: Final = Answer("not there", None, "one line; exit code 1", None, f"There is no task …: {LOOK}")
NOT_AN_ID: Final = Answer("not an id", None, "one line; exit code 1", None, f"… is no task id: {LOOK}")

ANSWERS: Final = (
    TASK, DONE, STREAM, NOTHING, UNKNOWN, GONE, MALFORMED, UNDECLARED, REFUSED, SAID, TOO_LATE, NO_HANDLE, SHOWN,
    NOT_THERE, NOT_AN_ID,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What those callers get who ask in one of those ways. `who`: what they are called, if that is all of them."""

    asks: tuple[Ask, ...]
    callers: tuple[Caller, ...]
    answers: Mapping[State, Answer]
    who: str = ""


_STRANGERS: Final = (Caller.NEIGHBOUR, Caller.ELSEWHERE, Caller.OTHER_ISSUER)
_NOBODY: Final = (Caller.NO_TOKEN, Caller.LATE)
_UNDECLARED: Final = (Caller.UNDECLARED,)
_CHANGING: Final = (Ask.UPDATE, Ask.CANCEL)


def _always(answer: Answer, **others: Answer) -> Mapping[State, Answer]:
    """That one in each state but those that are named."""
    return {state: others.get(state.name, answer) for state in State}


ROWS: Final = (
    Row((Ask.GET,), (Caller.OWNER,), _always(UNKNOWN, LIVE=TASK, OVER=TASK, EXPIRED=GONE, MALFORMED=MALFORMED)),
    Row(_CHANGING, (Caller.OWNER,), _always(UNKNOWN, LIVE=DONE, OVER=DONE, EXPIRED=GONE, MALFORMED=MALFORMED)),
    Row((Ask.GET, *_CHANGING), _STRANGERS, _always(UNKNOWN, MALFORMED=MALFORMED)),
    Row((Ask.LISTEN,), (Caller.OWNER,), _always(NOTHING, LIVE=STREAM, OVER=STREAM)),
    Row((Ask.LISTEN,), _STRANGERS, _always(NOTHING)),
    Row((Ask.GET, *_CHANGING, Ask.LISTEN), _UNDECLARED, _always(UNDECLARED)),
    Row((Ask.GET, *_CHANGING, Ask.LISTEN), _NOBODY, _always(REFUSED)),
    Row(
        (Ask.CALLBACK,),
        tuple(Caller),
        _always(NO_HANDLE, LIVE=SAID, OVER=TOO_LATE),
        who="whoever bears its handle, and nobody else: no token counts here",
    ),
    Row(
        (Ask.SHOW,),
        tuple(Caller),
        _always(NOT_THERE, LIVE=SHOWN, OVER=SHOWN, MALFORMED=NOT_AN_ID),
        who="whoever may read the store: the operator",
    ),
)
