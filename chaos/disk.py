"""A disk for the store that can be filled: a small file system of its own if this user may mount one.

Mounted, the disk is really full: SQLite meets what the kernel says, at whichever call. Otherwise the interposer refuses
whatever would make a file grow, which is what a full disk does, as far as SQLite's files go.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from .interposer import Interposer

__all__ = ["Disk", "disk"]

_SIZE: Final = 96 << 20
_CHUNKS: Final = (1 << 20, 1 << 16, 1 << 12)
_UNMOUNTED_WITHIN: Final = 10.0


class Disk(Protocol):
    """Where the store lies. `kind`: in words. `missing`: why it can't be filled, if so."""

    kind: str
    folder: Path
    missing: str | None

    def fill(self) -> None:
        """Leave no room."""
        ...

    def free(self) -> None:
        """Give the room back. Safe to call on a disk that is not full."""
        ...


class _Mounted:
    """A file system of its own, filled by a file beside the store."""

    missing: str | None = None

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb") as file:
            end = 0
            for chunk in _CHUNKS:
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), end, chunk)
                        end += chunk

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class _Pretended:
    """An ordinary folder, on which the interposer lets nothing grow."""

    def __init__(self, folder: Path, interposer: Interposer | str) -> None:
        self.folder = folder
        self._interposer = interposer if isinstance(interposer, Interposer) else None
        self.missing = interposer if isinstance(interposer, str) else None
        self.kind = "a folder that is never full" if self.missing else "ENOSPC by the interposer"

    def fill(self) -> None:
        self._set(1)

    def free(self) -> None:
        self._set(0)

    def _set(self, full: int) -> None:
        if self._interposer is not None:
            self._interposer.set("disk_is_full", full)


@contextmanager
def disk(scratch: Path, interposer: Interposer | str, *, mount: bool = True) -> Generator[Disk]:
    """A disk below `scratch`, and gone with everything on it at the end. Not `mount`: as for one who may not."""
    folder = scratch / "disk"
    folder.mkdir()
    kind = _mounted(scratch / "disk.img", folder) if mount else None
    if kind is None:
        why = "as told" if not mount else "this user can't mount one" if os.geteuid() else "mounting failed"
        pretended = _Pretended(folder, interposer)
        pretended.kind += f" ({why})"
        yield pretended
        return
    try:
        yield _Mounted(kind, folder)
    finally:
        _unmount(folder)


def _mounted(image: Path, folder: Path) -> str | None:
    """Mount something small on `folder`; what it is, or None."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return None
    size = f"{_SIZE >> 20} MiB"
    if shutil.which("mkfs.ext4") is not None:
        with image.open("wb") as file:
            file.truncate(_SIZE)
        made = ("mkfs.ext4", "-q", "-F", "-m", "0", str(image)), ("mount", "-o", "loop", str(image), str(folder))
        if all(map(_succeeds, made)):
            return f"ext4 on a loop device, {size}"
    if _succeeds(("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder))):
        return f"tmpfs, {size}"
    return None


def _unmount(folder: Path) -> None:
    """Processes that were killed a moment ago may still be on their way out, with files open."""
    deadline = time.monotonic() + _UNMOUNTED_WITHIN
    while not _succeeds(("umount", str(folder))):
        if time.monotonic() > deadline:
            _succeeds(("umount", "-l", str(folder)))
            return
        time.sleep(0.1)


def _succeeds(command: tuple[str, ...]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
