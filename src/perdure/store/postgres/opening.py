"""The first connection of whoever uses a database: made, looked at, and kept to work with, or nothing is left open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from perdure.domain.errors import PerdureError

from . import faults, schema
from .url import Connection, Target

__all__ = ["opened"]

_CONNECT: Final = 5.0


async def opened(target: Target, prepare: Callable[[Connection], Awaitable[None]] | None = None) -> Connection:
    """A connection to a database that this release can work with, after `prepare`.

    Raises:
        StoreUnusable: there is none; one line says why and what to do.
    """
    try:
        async with asyncio.timeout(_CONNECT * 2):
            connection = await target.connect(_CONNECT)
            try:
                await schema.check(connection, target)
                if prepare is not None:
                    await prepare(connection)
            except BaseException:
                connection.terminate()
                raise
    except PerdureError:
        raise
    except Exception as error:
        if (unusable := faults.unusable(error, target)) is None:
            raise
        raise unusable from None  # what the driver says may quote the URL
    return connection
