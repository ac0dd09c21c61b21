"""What disks, people and other programs do to a database's files. A `Damage` is a value, and is done to copies.

Two kinds. What leaves its trace in the structure has to be noticed, if not at once then by whoever comes by. What only
changes values, or puts one sound page in another's place, SQLite can't notice: its pages have no checksums. Of that no
more is asked than that nothing crashes, hangs or tells of insides; how often it is served is counted.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

__all__ = ["SILENT", "Damage", "damages", "inflict", "log_of"]

PAGE: Final = 4096
_HEADER: Final = 100
_LOG_HEADER: Final = 32


@dataclass(frozen=True, slots=True)
class Damage:
    """`kind`: what is done, to the database, or to its log for kinds that begin so. `at`: where, in permille.

    `size`: how much of it, or which value. `hot`: to files that a killed process left, with a log that counts.
    """

    kind: str
    at: int
    size: int
    hot: bool


def log_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def inflict(damage: Damage, path: Path, foreign_log: bytes) -> None:
    """Do it to the files at `path`. `foreign_log`: the log of another database."""
    if damage.kind == "a folder":
        path.unlink()
        path.mkdir()
    elif damage.kind == "log of another":
        log_of(path).write_bytes(foreign_log)
    elif damage.kind == "read-only":
        path.chmod(0o400)
    elif damage.kind in _STATEMENTS:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            _execute(connection, _STATEMENTS[damage.kind].format(size=damage.size))
    elif not damage.kind.startswith("log"):
        path.write_bytes(_BYTES[damage.kind](path.read_bytes(), damage))
    elif damage.hot:
        log = log_of(path)
        log.write_bytes(_BYTES[damage.kind.removeprefix("log ")](log.read_bytes(), damage))


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement)


_STATEMENTS: Final[Mapping[str, str]] = {
    "another application": "PRAGMA application_id = {size}",
    "another version": "PRAGMA user_version = {size}",
    "a foreign table": "DROP TABLE task; CREATE TABLE task (seq INTEGER PRIMARY KEY, id TEXT)",
    "a foreign schema": "DROP TABLE task; DROP TABLE input; CREATE TABLE people (name TEXT)",
    "no table": "DROP TABLE run",
    "no index": "DROP INDEX task_owned",
    "another encoding": "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'nonsense' WHERE name = 'task'",
}


def _truncated(content: bytes, damage: Damage) -> bytes:
    return content[: max(1, damage.at * len(content) // 1000)]


def _overwritten(content: bytes, damage: Damage, filling: Callable[[int], bytes]) -> bytes:
    """One page or more of it."""
    start = _page(content, damage.at)
    length = min(len(content) - start, PAGE * (1 + damage.size % 3))
    return content[:start] + filling(length) + content[start + length :]


def _page(content: bytes, at: int) -> int:
    return at * (len(content) // PAGE) // 1001 * PAGE


def _zeroed(content: bytes, damage: Damage) -> bytes:
    return _overwritten(content, damage, bytes)


def _garbled(content: bytes, damage: Damage) -> bytes:
    return _overwritten(content, damage, Random(damage.size).randbytes)


def _flipped(content: bytes, damage: Damage) -> bytes:
    place = damage.at * len(content) // 1001 + damage.size % 997
    return _with_bit(content, min(place, len(content) - 1), damage.size % 8)


def _with_bit(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def _header(content: bytes, damage: Damage) -> bytes:
    return _with_bit(content, damage.at * _HEADER // 1001, damage.size % 8)


def _swapped(content: bytes, damage: Damage) -> bytes:
    one, other = _page(content, damage.at), _page(content, damage.size % 1001)
    pages = bytearray(content)
    pages[one : one + PAGE], pages[other : other + PAGE] = content[other : other + PAGE], content[one : one + PAGE]
    return bytes(pages)


_BYTES: Final[Mapping[str, Callable[[bytes, Damage], bytes]]] = {
    "empty": lambda _content, _damage: b"",
    "garbage": lambda content, damage: Random(damage.size).randbytes(len(content)),
    "text": lambda _content, damage: b"not a database\n" * (1 + damage.size % 1000),
    "longer": lambda content, damage: content + Random(damage.size).randbytes(1 + damage.size % 9000),
    "truncated": _truncated,
    "zeroed": _zeroed,
    "garbled": _garbled,
    "header": _header,
    "flipped": _flipped,
    "swapped": _swapped,
}
SILENT: Final = frozenset({"flipped", "swapped", "header", "log of another"})
"""What SQLite can't always notice, but for a flipped bit in the log, whose frames have checksums."""
_IN_THE_LOG: Final = ("empty", "garbage", "longer", "truncated", "zeroed", "garbled", "flipped")


def damages() -> SearchStrategy[Damage]:
    """Any of them, anywhere."""
    alone = ["a folder", "log of another", *(["read-only"] if os.geteuid() else [])]  # root may write all the same
    kinds = [*_BYTES, *_STATEMENTS, *alone, *(f"log {kind}" for kind in _IN_THE_LOG)]
    often = ["truncated", "zeroed", "garbled", "flipped"] * 4
    size = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5)
    return st.builds(Damage, st.sampled_from([*kinds, *often]), st.integers(0, 1000), size, st.booleans())
