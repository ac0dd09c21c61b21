"""The server that is fuzzed: `perdure serve fuzz.app:mcp`. It believes made-up tokens, so it is nobody's example."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl, BaseModel, Field

from perdure import Elicit, ElicitUrl, Handle, ListRoots, Sample, TaskContext, Tasks

from .people import PEOPLE

AUTH = AuthSettings(
    issuer_url=AnyHttpUrl("https://login.example.com"),
    resource_server_url=AnyHttpUrl("https://tasks.example.com/mcp"),
    validate_token_resource=False,
)
PATIENCE = "50ms"
"""How long a call waits for a tool that nobody runs."""


class Tokens(TokenVerifier):
    """Looks them up in the list of people."""

    async def verify_token(self, token: str) -> AccessToken | None:
        for person in PEOPLE:
            if token == person.token:
                claims = {"org": person.tenant}
                return AccessToken(token=token, client_id="fuzz", scopes=[], subject=person.name, claims=claims)
        return None


class Plain(BaseModel):
    ok: bool


class Odd(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=5)]
    age: Annotated[int, Field(ge=0, le=150)]
    weight: Annotated[float, Field(gt=0)] = 1.0
    size: Literal["small", "large"] = "small"
    note: str | None = None


class Dated(BaseModel):
    day: datetime.date
    at: datetime.datetime
    where: AnyHttpUrl
    code: Annotated[str, Field(pattern="^[a-z]{2,4}$")]


def declare(tasks: Tasks) -> None:
    """Give `tasks` the tools."""
    for function in (greet, recite, fail, ask, ask_many, ask_dated, hand_over, rest):
        tasks.tool(poll_interval="1s")(function)
    tasks.tool(mode="task", name="must")(greet)


async def greet(label: str) -> str:
    return f"Hello, {label}!"


async def recite(label: str, words: int) -> dict[str, Any]:
    """Return more than a page of the file takes."""
    return {"words": [f"{label} {number}" for number in range(min(words, 10_000))]}


async def fail(label: str) -> str:
    raise MCPError(-31999, f"No, {label}!", {"label": label})


async def ask(label: str, task: TaskContext) -> str:
    await task.report(f"about to ask {label}")
    answer = await task.elicit("plain", f"{label}?", Plain)
    return f"{label}: {answer.action} {answer.data}"


async def ask_many(label: str, task: TaskContext) -> str:
    answers = await task.ask(
        {
            "odd": Elicit(f"{label}?", Odd),
            "url": ElicitUrl(f"{label}?", "https://example.com/"),
            "sampling": Sample([f"{label}?"]),
            "roots": ListRoots(),
        }
    )
    return f"{label}: {answers}"


async def ask_dated(label: str, task: TaskContext) -> str:
    answer = await task.elicit("dated", f"{label}?", Dated)
    return f"{label}: {answer.action} {answer.data}"


async def hand_over(label: str, task: TaskContext, twice: bool = False) -> str:
    """Wait for other systems, which say what they like."""

    def start(_: Handle) -> None:
        """Nobody has to be told: tokens are made up (`people`)."""

    value = await task.external("work", start)
    if twice:
        value = [value, await task.external("more work", start)]
    return f"{label}: {value}"


async def rest(label: str, task: TaskContext) -> str:
    await task.step("lie down", lambda: label)
    await task.sleep("9d")
    return label


tasks = Tasks(
    "sqlite:///fuzz.db",
    lease="1h",
    grace="1ms",
    inline_timeout=PATIENCE,
    tenant_claim="org",
    owner_tasks=10_000,  # one makes nearly all the calls
    tenant_backlog=None,
    legacy=True,
)
mcp = tasks.server("fuzz", version="1.0", auth=AUTH, token_verifier=Tokens())
tasks.callbacks(mcp)
declare(tasks)


@mcp.tool()
def plain(value: Any = None) -> str:
    """Never be a task."""
    return type(value).__name__
