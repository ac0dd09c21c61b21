"""The page on limits: it has every bound, the defaults that the code has, and what refused clients hear."""

import re
import secrets
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import asyncpg

from perdure import Limits, Owner, Tasks
from perdure.domain import ids
from perdure.domain.model import NewTask, Operation
from perdure.ops.stores import open_store
from perdure.wire.refusals import named
from tests.wire.envelopes import JSON
from tests.wire.support import Reply, stage
from tests.wire.test_limits import EDGES

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"


def table() -> dict[str, str]:
    """What the page says of each bound's default."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\w,%]+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_the_page_lists_every_limit_that_is_tested_at_its_edge() -> None:
    assert set(table()) == set(EDGES)


def test_the_page_gives_the_defaults_of_the_code() -> None:
    of_tasks: dict[str, Any] = {name: each.default for name, each in signature(Tasks).parameters.items()}
    defaults: dict[str, Any] = of_tasks | {each.name: each.default for each in fields(Limits)}
    assert table() == {name: shown(defaults[name]) for name in EDGES}


def shown(default: int | str | None) -> str:
    """A number, a share as it is written, or none."""
    return "none" if default is None else default if isinstance(default, str) else f"{default:,}"


def heard(reply: Reply) -> list[str]:
    """The cells of the table on what a refused client hears, but the first."""
    said: JSON = reply.error if reply.raw.startswith(b"{") else {}
    fields = {name.lower() for name, _ in reply.fields}
    assert "retry-after" not in fields
    when = "`data.retryAfterMs`" if "retryAfterMs" in said.get("data", {}) else "never"
    return [f"{said['code']}" if said else "none", f"{reply.status}", when]


async def test_the_page_says_what_a_refused_client_hears_by_http_too(tmp_path: Path) -> None:
    rows = re.findall(r"^\| [^|]+ \| (-?\w+) \| (\d+) \| ([^|:]+?)(?::[^|]*)? \|$", PAGE.read_text(), re.MULTILINE)
    rows = [[*row] for row in rows]

    async def echo(text: str) -> str:
        return text

    limits = Limits(arguments=100, request_body=5_000)
    async with stage(tmp_path, lambda tasks: tasks.tool()(echo) and None, limits=limits, backlog=1, worker=False) as up:
        await up.client.start("echo", {"text": "x"})
        large, full = await up.client.call("echo", {"text": "x" * 200}), await up.client.call("echo", {"text": "x"})
        endless = await up.client.post(b" " * 6_000, [("content-type", "application/json")])
    assert [heard(each) for each in (large, full, endless)] == rows[:3]


async def test_the_statement_on_the_page_finds_the_owner_of_a_line_in_the_log(database: str) -> None:
    ada, bob = Owner("acme", '["https://id.example","app","ada"]'), Owner("acme", "b\xf6b")
    store = open_store(database)
    await store.open()
    for owner in (ada, bob):
        await store.create(NewTask(ids.mint(secrets.token_bytes), owner, Operation("tools/call", "h", {})))
    await store.close()
    (sql,) = re.findall(r"```sql\n(SELECT DISTINCT tenant.*?)```", PAGE.read_text(), re.DOTALL)
    connection = await asyncpg.connect(database)
    try:
        for owner in (ada, bob):
            (digest,) = re.findall(r"[0-9a-f]{8}", named(owner))
            found = await connection.fetch(sql.replace("3f2a9c01", digest))
            assert [tuple(row) for row in found] == [(owner.tenant, owner.principal)]
    finally:
        await connection.close()
