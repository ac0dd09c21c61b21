"""Packages from npm, for the tests that need somebody else's program: each set in a folder of its own, fetched once.

`npx` would ask the registry again for each process. A stamp written after the installation says that it is whole, and a
lock beside the folder lets the first of several test processes install while the others wait.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["NODE", "NpmError", "installed", "node_of"]

# Comes as a package too, so that every machine runs the same.
NODE: Final = "node@22"


class NpmError(Exception):
    """The packages could not be installed; the message is for the person who ran the test."""


def installed(folder: Path, *packages: str) -> Path:
    """The `node_modules` in which there are Node.js and `packages`; installed under `folder` if they are not yet.

    Raises:
        NpmError: they could not be.
    """
    wanted, stamp = " ".join((NODE, *packages)), folder / "installed"
    with _locked(folder):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            _install(folder, NODE, *packages)
            _require_node(node_of(folder / "node_modules"))
            stamp.write_text(wanted)
    return folder / "node_modules"


def node_of(modules: Path) -> Path:
    """The interpreter among the packages."""
    return modules / ".bin/node"


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, *packages: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NpmError(f"npm is needed to install {' and '.join(packages)}: install Node.js")
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
    command = [npm, "install", "--prefix", folder, *options, *packages]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise NpmError(f"npm could not install {' and '.join(packages)}:\n{done.stdout}")


def _require_node(node: Path) -> None:
    """The binary comes with a script that runs at the installation; an npm that allows no scripts leaves it out."""
    major = NODE.rpartition("@")[2]
    try:
        version = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    except OSError:
        version = ""
    if not version.startswith(f"v{major}."):
        found = version or "missing"
        raise NpmError(f"npm installed {NODE}, but its binary is {found}: are install scripts forbidden?")
