"""A folder and the processes that work in it. Both are gone when it is closed, or when its owner dies of anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from . import guard
from .programs import unprivileged

__all__ = ["Private", "ProgramFailed", "Scratch", "tail"]

_GUARD: Final = Path(guard.__file__)
_SHOWN: Final = 40
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - names in it are made by mkdtemp
_ROOM: Final = 1 << 30
_FOREIGN: Final = ("PG", "LC_", "LANG")
"""How variables begin that would change what PostgreSQL's programs do or in which language they say so."""


class ProgramFailed(RuntimeError):
    """A program did not do what it was started for. What it said is in the message."""


class Scratch:
    """The folder, made anew; it belongs to the user whom its programs run as.

    Args:
        folder: where, or None for a temporary folder.
        how: the signal that ends its processes.
        in_memory: a temporary folder is better in memory than on a disk.

    Raises:
        ValueError: there is something in the folder, or the programs' user cannot get there.
    """

    def __init__(self, folder: Path | None, how: signal.Signals, *, in_memory: bool = False) -> None:
        self._how = how
        user = unprivileged()
        self._uid = None if user is None else user.pw_uid
        self._gid = None if user is None else user.pw_gid
        self._groups: list[int] | None = None if user is None else []
        self.in_memory = folder is None and in_memory and _roomy()
        """Whether it is."""
        self.path = (_temporary(self.in_memory) if folder is None else _made(folder)).resolve()
        if user is not None:
            self._check_access(user.pw_name)
            os.chown(self.path, user.pw_uid, user.pw_gid)
        self.guard = subprocess.Popen(  # noqa: S603 - this very Python
            [sys.executable, "-I", "-S", _GUARD, self.path, how.name],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the owner alone
        )

    def spawn(self, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        """Start a program in the folder that appends what it says to the log."""
        with log.open("ab") as sink:
            return subprocess.Popen(  # noqa: S603 - as everything here, a program of PostgreSQL's
                command,
                cwd=self.path,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                user=self._uid,
                group=self._gid,
                extra_groups=self._groups,
            )

    def run(self, command: Sequence[str | Path], **environment: str) -> None:
        """Run a program in the folder to its end.

        Raises:
            ProgramFailed: it failed.
        """
        done = subprocess.run(  # noqa: S603
            command,
            cwd=self.path,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            user=self._uid,
            group=self._gid,
            extra_groups=self._groups,
        )
        if done.returncode:
            raise ProgramFailed(f"{Path(command[0]).name} failed: {done.stdout.strip()}")

    def own(self, path: Path, mode: int = 0o600) -> Path:
        """Give a file to the user whom the programs run as, for nobody else to read."""
        path.chmod(mode)
        if self._uid is not None and self._gid is not None:
            os.chown(path, self._uid, self._gid)
        return path

    def close(self) -> None:
        """End the processes and remove the folder. May be called twice."""
        with suppress(BrokenPipeError, ValueError):  # it is dead, or was told so before
            self.guard.communicate(b"\n")
        if self.guard.wait():
            guard.end(str(self.path), self._how)

    @staticmethod
    def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Ours without what PostgreSQL's programs would read in it, and with `more`."""
        return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)} | dict(more or {})

    def _check_access(self, name: str) -> None:
        for parent in self.path.parents:
            if not parent.stat().st_mode & 0o001:
                shutil.rmtree(self.path)
                raise ValueError(f"{self.path}: user {name}, as which the server runs, cannot get past {parent}")


class Private(ABC):
    """A server that is there for the length of a block, and gone at its end, also if it did not come up."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it takes connections."""

    @abstractmethod
    def close(self) -> None:
        """End it, and leave nothing of it."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tail(log: Path, lines: int = _SHOWN) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _roomy() -> bool:
    """Whether files in memory are to be had. A container's 64 MB would not do."""
    return _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM


def _temporary(in_memory: bool) -> Path:
    return Path(tempfile.mkdtemp(prefix="perdure-scratch-", dir=_MEMORY if in_memory else None))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: a cluster removes its folder when it is closed")
    return folder
