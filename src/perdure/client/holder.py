"""Whether the process that claimed something still lives: a file that it keeps locked.

Processes that share a journal must not ask one user one question twice, and what a process claimed must be free once
it is dead, however it died. The kernel drops a lock on a file with its last holder; a process id would have to be told
from that of a later process, and means nothing in another container.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

__all__ = ["Alone", "Holder", "LockedFile"]


class Holder(Protocol):
    """One user of a journal. `token` is what its claims are marked with."""

    token: str

    def is_alive(self, token: str) -> bool:
        """Whether the user of that token is still there."""
        ...

    def close(self) -> None:
        """Be gone."""
        ...


class Alone:
    """The one user of a journal in memory."""

    def __init__(self) -> None:
        self.token = uuid4().hex

    def is_alive(self, token: str) -> bool:
        return token == self.token

    def close(self) -> None:
        """Nothing is kept."""


class LockedFile:
    """A user of the journal at `path`, beside which its file lies: `JOURNAL-TOKEN.user`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A neighbour who sweeps may take a file that is not locked yet for that of a user who is gone.
        while (locked := self._made(token := uuid4().hex)) is None:
            pass
        self.token, self._locked = token, locked

    def is_alive(self, token: str) -> bool:
        if token == self.token:
            return True
        try:
            other = os.open(self._file(token), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Tokens are never used again, so whoever comes next finds no file, which says the same. Under the lock: its
            # user may be one who is just coming, and who would get the lock in between and not see the file go.
            self._file(token).unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(other)
        return False

    def close(self) -> None:
        self._file(self.token).unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._locked)

    def sweep(self) -> None:
        """Remove the files of users that are gone."""
        for found in self._path.parent.glob(f"{self._path.name}-*.user"):
            self.is_alive(found.name.removeprefix(f"{self._path.name}-").removesuffix(".user"))

    def _made(self, token: str) -> int | None:
        """The file of a new user, locked; None if somebody was quicker."""
        mine = self._file(token)
        made = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if mine.exists():
                return made
        os.close(made)
        return None

    def _file(self, token: str) -> Path:
        return self._path.with_name(f"{self._path.name}-{token}.user")
