"""PgBouncer in transaction mode, in front of a cluster."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from .cluster import SUPERUSER, Cluster
from .programs import free_port, pgbouncer
from .scratch import Private, ProgramFailed, Scratch, tail

__all__ = ["Bouncer"]

_PATIENCE: Final = 30.0


class Bouncer(Private):
    """A private PgBouncer. A context manager.

    Args:
        cluster: the server behind it.
        settings: of pgbouncer.ini; transaction mode with 10 server connections per database by default.

    Raises:
        ProgramMissing: there is no PgBouncer here; one line says what to install.
    """

    def __init__(self, cluster: Cluster, settings: Mapping[str, str | int] | None = None) -> None:
        self._program = pgbouncer()
        self._cluster = cluster
        self._settings = {"pool_mode": "transaction", "default_pool_size": 10, "max_client_conn": 500}
        self._settings |= dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._scratch = Scratch(None, signal.SIGKILL)  # it has nothing to lose
        self.log = self._scratch.path / "pgbouncer.log"

    def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            ProgramFailed: it does not come up; the end of its log is in the message.
        """
        self._write_files()
        self._process = self._scratch.spawn([self._program, "pgbouncer.ini"], self.log)
        deadline = time.monotonic() + _PATIENCE
        while not _accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ProgramFailed(f"PgBouncer does not come up:\n{tail(self.log)}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Kill it: every client is cut off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kill it, and remove its folder. May be called twice."""
        self._scratch.close()
        self.stop()

    def through(self, url: str) -> str:
        """A URL of the cluster's, with the pooler in between; `listen_host` and `listen_port` name the server."""
        parts = urlsplit(url)
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        direct = urlencode({"listen_host": "127.0.0.1", "listen_port": self._cluster.port})
        query = "&".join(filter(None, [parts.query, direct]))
        return urlunsplit(parts._replace(netloc=host, query=query))

    def _write_files(self) -> None:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "md5",
            "auth_file": "users.txt",
            **self._settings,
        }
        lines = [f"* = host=127.0.0.1 port={self._cluster.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        self._write("pgbouncer.ini", "\n".join(["[databases]", *lines, ""]))
        self._write("users.txt", f'"{SUPERUSER}" "{self._cluster.password}"\n')

    def _write(self, name: str, text: str) -> None:
        path = self._scratch.path / name
        path.write_text(text)
        self._scratch.own(path)


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
