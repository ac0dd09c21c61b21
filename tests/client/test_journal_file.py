"""The journal's file: who makes it while another one does."""

import sqlite3
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.client.journal_file import opened
from tests.support import PATIENCE


@pytest.mark.parametrize("before", ["application_id", "user_version", "sqlite_schema"])
def test_two_who_make_a_journal_at_the_same_moment_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    path, connect = tmp_path / "journal.db", sqlite3.connect
    with futures.ThreadPoolExecutor(1) as pool:
        others: list[futures.Future[sqlite3.Connection]] = []

        class Overtaken(sqlite3.Connection):
            """Another one makes the journal `before` this statement, as far as it is let."""

            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if before in sql and not others:
                    monkeypatch.setattr(sqlite3, "connect", connect)
                    others.append(pool.submit(opened, path))
                    futures.wait(others, timeout=0.5)
                return super().execute(sql, parameters)

        monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Overtaken))
        both = [opened(path), *(each.result(PATIENCE) for each in others)]
    assert [type(each) for each in both] == [Overtaken, sqlite3.Connection]
    for each in both:
        assert each.execute("SELECT count(*) FROM call").fetchone() == (0,)
        each.close()
