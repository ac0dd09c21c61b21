"""What must hold of every exchange, whatever was sent. Pure: of what went out, what came back and what changed.

A rule that is broken is raised as `Found`, which is all that the search for a smaller case looks at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from mcp_types import INTERNAL_ERROR

from tests.wire import checker
from tests.wire.envelopes import member

from .http import Reply
from .people import PEOPLE, Person

__all__ = ["Found", "accepted", "judge_changes", "judge_contract", "judge_replies"]

JSON = Any

_INTERNALS: Final = re.compile(
    rb"Traceback|File \\?\"|site-packages|/(?:tmp|home|usr|work|root|var)/|\bsqlite|asyncpg|<class |object at 0x|"
    rb"\b(?:perdure|mcp|pydantic|pydantic_core|starlette|uvicorn)\.(?!dev\b)\w+|\b(?!JSONRPCError\b)[A-Z]\w*(?:Error|Exception)\b"
)
"""What only the server's own code has in it: traces, paths, modules, names of classes."""


_MEANT: Final = frozenset({"The call was cancelled"})
"""What an internal error says that is none: how a call ended whose result is asked for."""


class Found(Exception):
    """A rule that does not hold. `rule` is its name; `detail` what was seen."""

    def __init__(self, rule: str, detail: object) -> None:
        self.rule, self.detail = rule, str(detail)
        super().__init__(f"{rule}: {self.detail}")


def accepted(reply: Reply) -> bool:
    """Whether it grants what was asked."""
    if not HTTPStatus.OK <= reply.status < HTTPStatus.BAD_REQUEST or reply.status == HTTPStatus.ACCEPTED:
        return False
    return member(reply.body, "error") is None


def speakers(sent: bytes) -> list[Person]:
    """Whose secrets were sent along."""
    return [person for person in PEOPLE if person.token.encode() in sent or f"~{person.name}-".encode() in sent]


def judge_replies(sent: bytes, came: bytes, replies: Sequence[Reply]) -> None:
    """Nothing of the server's insides comes out, nothing of other people's, and no error that is its own fault.

    Raises:
        Found: it does.
    """
    for person in PEOPLE:
        if person.canary.encode() in came and person.token.encode() not in sent:
            raise Found("nobody reads what is another's", f"{person.canary} in {came!r}")
    inside = _INTERNALS.search(came)
    if inside is not None and inside[0] not in sent:
        raise Found("no internals leave the server", f"{inside[0]!r} in {came!r}")
    for reply in replies:
        if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Found("no request is the server's fault", f"HTTP {reply.status}: {reply.content!r}")
        _judge_error(reply)


def _judge_error(reply: Reply) -> None:
    try:
        body = reply.body
    except ValueError as error:
        raise Found("what is called JSON is JSON", f"{error}: {reply.content!r}") from None
    error = member(body, "error")
    if member(error, "code") == INTERNAL_ERROR and member(error, "message") not in _MEANT:
        raise Found("no request is the server's fault", body)


def judge_contract(request: JSON, reply: Reply) -> None:
    """The answer to a JSON-RPC request is what the contract and the schemas allow.

    Raises:
        Found: it is not.
    """
    if reply.status in _OF_HTTP and member(member(reply.body, "error"), "code") is None:
        return  # an answer of HTTP's own: it does not get as far as JSON-RPC
    if "mcp-session-id" in reply.headers or member(reply.body, "method") is not None:
        # The handshake era has a contract of its own. And a stream that is still open is judged by `listening`.
        return
    if not _is_request(request):
        if reply.status == HTTPStatus.ACCEPTED and reply.content:
            raise Found("the contract holds", f"a notification is answered: {reply.content!r}")
        return
    try:
        checker.check(request, reply.status, reply.body)
    except (checker.Violation, LookupError, TypeError, AttributeError) as violation:
        raise Found("the contract holds", f"{violation!r} in {reply.content!r}") from None


_OF_HTTP: Final = frozenset({400, 401, 403, 404, 405, 406, 411, 413, 415, 421, 431})


def _is_request(request: JSON) -> bool:
    return isinstance(member(request, "method"), str) and "id" in request


_WRITE: Final = (b"tasks/update", b"tasks/cancel", b"tools/call", b"/perdure/external")
"""What has to stand in a request that may change something."""
Rows = Mapping[str, Mapping[object, tuple[Person | None, object]]]
"""Of each table, its rows by key, each with whose it is."""


def judge_changes(sent: bytes, replies: Sequence[Reply], before: Rows, after: Rows) -> None:
    """What was refused has changed nothing, and what was granted only what is the sender's.

    Raises:
        Found: it is otherwise.
    """
    changed = [
        (table, key, before[table].get(key), after[table].get(key))
        for table in before
        for key in before[table].keys() | after[table].keys()
        if before[table].get(key) != after[table].get(key)
    ]
    if not changed:
        return
    # A call runs its tool, and one that has no time left is refused after that. What was cut off can't be heard.
    if replies and not any(map(accepted, replies)) and b"tools/call" not in sent:
        raise Found("a refused request changes nothing", changed[:3])
    if not any(word in sent for word in _WRITE):
        raise Found("a request that asks changes nothing", changed[:3])
    allowed = speakers(sent)
    for row in changed:
        whose = next(each[0] for each in row[2:] if each is not None)
        if whose not in allowed:
            raise Found("nobody changes what is another's", row)
