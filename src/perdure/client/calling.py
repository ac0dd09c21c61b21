"""A `tools/call` to its answer, whatever that is: a result, or a task.

What `Client.call_tool` does is done here too (rounds of questions before the answer, the listing read again if the
server does not agree with the headers), since it hands over no handle; and what is said in the rounds goes on record,
so that a call that is made again after a crash asks nothing again.

What it does after that is not done here: it holds a result against the tool's output schema, and lists the tools for
that if nobody has. The tool has run by then, and a listing that is refused, or a structure that does not fit, would
cost a result that is there.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import anyio
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponses,
    RequestParamsMeta,
    Result,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter
from pydantic.alias_generators import to_camel

from perdure.domain.names import IDEMPOTENCY_KEY

from . import faults, questions
from .errors import AnswerTooLarge, Malformed
from .failpoints import reach
from .journal import Journal, Record
from .link import alone
from .listing import listed
from .once import answer_once
from .snapshot import NotATask, Snapshot

__all__ = ["Call", "Created", "Unheard", "created"]

logger = logging.getLogger(__name__)

_ROUND: Final = 300.0
"""Seconds that one round of a call has, for a client that sets none."""
_PAUSE: Final = 0.25
"""Seconds before a call is made again that the server answered with nothing but its state."""


class Created(Result):
    """The answer that is a task. What it says is read by `Snapshot`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    result_type: Literal["task"]


def _kind(answer: object) -> str:
    said = cast("dict[str, object]", answer).get("resultType") if isinstance(answer, dict) else None
    return "task" if said == "task" else "core"


_Answer: TypeAlias = CallToolResult | InputRequiredResult | Created
_ANSWER: Final[TypeAdapter[_Answer]] = TypeAdapter(
    Annotated[
        Annotated[CallToolResult | InputRequiredResult, Tag("core")] | Annotated[Created, Tag("task")],
        Discriminator(_kind),
    ]
)


def created(answer: Created) -> Snapshot:
    """The task that a call was answered with. Of one that can't be read otherwise, its id: there is a task.

    Raises:
        Malformed: it has no id.
    """
    said = answer.model_extra or {}
    try:
        return Snapshot.parse(said)
    except NotATask as error:
        task_id: object = said.get("taskId")
        if isinstance(task_id, str) and task_id:
            logger.warning("the server answered with the task %s, which can't be read: %s", task_id, error)
            return Snapshot(task_id, "working")
        raise Malformed("", f"The server answered with a task that is none: {error}") from error


class Unheard(Exception):
    """The call was sent, and there was no answer. `is_over`: nor will there be one to another, in this session."""

    def __init__(self, *, is_over: bool) -> None:
        self.is_over = is_over
        super().__init__("No answer")


class Call:
    """One call, as it is on record. `meta`: what else goes along.

    Attributes:
        is_asking: the server's last answer were questions, and nothing was sent since: it has not made a task of the
            call, or none that it would not ask the same.
        rounds: how many times it was answered with questions, or with nothing but its state, since `make`.
        spent: the places of the answers that went along since then.
    """

    def __init__(self, client: Client, journal: Journal, record: Record, meta: dict[str, Any]) -> None:
        self._client = client
        self._journal = journal
        self._record = record
        self._meta = cast("RequestParamsMeta", {**meta, IDEMPOTENCY_KEY: record.key})
        self._responses: InputResponses | None = None
        self._state: str | None = None
        self.is_asking = False
        self.rounds = 0
        self.spent: set[str] = set()

    async def make(self) -> CallToolResult | Snapshot:
        """Make it, from its beginning. Rounds are answered through the client's callbacks.

        Raises:
            InputDeclined: a callback had no answer.
            MCPError: the server's.
            Unheard: there was none.
            Malformed, ValidationError: it is none that the protocol has.
            Exception: whatever a callback raises.
        """
        self.rounds, self._responses, self._state = 0, None, None
        self.spent.clear()
        return await self.go_on()

    async def go_on(self) -> CallToolResult | Snapshot:
        """Make it from what was sent last, with which the server has not begun. Raises what `make` does."""
        while self.rounds <= self._client.input_required_max_rounds:
            self.is_asking = False
            answer = await self._send(self._responses, self._state)
            if isinstance(answer, CallToolResult):
                return answer
            if isinstance(answer, Created):
                return created(answer)
            self.is_asking = True
            self._responses, self._state = await self._answered(answer), answer.request_state
            self.rounds += 1
        raise Malformed("", "The server asked in too many rounds: see Client(input_required_max_rounds=…)")

    async def _send(self, responses: InputResponses | None, state: str | None) -> _Answer:
        try:
            return await self._try(responses, state)
        except MCPError as error:
            modern = self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
            if error.code != HEADER_MISMATCH or not modern:
                raise
        with suppress(TimeoutError):
            await listed(self._client, self._record.tool)
        return await self._try(responses, state)

    async def _try(self, responses: InputResponses | None, state: str | None) -> _Answer:
        try:
            return await self._request(responses, state)
        except (MCPError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            if faults.is_too_large(error):
                raise AnswerTooLarge("", str(error)) from error
            if faults.may_have_arrived(error):
                raise Unheard(is_over=faults.is_over(error)) from error
            raise

    async def _request(self, responses: InputResponses | None, state: str | None) -> _Answer:
        timeout = self._client.read_timeout_seconds or _ROUND
        arguments = self._record.arguments
        params = CallToolRequestParams(
            name=self._record.tool,
            arguments=None if arguments is None else dict(arguments),
            input_responses=responses,
            request_state=state,
            _meta=self._meta,
        )
        with anyio.fail_after(timeout):
            return await self._client.session.send_request(CallToolRequest(params=params), _ANSWER, timeout)

    async def _answered(self, asked: InputRequiredResult) -> InputResponses | None:
        if not asked.input_requests:
            await anyio.sleep(_PAUSE)
            return None
        found: dict[str, Any] = {}

        async def answer(key: str, request: Any) -> None:
            found[key] = await self._answer(key, request.model_dump(by_alias=True, mode="json"))

        try:
            async with anyio.create_task_group() as group:
                for key, request in asked.input_requests.items():
                    group.start_soon(answer, key, request)
        except BaseExceptionGroup as several:
            raise alone(several) from None
        return found

    async def _answer(self, key: str, request: dict[str, Any]) -> Any:
        """The answer of a round. One that asks the same in the same place gets the same, as after a crash."""
        place = questions.place(self.rounds, questions.digest(key, request))
        session, call = self._client.session, self._record.key
        response = await answer_once(
            self._journal,
            self._record,
            place,
            lambda: questions.ask(session, call, key, request),
            claimed="round claimed",
            answered="round answered",
        )
        self.spent.add(place)
        reach("round recorded")
        return response
