"""What `perdure migrate` does with a PostgreSQL database. Goes to the server directly, past any pooler."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from asyncpg import InsufficientPrivilegeError, PostgresError, TargetServerAttributeNotMatched
from asyncpg.exceptions import InterfaceError

from perdure.domain.errors import StoreUnusable
from perdure.store.migrate import Migration

from . import faults, schema
from .url import Connection, parse

__all__ = ["PostgresUpgrade"]

_PATIENCE: Final = 30.0
"""Seconds for connecting."""


class PostgresUpgrade:
    """`perdure.store.migrate.Upgrade` of the database that `url` names.

    Raises:
        StoreUnusable: the URL can't be read.
    """

    def __init__(self, url: str) -> None:
        self._target = parse(url)
        self.shown = self._target.shown

    async def pending(self) -> tuple[Migration, ...]:
        return (await self._look()).lacking

    async def apply(self, *, post: bool) -> tuple[Migration, ...]:
        async with self._connected() as connection:
            try:
                return await schema.apply(connection, self._target, post=post)
            except InsufficientPrivilegeError as error:
                raise StoreUnusable(
                    f"{self.shown} gives this user too few rights to change its tables ({error.args[0]}): GRANT CREATE "
                    "ON DATABASE to it, or migrate as the user who owns the schema perdure"
                ) from error

    async def script(self, *, post: bool) -> str:
        return schema.script(await self._look(), post=post)

    async def _look(self) -> schema.State:
        async with self._connected() as connection, connection.transaction(isolation="read_committed"):
            return await schema.look(connection, self._target)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connection]:
        """A connection, with a line for whatever goes wrong while it is made and used."""
        try:
            connection = await self._target.connect_directly(_PATIENCE)
        # ValueError: what the driver says of a variable in the environment that it can't read.
        except (PostgresError, InterfaceError, TargetServerAttributeNotMatched, OSError, ValueError) as error:
            raise self._unusable(error) from error
        try:
            yield connection
        except (PostgresError, InterfaceError, OSError) as error:
            raise self._unusable(error) from error
        finally:
            connection.terminate()  # it has nothing left to say, and a server that hangs would not listen

    def _unusable(self, error: Exception) -> StoreUnusable:
        return faults.unusable(error, self._target) or StoreUnusable(f"{self.shown} can't be used: {error}")
