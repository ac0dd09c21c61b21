"""Fixtures that ask before they answer: multi-round-trip requests, on a server without tasks.

This file owns the questions (forms, sampling, roots), the tools that put them, and one prompt that does. Each is called
anew for every round: what it was told arrives as `input_responses`, what it wanted to remember as `request_state`.
"""

import json
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)


def ask_form(message: str, **properties: str) -> ElicitRequest:
    """A form whose fields are all required; `properties` maps a field to its JSON type."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def ask_model(text: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def accepted(ctx: Context, key: str) -> dict[str, Any] | None:
    """What the user filled into the form `key`; None if the answer is missing or was not given."""
    answer = (ctx.input_responses or {}).get(key)
    return answer.content if isinstance(answer, ElicitResult) and answer.action == "accept" else None


async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Ask for a name, then greet."""
    form = accepted(ctx, "user_name")
    if form is None:
        return InputRequiredResult(input_requests={"user_name": ask_form("What is your name?", name="string")})
    return f"Hello, {form.get('name')}!"


async def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
    """Ask the client's model, then repeat what it said."""
    answer = (ctx.input_responses or {}).get("capital_question")
    if not isinstance(answer, CreateMessageResult):
        return InputRequiredResult(input_requests={"capital_question": ask_model("What is the capital of France?")})
    said = answer.content
    return f"The model said: {said.text if isinstance(said, TextContent) else said}"


async def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
    """Ask for the client's roots, then count them."""
    answer = (ctx.input_responses or {}).get("client_roots")
    if not isinstance(answer, ListRootsResult):
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return f"Roots: {', '.join(str(root.uri) for root in answer.roots)}"


async def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
    """Hand out state with a question and want both back."""
    if accepted(ctx, "confirm") is None or ctx.request_state != "asked-once":
        confirm = ask_form("Please confirm", ok="boolean")
        return InputRequiredResult(input_requests={"confirm": confirm}, request_state="asked-once")
    return "state-ok"


async def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
    """Ask the user, the model and the client in one result."""
    requests: dict[str, InputRequest] = {
        "user_name": ask_form("What is your name?", name="string"),
        "greeting": ask_model("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    if requests.keys() - (ctx.input_responses or {}).keys():
        return InputRequiredResult(input_requests=requests, request_state="asked-three")
    return "All three answers are here."


async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
    """Ask twice; the state carries the first answer to the last round."""
    known: dict[str, Any] = json.loads(ctx.request_state or "{}")
    first, second = accepted(ctx, "step1"), accepted(ctx, "step2")
    if "name" in known and second is not None:
        return f"{known['name']} likes {second.get('color')}."
    if "round" in known and first is not None:
        step2 = ask_form("Step 2: What is your favorite color?", color="string")
        state = json.dumps({"name": first.get("name")})
        return InputRequiredResult(input_requests={"step2": step2}, request_state=state)
    step1 = ask_form("Step 1: What is your name?", name="string")
    return InputRequiredResult(input_requests={"step1": step1}, request_state=json.dumps({"round": 1}))


async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
    """Hand out state. The SDK seals it and refuses a forged copy before this function is called."""
    if ctx.request_state is None:
        confirm = ask_form("Please confirm", ok="boolean")
        return InputRequiredResult(input_requests={"confirm": confirm}, request_state="sealed")
    return "state-ok"


async def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
    """Ask only in ways that the client said it can answer."""
    capabilities = ctx.client_capabilities
    requests: dict[str, InputRequest] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["greeting"] = ask_model("Generate a greeting")
    if capabilities is not None and capabilities.elicitation is not None:
        requests["user_name"] = ask_form("What is your name?", name="string")
    return InputRequiredResult(input_requests=requests) if requests else "Nothing that this client could be asked."


async def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
    """A prompt that asks before it answers: the round trips are not for tools alone."""
    form = accepted(ctx, "user_context")
    if form is None:
        question = ask_form("What context should the prompt use?", context="string")
        return InputRequiredResult(input_requests={"user_context": question})
    return f"Mind this context: {form.get('context')}"


async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Report progress, then ask: the question is the result, never a request on the stream."""
    await ctx.report_progress(0, total=1)
    if accepted(ctx, "user_name") is None:
        return InputRequiredResult(input_requests={"user_name": ask_form("What is your name?", name="string")})
    return "Answered."


ASKING_TOOLS: tuple[Callable[..., Any], ...] = (
    test_streaming_elicitation,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_tampered_state,
    test_input_required_result_capabilities,
)
