"""Core-protocol fixtures of the conformance server: what the official suite calls on a server without tasks.

This file owns the tools, prompts, resources and the completion handler that the 2026-07-28 scenarios reach for by
name; those that ask before they answer are in `conformance_questions.py`. It knows nothing of tasks and nothing of
perdure, on purpose: run as a script it serves the same fixtures on a bare `MCPServer`, and that is the baseline which
the server with tasks is held to. Any difference between the two runs is ours.

Names and argument names are what the scenarios look for; what the fixtures say is free.
"""

import argparse
import io
import json
import struct
import wave
import zlib
from collections.abc import Callable
from typing import Annotated, Any

import anyio
from conformance_handshake import RETRY_AFTER_MS, Memory, acknowledge, add_handshake
from conformance_questions import ASKING_TOOLS, test_input_required_result_prompt
from mcp.server.mcpserver import Audio, Context, Image, MCPServer, RequestStateSecurity, UserMessage
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    PromptReference,
    ResourceTemplateReference,
    TextResourceContents,
)
from pydantic import Field

# Content --------------------------------------------------------------------------------------------------------------


def png_pixel() -> bytes:
    """The smallest valid PNG: one grey pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\x00\x80")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def wav_silence() -> bytes:
    """Ten milliseconds of silence as a WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 80)
    return buffer.getvalue()


PIXEL = png_pixel()


def embedded(uri: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type="text/plain", text=text))


def test_simple_text() -> str:
    """Answer with one piece of text."""
    return "Plain text, nothing else."


def test_image_content() -> Image:
    """Answer with an image."""
    return Image(data=PIXEL, format="png")


def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(data=wav_silence(), format="wav")


def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource inside the result."""
    return embedded("test://embedded-resource", "A resource that travels inside a tool result.")


def test_multiple_content_types() -> list[Any]:
    """Answer with text, an image and a resource at once."""
    return [
        "Three kinds of content:",
        Image(data=PIXEL, format="png"),
        embedded("test://mixed", "A resource."),
    ]


def test_error_handling() -> str:
    """Fail in the way a tool means to fail."""
    raise ToolError("This tool always fails.")


# While a call runs ----------------------------------------------------------------------------------------------------


async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times, then answer."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, total=100, message=f"{done} of 100")
        await anyio.sleep(0.05)
    return "Done after three reports."


async def test_logging_tool(ctx: Context) -> str:
    """Log a line. A client that named no log level must not see it."""
    await ctx.info("a line for clients that asked for a log level")  # pyright: ignore[reportDeprecated]
    return "Logged."


async def test_missing_capability(ctx: Context) -> str:
    """Refuse clients that cannot sample, with the protocol's error rather than a tool's."""
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs a client that can sample.", needed)
    return "The client can sample."


async def test_trigger_tool_change(ctx: Context) -> str:
    """Change the list of tools and tell who listens."""
    # The list ends as it began, with no await between, so that every `tools/list` sees the same one.
    ctx.mcp_server.add_tool(test_simple_text, name="test_passing_tool")
    ctx.mcp_server.remove_tool("test_passing_tool")
    await ctx.notify_tools_changed()
    return "The tools changed and changed back."


async def test_trigger_prompt_change(ctx: Context) -> str:
    """Change the list of prompts and tell who listens."""
    ctx.mcp_server.add_prompt(Prompt.from_function(test_simple_prompt, name="test_passing_prompt"))
    ctx.mcp_server.remove_prompt("test_passing_prompt")
    await ctx.notify_prompts_changed()
    return "The prompts changed and changed back."


# Schemas --------------------------------------------------------------------------------------------------------------


def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "nowhere") -> str:
    """Take an argument that clients repeat in a header; without one such tool the suite cannot check the header."""
    return f"region: {region}"


# The scenario looks for `$schema`, `$defs.address.$anchor`, `additionalProperties: false`, an `anyOf` inside `allOf`,
# and the conditional keywords; a schema made from a signature has none of them.
CONTACT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": {"$anchor": "address", "type": "object", "properties": {"city": {"type": "string"}}}},
    "type": "object",
    "properties": {
        "home": {"$ref": "#/$defs/address"},
        "prefers": {"enum": ["letter", "visit"]},
        "stamp": {"type": "boolean"},
        "hour": {"type": "integer"},
    },
    "allOf": [{"anyOf": [{"required": ["stamp"]}, {"required": ["hour"]}]}],
    "if": {"properties": {"prefers": {"const": "letter"}}, "required": ["prefers"]},
    "then": {"required": ["stamp"]},
    "else": {"required": ["hour"]},
    "additionalProperties": False,
}


def json_schema_2020_12_tool() -> str:
    """Carry an input schema with the wider JSON Schema vocabulary through `tools/list`."""
    return "The schema is the point."


# Prompts, resources, completion ---------------------------------------------------------------------------------------


def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "Say something simple."


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt that repeats its arguments."""
    return f"arg1 is '{arg1}' and arg2 is '{arg2}'."


