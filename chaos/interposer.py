"""The driver's end of `interpose.c`: building it, and the block of memory that it reads and counts in.

The library is compiled when it is needed, by whatever compiler the machine has; without one there are no clock steps,
no slow disk and no I/O errors, and the report says so.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

__all__ = ["Interposer", "Knob", "Meter", "felt", "interposed"]

_SOURCE: Final = Path(__file__).with_name("interpose.c")
_PATIENCE: Final = 5.0

Knob = Literal["clock_offset_ns", "fsync_delay_us", "fsync_fails_every", "disk_is_full"]
"""What the driver sets. 0 is harmless for all of them."""
Meter = Literal["clock_reads", "fsyncs_delayed", "fsyncs_failed", "writes_refused"]
"""What the library counts, over all processes."""

# The layout of `struct control`. Eight aligned bytes each, which x86 and ARM write and read whole.
_FIELDS: Final[tuple[Knob | Meter, ...]] = (
    "clock_offset_ns",
    "fsync_delay_us",
    "fsync_fails_every",
    "disk_is_full",
    "clock_reads",
    "fsyncs_delayed",
    "fsyncs_failed",
    "writes_refused",
)


class Interposer:
    """A built library and its block. Made by `interposed`."""

    def __init__(self, library: Path, control: Path, block: mmap.mmap) -> None:
        self._library = library
        self._control = control
        self._block = block

    def environment(self, store: Path) -> dict[str, str]:
        """What a process needs to run under it. `store`: the folder below which the disk misbehaves."""
        return {
            "LD_PRELOAD": str(self._library),
            "CHAOS_CONTROL": str(self._control),
            "CHAOS_STORE": str(store.resolve()),
            "CHAOS_PARENT": str(os.getpid()),
        }

    def set(self, knob: Knob, value: int) -> None:
        """Takes effect in all processes at once, at their next call."""
        struct.pack_into("=q", self._block, 8 * _FIELDS.index(knob), value)

    def read(self, field: Knob | Meter) -> int:
        (value,) = struct.unpack_from("=q", self._block, 8 * _FIELDS.index(field))
        return value


async def felt(interposer: Interposer, meter: Meter, before: int) -> bool:
    """Whether a process has met what `meter` counts; waits a while for one, if none has so far."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while interposer.read(meter) == before:  # noqa: ASYNC110 - in other processes
                await asyncio.sleep(0.1)
    return interposer.read(meter) > before


@contextmanager
def interposed(folder: Path) -> Generator[Interposer | str]:
    """The library, built in `folder`; or why there is none here."""
    library, control = folder / "interpose.so", folder / "control"
    missing = _build(library)
    if missing is not None:
        yield missing
        return
    control.write_bytes(bytes(mmap.PAGESIZE))
    with control.open("r+b") as file, mmap.mmap(file.fileno(), 0) as block:
        yield Interposer(library, control, block)


def _build(library: Path) -> str | None:
    if os.uname().sysname != "Linux":
        return "LD_PRELOAD as it is used here is Linux's"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "there is no gcc"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if ended.returncode == 0 else f"gcc did not build {_SOURCE.name}: {ended.stderr.strip()[-500:]}"
