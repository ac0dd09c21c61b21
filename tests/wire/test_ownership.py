"""Who gets what, asked of a server: each cell of `docs/ownership.py`, which the documentation prints.

One server for each database, with signed tokens of two issuers, and tasks of one user in every state that there is.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from docs.make_ownership import PAGE, made
from docs.ownership import ANSWERS, ROWS, Answer, Ask, Caller, Row, State
from perdure import Handle, TaskContext, Tasks
from perdure.ops.cli import main
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock
from tests.acceptance.replicas import migrated
from tests.acceptance.support import store_url
from tests.support import eventually
from tests.wire.authority import AUDIENCE, authority
from tests.wire.envelopes import EVERYTHING, JSON, NOTHING, envelope
from tests.wire.listening import Judge, listen_request, listening
from tests.wire.support import Client, Reply, serving
from tests.wire.test_tokens import LONG_AGO, ahead, loaded
from tests.wire.tools import FORM, Form

MINUTE: Final = 60_000
NEVER: Final = "tsk_" + "a" * 32
STRANGERS: Final = (Caller.NEIGHBOUR, Caller.ELSEWHERE, Caller.OTHER_ISSUER)
CLIENTS: Final = ("httpx2", "httpcore2")
METHODS: Final = {Ask.GET: "tasks/get", Ask.UPDATE: "tasks/update", Ask.CANCEL: "tasks/cancel"}
TOKEN: Final = "A" * 32
"""Of the handle of work that nobody ever gave out."""


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text("utf-8") == made(), "ownership.md is out of date: run `make docs`"


def test_every_way_has_an_answer_for_everybody_in_every_state_and_only_one() -> None:
    cells = Counter(
        (ask, who, state) for row in ROWS for ask, who, state in product(row.asks, row.callers, row.answers)
    )
    assert cells == Counter(product(Ask, Caller, State))


def test_every_answer_is_given_and_explained() -> None:
    given = {answer.name: answer for row in ROWS for answer in row.answers.values()}
    assert given == {answer.name: answer for answer in ANSWERS}


# -- a server with everything ------------------------------------------------------------------------------------------


@dataclass
class Site:
    """A server, and the tasks of one user on it: one for each way to ask, in each state."""

    url: str
    store: SQLiteStore | PostgresStore
    client: Client
    tokens: dict[Caller, str | None]
    tasks: dict[tuple[Ask, State], str] = field(default_factory=dict[tuple[Ask, State], str])
    handles: dict[str, Handle] = field(default_factory=dict[str, Handle])
    """By the ids of their tasks."""

    def bearing(self, caller: Caller) -> Client:
        return self.client.bearing(self.tokens[caller])

    def declare(self, tasks: Tasks) -> None:
        @tasks.tool(ttl="1m")
        async def asks(task: TaskContext) -> str:
            return (await task.elicit("form", "All right?", Form)).action

        @tasks.tool(ttl="1m")
        async def waits(task: TaskContext) -> str:
            return repr(await task.external("render", self.take))

    def take(self, handle: Handle) -> None:
        self.handles[handle.task_id] = handle

    async def fill(self, clock: VirtualClock) -> None:
        """Make the tasks. The clock stands still afterwards."""
        await self._make(State.PURGED)
        await self._outlive(clock)
        await self._make(State.EXPIRED)
        await self._outlive(clock)
        for ask in await self._make(State.OVER):
            await self._end(ask)
        await self._make(State.LIVE)
        for ask in Ask:
            self.tasks[ask, State.NEVER], self.tasks[ask, State.MALFORMED] = NEVER, "no-task"

    async def _make(self, state: State) -> Iterable[Ask]:
        owner = self.bearing(Caller.OWNER)
        for ask in Ask:
            tool = "waits" if ask in (Ask.CALLBACK, Ask.SHOW) else "asks"
            self.tasks[ask, state] = await owner.start(tool)
        for ask in Ask:
            await eventually(lambda ask=ask: self._is_parked(self.tasks[ask, state]), "it does not wait")
        return Ask

    async def _is_parked(self, task_id: str) -> bool:
        run = (await self.store.inspect(task_id)).run
        assert run is not None
        return run.session is None and run.due_at is None

    async def _end(self, ask: Ask) -> None:
        owner, task_id = self.bearing(Caller.OWNER), self.tasks[ask, State.OVER]
        if ask in (Ask.GET, Ask.LISTEN):
            await owner.update(task_id, {"form": FORM})
        else:
            await owner.cancel(task_id)
        await owner.until(task_id)

    async def _outlive(self, clock: VirtualClock) -> None:
        """Until all tasks have expired, their tombstones live, and those that there were do not."""
        clock.advance(MINUTE)
        assert await self.store.expire(100) == len(Ask)
        assert await self.store.purge(100, linger_ms=0, tombstone_ms=MINUTE) == len(Ask)


@asynccontextmanager
async def opened(url: str, example: Any) -> AsyncGenerator[Site]:
    clock = VirtualClock()
    store = SQLiteStore(url, clock) if url.startswith("sqlite") else PostgresStore(url, clock)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(authority())
        other = await stack.enter_async_context(authority("https://other.example"))
        tokens = {
            Caller.OWNER: one.token("ada", org="acme"),
            Caller.NEIGHBOUR: one.token("bob", org="acme"),
            Caller.ELSEWHERE: one.token("ada", org="other"),
            Caller.OTHER_ISSUER: other.token("ada", org="acme"),
            Caller.NO_TOKEN: None,
            Caller.LATE: one.token("ada", org="acme", exp=ahead(LONG_AGO)),
            Caller.UNDECLARED: one.token("ada", org="acme"),
        }
        tasks = Tasks(store, tenant_claim="org", grace="1ms", lease="1h", linger="1ms", tombstone="1m")
        mcp = tasks.server(
            "owned",
            auth=AuthSettings(
                issuer_url=AnyHttpUrl("https://id.example"),
                resource_server_url=AnyHttpUrl(AUDIENCE),
                validate_token_resource=True,
            ),
            token_verifier=example.SignedTokens(
                [example.Issuer(each.issuer, each.jwks) for each in (one, other)], AUDIENCE
            ),
        )
        tasks.callbacks(mcp)
        http, address = await stack.enter_async_context(serving(mcp))
        site = Site(url, store, Client(http, address), tokens)
        site.declare(tasks)
        await site.fill(clock)
        yield site


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    folder: Path = tmp_path_factory.mktemp("owned")
    url = store_url(folder)
    if request.param == "postgresql":
        url = await migrated(request.getfixturevalue("postgres"), "owned")
    with pytest.MonkeyPatch.context() as patch:
        async with opened(url, loaded("jwt_tokens", patch)) as up:
            yield up


# -- its cells ---------------------------------------------------------------------------------------------------------


Cell = tuple[Ask, Caller, State]
STRANGERS_FIRST: Final = sorted(ROWS, key=lambda row: Caller.OWNER in row.callers)


def named(row: Row) -> str:
    return f"{row.asks[0].name}-{row.callers[0].name}"


def cells(row: Row) -> Iterator[Cell]:
    """Those of a row. Where it does not matter who asks, one of them does."""
    return product(row.asks, row.callers[:1] if row.who else row.callers, State)


async def test_foreign_unknown_and_purged_are_one_answer_byte_for_byte_whoever_asks_for_whatever(site: Site) -> None:
    """Status, headers but for the date, and body; by all three methods too, so that there is nothing to compare."""
    for name, count in (("unknown", 3 * (2 + 3 * 5)), ("nothing", 4 + 3 * 6), ("no handle", 4)):
        given = [
            await asked(site, cell)
            for row in ROWS
            for cell in cells(row)
            if row.answers[cell[2]].name == name and cell[0] is not Ask.SHOW
        ]
        assert len(given) == count
        assert len(set(map(repr, given))) == 1, name


BAD_PARAMS: Final[list[JSON]] = [
    {},
    {"inputResponses": None},
    {"inputResponses": []},
    {"inputResponses": {"form": 7}},
    {"inputResponses": {"form": {"action": "accept", "content": {"ok": "no boolean"}}}},
    {"inputResponses": {"form": FORM}, "_meta": None},
]


async def test_a_bad_request_gets_the_same_answer_whether_the_task_is_somebody_elses_or_never_was(site: Site) -> None:
    """What is wrong with it is found before the task is looked for, or else not at all."""
    client = site.bearing(Caller.NEIGHBOUR)
    for ask, params in product(METHODS, BAD_PARAMS):
        for extra in ({}, {"mcp-name": "tsk_" + "b" * 32}, {"mcp-name": ""}):
            given = {
                (await client.exchange(_bad(METHODS[ask], site.tasks[ask, state], params), extra)).raw
                for state in (State.LIVE, State.OVER, State.EXPIRED, State.PURGED, State.NEVER)
            }
            assert len(given) == 1, (ask, params, extra)


def _bad(method: str, task_id: str, params: JSON) -> JSON:
    return envelope(method, {"taskId": task_id, **params}, id="same")


async def test_the_log_says_nothing_of_tasks_that_are_somebody_elses(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither that there is one, nor its id, which without authentication would be the key to it."""
    with caplog.at_level(logging.DEBUG):
        for row in ROWS:
            for cell in cells(row):
                if cell[1] in STRANGERS:
                    await asked(site, cell)
    ours = [record for record in caplog.records if not record.name.startswith(CLIENTS)]
    assert not [record for record in ours if "tsk_" in record.getMessage()]
    # uvicorn's log of requests has the path, which is the same for all.
    assert {record.name for record in ours if record.levelno > logging.DEBUG} == {"uvicorn.access"}


