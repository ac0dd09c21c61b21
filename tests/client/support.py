"""A server with tools, and SDK clients of it that have `perdure.client.Tasks`; and a person who answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, ErrorData, TextContent

from perdure.client import HTTP, Tasks

Answers = dict[str, ElicitResult | ErrorData]
YES = ElicitResult(action="accept", content={"ok": True})
ADA = ElicitResult(action="accept", content={"name": "Ada"})


class Person:
    """Answers elicitations by their texts. `asked` are those that were put; `opened` waits for one of them."""

    def __init__(self, **answers: ElicitResult | ErrorData) -> None:
        self.answers: Answers = {"All right?": YES, "Who?": ADA, **answers}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.opened = asyncio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        self.opened.set()
        await self.gate.wait()
        return self.answers[params.message]


@asynccontextmanager
async def connected(
    url: str, tasks: Tasks, person: Callable[..., Any] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    # Without TLS, which nobody speaks here and whose certificates take longer to load than most tests.
    async with Client(HTTP(url, verify=False), extensions=[tasks], elicitation_callback=person, **options) as client:
        yield client


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
