"""`GET /health`: a server is of use as long as its store answers, and says no more than that."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from perdure import Tasks
from perdure.domain.errors import StoreUnavailable
from perdure.ops import health
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from tests.wire.support import hosting


class Away(MemoryStore):
    """A store whose database is gone."""

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        raise StoreUnavailable


class Hanging(MemoryStore):
    """A store whose database is stopped."""

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")


@asynccontextmanager
async def offered(store: str | Store) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    tasks = Tasks(store, worker=False)
    mcp = tasks.server("healthy")
    health.offer(mcp, tasks.assembly)
    async with hosting(mcp.streamable_http_app()) as (http, url):
        yield http, url + health.PATH


async def test_a_server_whose_store_answers_is_healthy(tmp_path: Path) -> None:
    async with offered(f"sqlite:///{tmp_path / 'tasks.db'}") as (http, url):
        answer = await http.get(url)
        assert (answer.status_code, answer.text) == (200, "ok\n")
        assert answer.headers["cache-control"] == "no-store"
        assert (await http.head(url)).status_code == 200
        assert (await http.post(url)).status_code == 405


async def test_a_server_whose_store_is_away_is_not() -> None:
    async with offered(Away()) as (http, url):
        answer = await http.get(url)
        assert (answer.status_code, answer.text) == (503, "the task store does not answer\n")


async def test_nor_is_one_whose_store_leaves_it_waiting() -> None:
    async with offered(Hanging()) as (http, url):
        assert (await http.get(url)).status_code == 503


async def test_what_the_program_has_there_itself_is_left_alone() -> None:
    tasks = Tasks(MemoryStore(), worker=False)
    mcp = tasks.server("own")

    @mcp.custom_route("/health", methods=["GET"])
    async def own(_: Request) -> PlainTextResponse:
        return PlainTextResponse("mine")

    health.offer(mcp, tasks.assembly)
    async with hosting(mcp.streamable_http_app()) as (http, url):
        assert (await http.get(url + health.PATH)).text == "mine"