def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - the suite's name
    """A prompt that brings a resource along."""
    return [UserMessage(embedded(resourceUri, "What the prompt is about.")), UserMessage("Read the resource above.")]


def test_prompt_with_image() -> list[UserMessage]:
    """A prompt that brings a picture along."""
    return [UserMessage(Image(data=PIXEL, format="png").to_image_content()), UserMessage("Describe the picture above.")]


def static_text() -> str:
    """A text that never changes."""
    return "The text of the static resource."


def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


def templated(id: str) -> str:
    """A document for any id."""
    return json.dumps({"id": id})


async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion:
    """Complete every argument with the same few words."""
    words = [word for word in ("north", "south", "test-north") if word.startswith(argument.value)]
    return Completion(values=words, total=len(words), has_more=False)


# Assembly -------------------------------------------------------------------------------------------------------------

# The header scenarios call whichever tool is listed first, with `{}` for arguments: it has to accept that.
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_progress,
    test_logging_tool,
    test_missing_capability,
    test_trigger_tool_change,
    test_trigger_prompt_change,
    test_x_mcp_header,
)
_PROMPTS: tuple[Callable[..., Any], ...] = (
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
)


def core_tools() -> list[Tool]:
    """The tools, for `MCPServer(tools=...)`: the constructor lists these before any that are added later."""
    tools = [Tool.from_function(function, structured_output=False) for function in (*_FUNCTIONS, *ASKING_TOOLS)]
    contact = Tool.from_function(json_schema_2020_12_tool)
    # `from_function` only knows the schema of a signature; the model's field is how another one gets in.
    contact.parameters = CONTACT_SCHEMA
    return [*tools, contact]


def add_core(mcp: MCPServer) -> None:
    """Put the prompts, the resources and the completion handler on `mcp`."""
    for function in (*_PROMPTS, test_input_required_result_prompt):
        mcp.add_prompt(Prompt.from_function(function))
    mcp.resource("test://static-text", mime_type="text/plain")(static_text)
    mcp.resource("test://static-binary", mime_type="image/png")(static_binary)
    mcp.resource("test://template/{id}/data", mime_type="application/json")(templated)
    mcp.completion()(complete)


def main() -> None:
    """Serve the fixtures on a bare SDK server: the baseline."""
    parser = argparse.ArgumentParser(description="Serve the core fixtures, without tasks, on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=8000)
    security = RequestStateSecurity(keys=[b"conformance-fixture: not a secret"])
    mcp = MCPServer(
        "conformance-core",
        version="1.0",
        tools=core_tools(),
        middleware=[acknowledge],
        request_state_security=security,
    )
    add_core(mcp)
    add_handshake(mcp)
    port = parser.parse_args().port
    mcp.run("streamable-http", port=port, event_store=Memory(), retry_interval=RETRY_AFTER_MS)


if __name__ == "__main__":
    main()
