"""The store that everything is tried on: a real server makes it once, with tasks of several people in every state.

Ids and tokens are drawn by chance, so they are replaced by ones that can be read and written down, or no case would be
the same twice.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from tests.wire.envelopes import envelope, headers

from .http import exchange, post
from .people import KINDS, PEOPLE, Person, task_id, token
from .server import Server, serving

__all__ = ["ANSWERED", "KEY", "call", "make"]

JSON = Any
KEY: Final = "a-key-of-their-own"
"""The idempotency key of everybody's first task."""
ANSWERED: Final = "odd"
"""The question of the task `answered` that has its answer."""
_WITHIN: Final = 60.0
_AGAIN: Final = 0.05
_PARKED: Final = """
SELECT count(*) FROM task LEFT JOIN run ON run.task_seq = task.seq
WHERE run.task_seq IS NULL OR (run.session IS NULL AND (run.due_at IS NULL OR run.due_at > 0))"""


def make(folder: Path) -> Path:
    """A store with `KINDS` of all `PEOPLE` in it, which nobody has open. All of it is in that one file."""
    path = folder / "ground.db"
    with serving(path, folder / "ground.log") as server:
        ids = {(person, kind): _begin(server, person, kind) for person in PEOPLE for kind in KINDS}
        _settle(path, len(ids))
        for person in PEOPLE:
            content = {"name": person.canary[:5], "age": 7}
            answer = {ANSWERED: {"action": "accept", "content": content}}
            call(server, person, "tasks/update", {"taskId": ids[person, "answered"], "inputResponses": answer})
            call(server, person, "tasks/cancel", {"taskId": ids[person, "cancelled"]})
        _settle(path, len(ids))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (person, kind), id_ in ids.items():
            _rename(connection, id_, person, kind)
        connection.execute("DELETE FROM session")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def call(server: Server, person: Person, method: str, params: dict[str, JSON]) -> JSON:
    """The result of a request in order.

    Raises:
        AssertionError: it has none.
    """
    body = envelope(method, params)
    fields = headers(body) | {"authorization": f"Bearer {person.token}"}
    _, (reply,) = exchange(server.port, post("/mcp", json.dumps(body).encode(), fields))
    assert "result" in (reply.body or {}), reply
    return reply.body["result"]


def _begin(server: Server, person: Person, kind: str) -> str:
    tool, arguments = KINDS[kind]
    params: dict[str, JSON] = {"name": tool, "arguments": {"label": f"{person.canary}: {kind}", **arguments}}
    if kind == "done":
        params["_meta"] = envelope(tool)["params"]["_meta"] | {"dev.perdure/idempotencyKey": KEY}
    return call(server, person, "tools/call", params)["taskId"]


def _settle(path: Path, count: int) -> None:
    """Wait until nothing is to be run at once."""
    deadline = monotonic() + _WITHIN
    with closing(sqlite3.connect(path)) as connection:
        while connection.execute(_PARKED).fetchone() != (count,):
            assert monotonic() < deadline, "the tasks do not come to rest"
            sleep(_AGAIN)


def _rename(connection: sqlite3.Connection, id_: str, person: Person, kind: str) -> None:
    ((seq,),) = connection.execute("UPDATE task SET id = ? WHERE id = ? RETURNING seq", (task_id(person, kind), id_))
    connection.execute(
        "UPDATE entry SET value = json_set(value, '$.token', ?) WHERE task_seq = ? AND verb = 'external'",
        (token(person, kind), seq),
    )
