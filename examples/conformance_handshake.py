"""Fixtures of the handshake era (2025-11-25) for the conformance server: what later revisions have no more.

This file owns the tools that ask their client over the connection, those that log, and the one that closes its stream;
the answers to `logging/setLevel` and to resource subscriptions; and the store of events that lets a client come back to
a stream. Like the core fixtures it knows nothing of tasks.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage, SamplingMessage, TextContent
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

RETRY_AFTER_MS = 100
"""How long a client whose stream was closed waits before it comes back."""
_PAUSE = 0.2
"""Seconds in which a client comes back."""

# Tools ----------------------------------------------------------------------------------------------------------------


async def test_tool_with_logging(ctx: Context) -> str:
    """Log three lines, then answer."""
    for line in ("beginning", "half done", "done"):
        await ctx.info(line)  # pyright: ignore[reportDeprecated] - what is tested is that it works where it did
        await anyio.sleep(0.05)
    return "Logged three lines."


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    # On the stream of this very call: the client may not have opened the other one yet.
    said = await ctx.session.create_message(  # pyright: ignore[reportDeprecated] - as above
        [message], max_tokens=100, related_request_id=ctx.request_id
    )
    return f"The model said: {said.content.text if isinstance(said.content, TextContent) else said.content.type}"


class Response(BaseModel):
    response: str = Field(description="What you have to say")


class Defaults(BaseModel):
    """One field of each primitive type, each with the default that the scenario looks for."""

    name: str = Field(default="John Doe")
    age: int = Field(default=30)
    score: float = Field(default=95.5)
    status: Literal["active", "inactive", "pending"] = Field(default="active")
    verified: bool = Field(default=True)


def _titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in titles.items()]


def _one_of(**schema: Any) -> Any:
    return Field(json_schema_extra=schema)


class Choices(BaseModel):
    """One field for each way in which a schema can list what there is to choose from."""

    untitledSingle: str = _one_of(enum=["option1", "option2", "option3"])  # noqa: N815 - the suite's names
    titledSingle: str = _one_of(oneOf=_titled(value1="First", value2="Second", value3="Third"))  # noqa: N815
    legacyEnum: str = _one_of(enum=["opt1", "opt2", "opt3"], enumNames=["One", "Two", "Three"])  # noqa: N815
    untitledMulti: list[str] = _one_of(items={"type": "string", "enum": ["option1", "option2"]})  # noqa: N815
    titledMulti: list[str] = _one_of(items={"anyOf": _titled(value1="First", value2="Second")})  # noqa: N815


async def _asked(ctx: Context, message: str, schema: type[BaseModel]) -> str:
    result = await ctx.elicit(message, schema)
    content = result.data.model_dump_json() if result.action == "accept" else "{}"
    return f"action={result.action}, content={content}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user something."""
    return await _asked(ctx, message, Response)


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form that is filled in."""
    return await _asked(ctx, "Who are you?", Defaults)


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user to choose."""
    return await _asked(ctx, "Which ones?", Choices)


async def test_reconnection(ctx: Context) -> str:
    """Close the stream on which the answer is to come, and answer."""
    await ctx.close_sse_stream()
    await anyio.sleep(_PAUSE)
    return "The client came back."


def watched() -> str:
    """A text that clients may subscribe to. It never changes."""
    return "Watched."


# Around the tools -----------------------------------------------------------------------------------------------------


class Memory(EventStore):
    """Events of all streams, for as long as the server runs."""

    def __init__(self) -> None:
        self._events: dict[str, tuple[str, JSONRPCMessage | None]] = {}
        self._numbers = count(1)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        event_id = str(next(self._numbers))
        self._events[event_id] = (stream_id, message)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if last_event_id not in self._events:
            return None
        stream_id, _ = self._events[last_event_id]
        for event_id, (of_stream, message) in tuple(self._events.items()):
            if of_stream == stream_id and int(event_id) > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream_id


async def acknowledge(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware that takes what `MCPServer` has no handler for, and does nothing with it."""
    takes = ctx.method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
    return {} if takes and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else await call_next(ctx)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    test_tool_with_logging,
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_reconnection,
)


def add_handshake(mcp: MCPServer[Any]) -> None:
    """Put the tools and the resource on `mcp`, after what is there."""
    for function in _FUNCTIONS:
        mcp.add_tool(function, structured_output=False)
    mcp.resource("test://watched-resource", mime_type="text/plain")(watched)
