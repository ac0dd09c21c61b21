"""What `perdure migrate` does with a SQLite file. Opening one brings it up to date anyway; this can look before."""

from __future__ import annotations

from perdure.store import migrate
from perdure.store.migrate import Migration

from . import schema

__all__ = ["SQLiteUpgrade"]


class SQLiteUpgrade:
    """`perdure.store.migrate.Upgrade` of the file that `url` names.

    Raises:
        StoreUnusable: it is no such URL.
    """

    def __init__(self, url: str) -> None:
        self.shown = url
        self._path = schema.path_of(url)

    async def pending(self) -> tuple[Migration, ...]:
        return schema.lacking(self._path)

    async def apply(self, *, post: bool) -> tuple[Migration, ...]:
        before = schema.lacking(self._path)
        schema.connect_writer(self._path).close()
        return before

    async def script(self, *, post: bool) -> str:
        return schema.script(migrate.due(schema.lacking(self._path), post=post))
