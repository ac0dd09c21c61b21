"""Stores whose values are sealed, and what somebody sees who has the database and no key."""

import asyncio
import sqlite3
import subprocess
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perdure.store.clock import Clock
from perdure.store.keys import KeyRing
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.url import parse
from perdure.store.reseal import START, Page, Resealing
from perdure.store.sealing import BLIND, codec_for
from perdure.store.sqlite import SQLiteStore
from tests.support import PATIENCE

__all__ = ["NEW", "OLD", "OTHER", "Place", "SealedStore", "key", "whole_pass"]


def key(id_: str, filling: bytes = b"") -> str:
    """A key that is the same each time."""
    return f"{id_}:{b64encode((filling or id_.encode()).ljust(32, b'.')).decode()}"


OLD: Final = key("old")
NEW: Final = key("new")
OTHER: Final = key("old", b"another one of that name")
_TABLES: Final = ("task", "run", "session", "input", "entry", "event", "tombstone", "route")

SealedStore = SQLiteStore | PostgresStore


@dataclass(frozen=True)
class Place:
    """A database, of one kind or the other."""

    url: str

    @property
    def file(self) -> Path | None:
        return Path(self.url.removeprefix("sqlite:///")) if self.url.startswith("sqlite:") else None

    def store(self, clock: Clock | None, *keys: str, blind: bool = False) -> SealedStore:
        """A store on it, with these keys; with none, one without."""
        codec = BLIND if blind else codec_for(KeyRing(*keys) if keys else None)
        if self.file is not None:
            return SQLiteStore(self.url, clock, codec=codec)
        return PostgresStore(self.url, clock, codec=codec, lanes=2)

    async def everything(self) -> bytes:
        """All that lies there: the bytes of the files, the log among them; or the rows of all tables."""
        if self.file is not None:
            # In a process of its own: to close a file here would take the locks away from who has it open.
            files = self.file.parent.glob(f"{self.file.name}*")
            return await asyncio.to_thread(subprocess.check_output, ["cat", *map(str, files)])
        rows = [await self.rows(f"SELECT t::text FROM perdure.{table} AS t") for table in _TABLES]
        return "\n".join(text for table in rows for (text,) in table).encode()

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement returns to somebody who has all rights. `perdure.` is left out where there is none."""
        if self.file is not None:
            with closing(sqlite3.connect(self.file, timeout=PATIENCE, isolation_level=None)) as connection:
                return connection.execute(statement.replace("perdure.", "")).fetchall()
        connection = await parse(self.url).connect_directly(PATIENCE)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    async def version(self) -> int:
        """Another number than before once anybody has written a row of a route."""
        if self.file is not None:
            return int.from_bytes(self.file.with_name(f"{self.file.name}-wal").read_bytes(), "big")
        ((version,),) = await self.rows("SELECT coalesce(sum(xmin::text::bigint), 0)::bigint FROM perdure.route")
        return version

    async def columns(self) -> list[tuple[str, str]]:
        """The tables and their columns with texts."""
        if self.file is not None:
            return [
                (table, row[1])
                for (table,) in await self.rows("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE TABLE%STRICT%'")
                for row in await self.rows(f"PRAGMA table_info({table})")
                if row[2] == "TEXT"
            ]
        return [
            (table, column)
            for table, column in await self.rows(
                "SELECT table_name::text, column_name::text FROM information_schema.columns"
                " WHERE table_schema = 'perdure' AND data_type = 'text' AND table_name <> 'migration'"
            )
        ]


async def whole_pass(store: Resealing, limit: int = 100) -> list[Page]:
    """The pages of a walk through everything."""
    pages = [await store.reseal(START, limit)]
    while (after := pages[-1].next) is not None:
        pages.append(await store.reseal(after, limit))
    return pages
