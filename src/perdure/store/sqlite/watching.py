"""What those who watch tasks ask: which of them have changed, and whether others have written.

Who else writes to the file tells us nothing, so we have to look, and often, on the event loop. SQLite says of each
connection whether others have committed (`PRAGMA data_version`). To the one that reads, our own writer is another: it
tells that anybody has committed, for some microseconds. Only if so, the writer, to whom its own commits are its own, is
asked whether it was somebody else; it answers from its thread, since nobody else may use its connection, and the event
loop must not wait for a commit. So the answer is there when the next one asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain.model import JSON, Owner, Task
from perdure.store import rows
from perdure.store.codec import encode, is_plain

from . import sql
from .writer import Transaction, Writer

__all__ = ["Others", "changed"]


class Others:
    """Who else writes to the file, as a reader and our writer see it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._version: int | None = None

    def commits(self, reader: Transaction) -> int:
        """Another number than before if others have committed. The writer answers in time for the next one who asks."""
        (version,) = reader.one("PRAGMA data_version") or (None,)
        if version != self._version:
            self._version = version
            self._writer.look_for_others()
        return self._writer.others


def changed(tx: Transaction, known: Mapping[str, int], owner: Owner | None) -> dict[str, Task | None]:
    # Ids are ASCII, and SQLite would not so much as look for text that is no UTF-8.
    ids = encode([task_id for task_id in known if task_id.isascii()])
    # The versions alone first: there may be hundreds, and hardly one of them has changed.
    versions = _versions(tx, ids, owner)
    differ = [task_id for task_id, version in known.items() if versions.get(task_id) != version]
    there: list[JSON] = [task_id for task_id in differ if task_id in versions]
    found = tx.all(sql.TASK_STANDING, encode(there)) if there else []
    gone = dict.fromkeys(task_id for task_id in differ if task_id not in versions)
    return gone | {task.id: task for task in rows.readable(found, lambda row: rows.task(row, tx.codec))}


def _versions(tx: Transaction, ids: str, owner: Owner | None) -> dict[str, int]:
    if owner is None:
        return dict(tx.all(sql.TASK_VERSIONS, ids))
    if not is_plain(owner.tenant, owner.principal):
        return {}
    return dict(tx.all(sql.TASK_VERSIONS_OWNED, ids, owner.tenant, owner.principal))
