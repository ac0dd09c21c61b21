"""What a form must not ask for, and which pages a person may be sent to."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from perdure import ConfigurationError, Elicit, ElicitUrl, TaskContext, Tasks
from perdure.store.memory import MemoryStore
from perdure.tools.secrets import check_schema, check_url
from tests.tools.test_steps import only
from tests.wire.support import stage


class Login(BaseModel):
    user: str
    password: str


class Shape(BaseModel):
    size: int


class Hidden(BaseModel):
    word: str = Field(json_schema_extra={"writeOnly": True})


class Opaque(BaseModel):
    """A model that has no JSON schema."""

    call: Callable[[], None]


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "db_password", "newPassword", "api_key", "apiKey", "API-Key", "access token", "cvv",
     "card_number", "clientSecret", "private_key", "passphrase", "PIN", "otp", "auth_token", "credit_card"],
)  # fmt: skip
def test_a_text_field_with_the_name_of_a_secret_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"asks for '{name}'.*elicit_url"):
        check_schema({"type": "object", "properties": {name: {"type": "string"}}})


@pytest.mark.parametrize(
    "field",
    [{"type": "string", "format": "password"}, {"type": "string", "writeOnly": True}],
)
def test_a_field_that_says_itself_that_it_is_a_secret_is_refused(field: Any) -> None:
    with pytest.raises(ConfigurationError, match="asks for 'word'"):
        check_schema({"type": "object", "properties": {"word": field}})


@pytest.mark.parametrize(
    ("name", "type"),
    [("password", "boolean"), ("password_hint", "string"), ("secretary", "string"), ("keyboard", "string"),
     ("token_count", "integer"), ("compass", "string"), ("opinion", "string"), ("pinned", "string")],
)  # fmt: skip
def test_what_only_sounds_like_one_is_none(name: str, type: str) -> None:
    check_schema({"type": "object", "properties": {name: {"type": type}}})


@pytest.mark.parametrize("url", ["https://example.org/pay?id=1", "http://localhost:8000/", "http://127.0.0.1/x",
                                 "http://[::1]:1/"])  # fmt: skip
def test_a_page_may_be_on_https_or_on_this_machine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "http://127.0.0.1.example.org", "javascript:alert(1)", "ftp://example.org", "https://",
     "//example.org", "example.org", "", "https://[::1", "file:///etc/passwd", "https:example.org"],
)  # fmt: skip
def test_no_other_page_may_be_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="https"):
        check_url(url)


@pytest.mark.parametrize("url", ["https://ann:word@example.org", "https://ann@example.org"])
def test_no_credentials_may_be_in_an_address(url: str) -> None:
    with pytest.raises(ConfigurationError, match="user name") as refused:
        check_url(url)
    assert "word" not in str(refused.value).replace("password", "")


# -- when it is asked --------------------------------------------------------------------------------------------------


def dynamic() -> type[BaseModel]:
    return Login


async def form(task: TaskContext) -> None:
    await task.elicit("login", "Log in", dynamic())


async def page(task: TaskContext) -> None:
    await task.elicit_url("pay", "Pay", "http://example.org")


async def several(task: TaskContext) -> None:
    await task.ask({"a": Elicit("How large?", Shape), "b": ElicitUrl("Pay", "http://example.org")})


async def swallowing(task: TaskContext) -> str:
    try:
        await task.elicit("login", "Log in", dynamic())
    except ConfigurationError:
        return "anyway"
    return "asked"


@pytest.mark.parametrize(("tool", "words"), [(form, "'password'"), (page, "https"), (several, "https"),
                                             (swallowing, "'password'")])  # fmt: skip
async def test_a_tool_that_asks_for_one_fails_and_its_author_reads_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tool: Callable[..., Any], words: str
) -> None:
    async with stage(tmp_path, only(tool)) as up:
        task = await up.client.finish("tool")
    assert task["status"] == "failed"
    assert any(words in record.getMessage() for record in caplog.records)


# -- when it is declared -----------------------------------------------------------------------------------------------


async def asks(task: TaskContext) -> None:
    await task.elicit("login", "Log in", Login)


async def asks_by_name(task: TaskContext) -> None:
    await task.elicit(key="login", message="Log in", schema=Login)


class Optional(BaseModel):
    password: str | None = None


class Hint(BaseModel):
    word: SecretStr | None = None


async def asks_maybe(task: TaskContext) -> None:
    await task.elicit("optional", "Log in", Optional)


async def asks_maybe_too(task: TaskContext) -> None:
    await task.elicit("hint", "Log in", Hint)


async def asks_several(task: TaskContext) -> None:
    await task.ask({"shape": Elicit("How large?", Shape), "login": Elicit("Log in", Login)})


async def asks_of_a_module(task: TaskContext) -> None:
    await task.elicit("login", "Log in", sys.modules[__name__].Login)
    await task.elicit("hidden", "Word?", here.Hidden)


def asks_inside(task: Any) -> None:
    def inner() -> None:
        task.elicit("login", "Log in", schema=Login)

    inner()


here = sys.modules[__name__]
ASKING = [asks, asks_by_name, asks_several, asks_of_a_module, asks_maybe, asks_maybe_too]


@pytest.mark.parametrize(
    "tool",
    [
        asks,
        asks_by_name,
        asks_several,
        asks_of_a_module,
        asks_maybe,
        asks_maybe_too,
    ],
)
def test_a_form_in_the_source_of_a_tool_is_refused_when_the_tool_is_declared(tool: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{tool.__name__}, (Login|Hidden|Optional|Hint): The form asks for"):
        Tasks(MemoryStore()).tool()(tool)


async def harmless(task: TaskContext) -> None:
    await task.elicit("shape", "How large?", Shape)
    await task.elicit("login", "Log in", dynamic())
    await task.elicit("unknown", "?", Unknown)  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownArgumentType]
    await task.elicit("opaque", "?", Opaque)
    await task.elicit("literal", "?", Literal["a"])  # pyright: ignore[reportArgumentType]
    print("Elicit", Elicit)


def test_what_the_source_does_not_tell_is_left_for_when_it_is_asked() -> None:
    made: dict[str, Any] = {"TaskContext": TaskContext, "Login": Login}
    exec("async def made(task: TaskContext) -> None:\n    await task.elicit('l', 'Log in', Login)", made)
    for tool in (harmless, made["made"]):
        Tasks(MemoryStore()).tool()(tool)


def test_a_tool_that_uses_what_is_defined_after_it_is_declared_all_the_same() -> None:
    tasks = Tasks(MemoryStore())

    @tasks.tool()
    async def first(task: TaskContext) -> str:
        return await task.step("second", second)

    def second() -> str:
        return "second"

    @tasks.tool("cached")
    @functools.wraps(first)
    async def wrapped(task: TaskContext) -> str:
        return await first(task)

    assert set(tasks.assembly.catalog.tools) == {"first", "cached"}


def test_models_of_a_tool_within_a_function_are_looked_at_too() -> None:
    class Mine(BaseModel):
        model_config = ConfigDict(title="Mine")
        token: SecretStr

    async def tool(task: TaskContext) -> None:
        await task.elicit("mine", "?", Mine)

    with pytest.raises(ConfigurationError, match="tool, Mine"):
        Tasks(MemoryStore()).tool()(tool)
