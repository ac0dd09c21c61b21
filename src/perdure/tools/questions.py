"""What a tool may ask, and what comes back: input requests as values that render themselves and read their answers.

A question's text is part of its identity: when the tool is run again, the same key must ask the same question (contract
4), so put nothing into it that changes from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from mcp.server.elicitation import render_elicitation_schema
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from perdure.domain.model import JSON, JSONObject

from .secrets import check_schema, check_url

__all__ = ["Answer", "Elicit", "ElicitUrl", "ListRoots", "Question", "Sample"]

ModelT = TypeVar("ModelT", bound=BaseModel)
ModelT_co = TypeVar("ModelT_co", bound=BaseModel, covariant=True)


class Question(Protocol):
    """Something that a task can ask its client."""

    def request(self) -> JSONObject:
        """The input request as it goes over the wire. The same each time it is called."""
        ...

    def read(self, response: JSON) -> Any:
        """The answer that a response holds, which was checked against the request when it arrived."""
        ...

    def unanswered(self) -> Any:
        """What the task goes on with if nobody answered in time."""
        ...


@dataclass(frozen=True, slots=True)
class Answer(Generic[ModelT_co]):
    """What a person said to an elicitation.

    `action`: "accept", "decline" (said no), "cancel" (closed it without an answer), or "timeout" (nobody said anything
    within the question's `timeout`). `data`: the form's content as an instance of the question's model; None unless it
    was accepted, and for a URL.
    """

    action: Literal["accept", "decline", "cancel", "timeout"]
    data: ModelT_co | None = None

    @property
    def accepted(self) -> bool:
        """Whether the action is "accept"."""
        return self.action == "accept"

    @property
    def timed_out(self) -> bool:
        """Whether the action is "timeout"."""
        return self.action == "timeout"


@dataclass(frozen=True, slots=True)
class Elicit(Generic[ModelT]):
    """A form for a person: a message, and a flat pydantic model whose fields are the form's. Read as `Answer`.

    Raises, when asked:
        TypeError: it is no model, or a field of it is nothing that a form can hold (the specification's primitive
            schemas).
        ConfigurationError: a field asks for a secret.
    """

    message: str
    schema: type[ModelT]

    def request(self) -> JSONObject:
        """As `Question.request`."""
        if not _is_model(self.schema):
            raise TypeError(f"The schema of an elicitation is a pydantic model class, not {self.schema!r}")
        check_schema(self.schema.model_json_schema())  # first, since the SDK would only say that it is no form
        schema = render_elicitation_schema(self.schema)
        return _dump(ElicitRequest(params=ElicitRequestFormParams(message=self.message, requested_schema=schema)))

    def read(self, response: JSON) -> Answer[ModelT]:
        """As `Question.read`."""
        result = ElicitResult.model_validate(response, by_name=False)
        data = self.schema.model_validate(result.content or {}) if result.action == "accept" else None
        return Answer(result.action, data)

    def unanswered(self) -> Answer[ModelT]:
        """As `Question.unanswered`."""
        return Answer("timeout")


@dataclass(frozen=True, slots=True)
class ElicitUrl:
    """A page that a person is asked to visit. Accepting means that they agreed to go there, not that they are done.

    Raises, when asked:
        ConfigurationError: the page is not on https (http only on this machine), or its address has credentials.
    """

    message: str
    url: str

    def request(self) -> JSONObject:
        """As `Question.request`."""
        check_url(self.url)
        return _dump(ElicitRequest(params=ElicitRequestURLParams(message=self.message, url=self.url)))

    def read(self, response: JSON) -> Answer[BaseModel]:
        """As `Question.read`."""
        return Answer(ElicitResult.model_validate(response, by_name=False).action)

    def unanswered(self) -> Answer[BaseModel]:
        """As `Question.unanswered`."""
        return Answer("timeout")


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion by the client's model. Read as `mcp_types.CreateMessageResult`, `…WithTools` if tools are offered.

    `messages`: the conversation; a plain string is a user's message. `max_tokens`: the most that the model may write.
    `options`: further fields of `mcp_types.CreateMessageRequestParams`, by their Python names.
    """

    messages: Sequence[SamplingMessage | str]
    max_tokens: int = 1024
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def request(self) -> JSONObject:
        """As `Question.request`."""
        messages = [_message(message) for message in self.messages]
        params = CreateMessageRequestParams(messages=messages, max_tokens=self.max_tokens, **self.options)
        return _dump(CreateMessageRequest(params=params))

    def read(self, response: JSON) -> CreateMessageResult | CreateMessageResultWithTools:
        """As `Question.read`."""
        shape = CreateMessageResultWithTools if self.options.get("tools") else CreateMessageResult
        return shape.model_validate(response, by_name=False)

    def unanswered(self) -> None:
        """As `Question.unanswered`."""


@dataclass(frozen=True, slots=True)
class ListRoots:
    """The client's roots. Read as `mcp_types.ListRootsResult`."""

    def request(self) -> JSONObject:
        """As `Question.request`."""
        return _dump(ListRootsRequest())

    def read(self, response: JSON) -> ListRootsResult:
        """As `Question.read`."""
        return ListRootsResult.model_validate(response, by_name=False)

    def unanswered(self) -> None:
        """As `Question.unanswered`."""


def _is_model(schema: object) -> bool:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


def _message(message: SamplingMessage | str) -> SamplingMessage:
    if isinstance(message, SamplingMessage):
        return message
    return SamplingMessage(role="user", content=TextContent(type="text", text=message))


def _dump(request: BaseModel) -> JSONObject:
    return cast("JSONObject", request.model_dump(mode="json", by_alias=True, exclude_none=True))
