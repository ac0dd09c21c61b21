"""Where a transaction begins and ends: one round trip each."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from .url import Connection, Target

__all__ = ["Transactions"]

_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Transactions:
    """How a target's transactions are begun. One that fails is rolled back by the lane, which sees the error anyway."""

    target: Target

    @asynccontextmanager
    async def writing(self, connection: Connection) -> AsyncGenerator[None]:
        """A transaction, committed at the end."""
        await connection.execute(self.target.begin)
        yield
        await connection.execute("COMMIT")

    @asynccontextmanager
    async def reading(self, connection: Connection) -> AsyncGenerator[None]:
        """Statements that need no common snapshot: no transaction, unless there is a pooler that asks for one."""
        if not self.target.pooled:
            yield
            return
        async with self.writing(connection):
            yield

    @asynccontextmanager
    async def snapshot(self, connection: Connection) -> AsyncGenerator[None]:
        """Several reads that have to agree."""
        await connection.execute(f"{self.target.begin}; {_SNAPSHOT}")
        yield
        await connection.execute("COMMIT")