@pytest.mark.parametrize("row", STRANGERS_FIRST, ids=named)
async def test_each_cell_of_the_table_is_what_is_answered(site: Site, row: Row) -> None:
    """Strangers first: only the owner, and whoever has the handle, may change what the others find."""
    for ask, caller, state in cells(row):
        answer, before = row.answers[state], await known(site, ask, state)
        try:
            await expect(site, (ask, caller, state), answer)
            if answer.name not in ("done", "said"):
                assert await known(site, ask, state) == before, "it has changed something"
        except AssertionError as error:
            error.add_note(f"asked by {ask}, {caller}, of a task that is: {state}; the table says: {answer}")
            raise


async def known(site: Site, ask: Ask, state: State) -> object:
    """All that the store knows of that task; None if there is nothing."""
    return await site.store.inspect(site.tasks[ask, state]) if state in (State.LIVE, State.OVER) else None


async def expect(site: Site, cell: Cell, answer: Answer) -> None:
    ask, _, state = cell
    task_id = site.tasks[ask, state]
    if ask is Ask.SHOW:
        await expect_shown(site, task_id, answer)
    elif answer.name == "stream":
        await expect_stream(site, task_id, over=state is State.OVER)
    elif answer.name == "nothing":
        await expect_nothing(await asked(site, cell))
    else:
        reply = await asked(site, cell)
        assert reply.status == answer.http
        expect_body(reply, answer)
        if answer.name == "task":
            assert reply.result["taskId"] == task_id
            assert ("result" in reply.result) is (state is State.OVER)
        elif answer.name == "done" and state is State.LIVE:
            ended = await site.bearing(Caller.OWNER).until(task_id)
            assert ended["status"] == ("completed" if ask is Ask.UPDATE else "cancelled")


