"""Packages from PyPI that can't lie beside ours: in an environment of their own, or as their sources; fetched once.

A stamp written after the installation says that it is whole, and a lock beside it lets the first of several test
processes install while the others wait.
"""

import fcntl
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["environment", "sources"]

PIP: Final = ("-m", "pip", "--quiet", "--disable-pip-version-check")
_PATIENCE: Final = 600.0
"""Seconds for one command, which holds the lock meanwhile."""


def environment(folder: Path, *packages: str) -> Path:
    """The Python that has `packages`, in an environment under `folder`. Takes a quarter of a minute the first time.

    Our pip serves it, and what it has is compiled when it is loaded: a pip of its own, and all of what is never loaded,
    would take as long again.
    """
    home = folder / "venv"
    python = home / "bin" / "python"
    with _made_once(folder, *packages) as missing:
        if missing:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=_PATIENCE)
            install = [sys.executable, *PIP, "--python", python, "install", "--no-compile", *packages]
            subprocess.run(install, check=True, timeout=_PATIENCE)
    return python


def sources(folder: Path, package: str, version: str) -> Path:
    """The folder of a package's sources as they were published, tests and tools and all, unpacked under `folder`."""
    requirement = f"{package}=={version}"
    with _made_once(folder, requirement) as missing:
        if missing:
            download = [sys.executable, *PIP, "download", "--no-deps", "--no-binary", package, "--dest", folder]
            subprocess.run([*download, requirement], check=True, timeout=_PATIENCE)
            with tarfile.open(folder / f"{package}-{version}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
    return folder / f"{package}-{version}"


@contextmanager
def _made_once(folder: Path, *wanted: str) -> Generator[bool]:
    """Whether it has to be made, which is in an empty folder then; left in order, it counts as made."""
    folder.mkdir(parents=True, exist_ok=True)
    named, stamp = " ".join((*wanted, sys.version)), folder / "installed"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed: whoever waited finds it made
        missing = not stamp.exists() or stamp.read_text() != named
        if missing:
            shutil.rmtree(folder)
            folder.mkdir()
        yield missing
        stamp.write_text(named)
