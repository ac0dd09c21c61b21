"""A file as one process has it open: its writer and its reader, and whether it is still the file that was opened.

What keeps tasks in a file and what keeps routes in it are open in the same way, each with connections of its own.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from perdure.domain.errors import StoreUnavailable, StoreUnusable
from perdure.domain.model import Change
from perdure.store.sealing import CLEAR, Codec

from . import schema
from .writer import Transaction, Writer

__all__ = ["OnFile"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class OnFile:
    """What lies in the file that `url` names. `codec`, `max_batch`: as the writer's."""

    def __init__(self, url: str, *, codec: Codec = CLEAR, max_batch: int = 500) -> None:
        self._path = schema.path_of(url)
        self._codec = codec
        connect = partial(schema.connect_writer, self._path)
        self._writer = Writer(connect, self._announce, self._intact, codec=codec, max_batch=max_batch)
        self._exposed = False
        self._fingerprint: schema.Fingerprint | None = None
        self._reader: Transaction | None = None

    async def open(self) -> None:
        self._fingerprint = None
        await self._writer.open()
        self._fingerprint = schema.fingerprint(self._path)
        try:
            self._reader = Transaction(schema.connect_reader(self._path), self._codec)
            with schema.explained(self._path):
                self._check(self._reader)
        except StoreUnusable:
            await self.close()
            raise
        self._warn_if_exposed()

    async def close(self) -> None:
        await self._writer.close()
        if self._reader is not None:
            self._reader.connection.close()
            self._reader = None

    def _check(self, reader: Transaction) -> None:
        """Whether what is in there can be used, where that is a question.

        Raises:
            StoreUnusable: it can't.
        """

    def _announce(self, change: Change) -> None:
        """Tell of a change, where somebody wants to hear of it."""

    def _read(self, look: Callable[[Transaction], T]) -> T:
        if self._reader is None:
            raise StoreUnavailable("The task store is closed")
        try:
            return look(self._reader)
        except sqlite3.Error as error:
            logger.warning("The task store could not be read: %s", error)
            raise StoreUnavailable from error

    def _read_at_once(self, look: Callable[[Transaction], T]) -> T:
        """The same where a look is several reads that have to agree."""

        def in_one(reader: Transaction) -> T:
            with _snapshot(reader):
                return look(reader)

        return self._read(in_one)

    def _warn_if_exposed(self) -> None:
        if not self._exposed and schema.is_exposed(self._path):
            self._exposed = True  # said once, however often the store is opened
            logger.warning("%s may be read by every user of this machine: chmod o-r it and its -wal", self._path)

    def _intact(self) -> bool:
        return self._fingerprint in (None, schema.fingerprint(self._path))


@contextmanager
def _snapshot(reader: Transaction) -> Generator[None]:
    with reader.connection:
        reader.run("BEGIN")
        yield
