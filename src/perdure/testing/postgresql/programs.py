"""Where the programs are, as whom they run, and on which port: what differs from machine to machine."""

from __future__ import annotations

import os
import pwd
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["ProgramMissing", "free_port", "pgbouncer", "server_programs", "unprivileged"]

_DEBIAN: Final = Path("/usr/lib/postgresql")
_NEEDED: Final = ("initdb", "postgres", "psql", "pg_basebackup")
_PORTS: Final = range(15_000, 32_000)
_CHANCE: Final = random.SystemRandom()
"""Not the common one, which tests set so that it repeats itself, in several processes at once."""


class ProgramMissing(RuntimeError):
    """What has to be installed, in one line."""


def server_programs() -> Path:
    """The folder with PostgreSQL's programs: those on the PATH, else Debian's newest, else where pg_config says.

    Raises:
        ProgramMissing: there is none with a whole server in it.
    """
    for folder in _candidates():
        if all(os.access(folder / name, os.X_OK) for name in _NEEDED):
            return folder
    raise ProgramMissing(
        f"no PostgreSQL server found ({', '.join(_NEEDED)}): install it (Debian: apt-get install postgresql) "
        "or put its programs on the PATH"
    )


def pgbouncer() -> Path:
    """PgBouncer's program.

    Raises:
        ProgramMissing: it is not there.
    """
    found = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    if found is None:
        raise ProgramMissing("no PgBouncer found: install it (Debian: apt-get install pgbouncer)")
    return Path(found)


def unprivileged() -> pwd.struct_passwd | None:
    """Whom to run a server as that refuses to be root; None: whoever we are will do."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ProgramMissing("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody")


def free_port() -> int:
    """A free port of 127.0.0.1, outside of the range that connections get theirs from.

    A port of that range may be anybody's the moment its server is down. Worse, whoever keeps trying to connect to it
    may be given that very port to connect from, and is then connected to itself.
    """
    given = _given_to_clients()
    candidates = [port for port in _PORTS if port not in given]
    for port in _CHANCE.sample(candidates, len(candidates)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ProgramMissing(f"no port of 127.0.0.1 between {_PORTS.start} and {_PORTS.stop} is free")


def _given_to_clients() -> range:
    try:
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except OSError:
        return range(32_768, 61_000)
    return range(first, last + 1)


def _candidates() -> Iterator[Path]:
    """Each link is followed: a program finds its relatives beside the file that it really is."""
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    yield from sorted(_DEBIAN.glob("*/bin"), key=_version, reverse=True)
    if pg_config := shutil.which("pg_config"):
        said = subprocess.run(  # noqa: S603 - found by its name
            [pg_config, "--bindir"], capture_output=True, text=True, check=False
        )
        yield Path(said.stdout.strip() or "/nonexistent")


def _version(folder: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", folder.parent.name)]
