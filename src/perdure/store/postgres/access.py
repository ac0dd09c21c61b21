"""What verbs are given of a connection: where their transactions begin and end, one round trip each, and the time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from perdure.store.sealing import CLEAR, Codec

from .url import Connection, Target

__all__ = ["Access"]

_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Access:
    """A connection to `target`, for one batch, and how values are stored (`codec`).

    `clock`: what a test says that the time is; None: the database decides.

    A transaction that fails is rolled back by the lane, which sees the error anyway.
    """

    connection: Connection
    target: Target
    clock: int | None
    codec: Codec = CLEAR

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None]:
        """A transaction, committed at the end."""
        await self.connection.execute(self.target.begin)
        yield
        await self.connection.execute("COMMIT")

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Statements that need no common snapshot: no transaction, unless there is a pooler that asks for one."""
        if not self.target.pooled:
            yield
            return
        async with self.writing():
            yield

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[None]:
        """Several reads that have to agree."""
        await self.connection.execute(f"{self.target.begin}; {_SNAPSHOT}")
        yield
        await self.connection.execute("COMMIT")
