"""What a type checker has to find in the verbs. Nothing runs this: `make lint` reads it, wrong uses included."""

import functools
from typing import Any, assert_type

from mcp_types import ListRootsResult
from pydantic import BaseModel

from perdure import Answer, ListRoots, Retry, SyncTaskContext, TaskContext
from perdure.tools.base import Sampled
from tests.wire.tools import Form


class Page(BaseModel):
    number: int


async def fetch(number: int, *, deep: bool = False) -> Page:
    return Page(number=number)


def count(words: str, times: int = 1) -> int:
    return len(words) * times


async def steps(task: TaskContext) -> None:
    assert_type(await task.step("coroutine", fetch, 1), Page)
    assert_type(await task.step("plain", count, "words"), int)
    assert_type(await task.step("plain", count, "words", 2, at_most_once=True, retry=Retry(), timeout="1m"), int)
    assert_type(await task.step("partial", functools.partial(fetch, 1, deep=True)), Page)
    assert_type(await task.step("said", dict, returns=dict[str, int]), dict[str, int])
    assert_type(await task.step("class", Page.model_validate, {"number": 1}), Page)
    await task.step("missing", fetch)  # pyright: ignore[reportCallIssue, reportArgumentType] - the mistake
    await task.step("wrong", count, 5)  # pyright: ignore[reportCallIssue, reportArgumentType] - the mistake


async def elsewhere(task: TaskContext) -> None:
    assert_type(await task.external("render", print, returns=Page, timeout="1 day"), Page)
    assert_type(await task.external("render", print, returns=dict[str, int]), dict[str, int])
    assert_type(await task.external("render", print), Any)
    assert_type(await task.external("render", print, returns=int | None), Any)


async def several(task: TaskContext) -> None:
    one, two = await task.gather(task.step("a", fetch, 1), task.step("b", count, "b"))
    assert_type(one, Page)
    assert_type(two, int)
    assert_type(await task.gather(*[task.step("a", fetch, n) for n in range(9)]), list[Page])
    assert_type(await task.gather(task.sleep("3 days"), task.list_roots()), tuple[None, ListRootsResult])


async def questions(task: TaskContext) -> None:
    assert_type(await task.elicit("form", "?", Form), Answer[Form])
    assert_type(await task.elicit("form", "?", Form, timeout="3 days"), Answer[Form])
    assert_type(await task.sample("poem", ["?"]), Sampled)
    assert_type(await task.sample("poem", ["?"], timeout=5), Sampled | None)
    assert_type(await task.list_roots(), ListRootsResult)
    assert_type(await task.list_roots("again", timeout="1m"), ListRootsResult | None)
    assert_type(await task.ask({"roots": ListRoots()}, timeout="1m"), dict[str, Any])


def plain(task: SyncTaskContext) -> None:
    assert_type(task.step("coroutine", fetch, 1), Page)
    assert_type(task.step("plain", count, "words", timeout=5), int)
    assert_type(task.step("said", dict, returns=dict[str, int]), dict[str, int])
    assert_type(task.external("render", print, returns=Page), Page)
    assert_type(task.external("render", print), Any)
    assert_type(task.gather(lambda: 1, lambda: "a"), tuple[int, str])
    assert_type(task.gather(*[lambda: 1]), list[int])
    assert_type(task.sample("poem", ["?"], timeout=5), Sampled | None)
    assert_type(task.list_roots(), ListRootsResult)
    with task.shield():
        assert_type(task.sleep("1 hour"), None)