async def asked(site: Site, cell: Cell) -> Reply:
    """The whole answer. The id of the request is always the same, and so is all else that it could repeat."""
    ask, caller, state = cell
    task_id = site.tasks[ask, state]
    if ask is Ask.CALLBACK:
        return await called_back(site, task_id)
    capabilities = NOTHING if caller is Caller.UNDECLARED else EVERYTHING
    if ask is Ask.LISTEN:
        body = listen_request([task_id], id="same", capabilities=capabilities)
    else:
        params = {"taskId": task_id, "inputResponses": {"form": FORM}}
        body = envelope(METHODS[ask], params, id="same", capabilities=capabilities)
    return await site.bearing(caller).exchange(body)


async def called_back(site: Site, task_id: str, bearer: object = None) -> Reply:
    handle = bearer or site.handles.get(task_id) or f"{task_id}~0~{TOKEN}"
    hook = Client(site.client.http, site.client.url.replace("/mcp", "/perdure/external"))
    return await hook.post(b'{"message": "half way"}', [("authorization", f"Bearer {handle}")])


def expect_body(reply: Reply, answer: Answer) -> None:
    if answer.code is not None:
        assert (reply.code, reply.error["message"]) == (answer.code, answer.message)
        assert ("data" in reply.error) is (answer.name == "undeclared")
    elif answer.message is not None:
        assert reply.body["error"] == answer.message
    elif answer.name == "done":
        assert set(reply.result) == {"resultType", "_meta"}
    elif answer.http == 204:
        assert reply.raw == b""
    else:
        assert reply.result["resultType"] == "complete"


async def expect_stream(site: Site, task_id: str, *, over: bool) -> None:
    async with listening(site.bearing(Caller.OWNER), task_id) as stream:
        assert await stream.begun() == [task_id]
        assert (await stream.snapshot())["taskId"] == task_id
        if over:
            assert await stream.ends() == []


async def expect_nothing(reply: Reply) -> None:
    assert reply.status == 200
    judge = Judge(listen_request([], id="same"))
    for line in reply.raw.decode().splitlines():
        if line.startswith("data: "):
            judge.see(json.loads(line.removeprefix("data: ")))
    assert judge.over
    assert judge.honored == {"taskIds": []}


async def expect_shown(site: Site, task_id: str, answer: Answer) -> None:
    done = await asyncio.to_thread(CliRunner().invoke, main, ["tasks", "show", task_id, "--store", site.url])
    if answer.message is None:
        assert (done.exit_code, task_id in done.output) == (0, True), done.output
    else:
        said = answer.message.replace("…", task_id)
        assert (done.exit_code, done.output.strip()) == (1, f"perdure: {said}")


async def test_an_access_token_is_no_handle(site: Site) -> None:
    """Not even that of the task's owner."""
    none = await called_back(site, NEVER)
    for caller, token in site.tokens.items():
        reply = await called_back(site, "", bearer=token or "")
        assert (reply.status, reply.fields, reply.raw) == (none.status, none.fields, none.raw), caller
