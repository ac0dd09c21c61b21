"""The server: how it is made, started, and treated the way that machines and operators treat it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlencode

from perdure.ops.stores import upgrade_of

from .guard import processes
from .programs import free_port, server_programs
from .scratch import Private, ProgramFailed, Scratch, tail

__all__ = ["Cluster", "Mode"]

Mode = Literal["smart", "fast", "immediate"]
"""How a server is stopped: once its clients have left; now, in order; or now, with a recovery at the next start."""

SUPERUSER: Final = "postgres"
_PATIENCE: Final = 60.0
"""Seconds for a start or a stop. Generous: machines are shared, and a recovery reads what there is."""
_STOPS: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_ALWAYS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_line_prefix": "%m [%p] %q%u@%d %a ",
    "lc_messages": "C",
    "timezone": "UTC",
    "max_connections": "100",
}
_FORGETFUL: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum_naptime": "1h",  # many databases, each of a second's life
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",  # it may lie in memory
    "max_wal_size": "128MB",
}
_DROP: Final = "DROP DATABASE IF EXISTS {} WITH (FORCE);"
_TAKEN: Final = "Address already in use"


class Cluster(Private):
    """A private server. A context manager; `start` may be called alone, and then `close` ends it.

    Args:
        folder: where; it must be empty or not exist, and is removed at `close`. A temporary one by default.
        durable: as in production. If False, a crash of the machine may lose everything, and an immediate stop may lose
            the last second unless `synchronous_commit` is on; tests are faster. The files are in memory if they fit.
        auth: the method in pg_hba.conf: "password" (quick), "scram-sha-256" (costs a client milliseconds), "trust".
        settings: of postgresql.conf; a later `ALTER SYSTEM` goes before them.

    Raises:
        ProgramMissing: there is no PostgreSQL here; one line says what to install.
        ValueError: the folder won't do.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        durable: bool = True,
        auth: str = "password",
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        self._programs = server_programs()
        self._make: Callable[[], None] = self._initdb
        self._durable = durable
        self._auth = auth
        self._settings = {**_ALWAYS, **({} if durable else _FORGETFUL), **(settings or {})}
        self._paused = False
        self._process: subprocess.Popen[bytes] | None = None
        self.password = secrets.token_hex(16)
        """The superuser's."""
        self.port = free_port()
        """Stays the same over restarts."""
        self._scratch = Scratch(folder, signal.SIGQUIT, in_memory=not durable)
        self.folder = self._scratch.path
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"

    # -- life and death ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server, and wait until it takes connections. The first start makes the data directory.

        Raises:
            ProgramFailed: it does not come up; the end of its log is in the message.
        """
        fresh = not (self.data / "PG_VERSION").exists()
        if fresh:
            self._make()
        while not self._come_up():
            if not (fresh and _TAKEN in self.log_tail()):
                raise ProgramFailed(f"the server ended while it started:\n{self.log_tail()}")
            self.log.unlink()
            self.port = free_port()

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server, and wait until it is gone. A paused one is resumed for it.

        Raises:
            ProgramFailed: it does not end.
        """
        if self._process is None:
            return
        self._process.send_signal(_STOPS[mode])
        self.resume()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"the server does not stop:\n{self.log_tail()}") from None
        self._process = None

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End the server at once, and remove its folder. May be called twice."""
        self._scratch.close()
        if self._process is not None:
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP to the server and all its backends. Connections stay open, new ones are accepted by the kernel."""
        self._paused = True
        self._process_now().send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + _PATIENCE
        # Until the server has stopped there may be a backend that was not there a moment ago.
        while moving := [pid for pid in self.pids() if not _stopped(pid)]:
            if time.monotonic() > deadline:
                raise ProgramFailed(f"processes {moving} do not stop")
            for pid in moving:
                _send(pid, signal.SIGSTOP)
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT to all of them. Nothing happens if it is not paused."""
        if self._paused:
            for pid in self.pids():
                _send(pid, signal.SIGCONT)
            self._paused = False

    def reload(self) -> None:
        """Read the configuration files again."""
        self._process_now().send_signal(signal.SIGHUP)

    @property
    def running(self) -> bool:
        """Whether there is a server process."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the server process, the parent of all the others.

        Raises:
            ProgramFailed: it is not running.
        """
        return self._process_now().pid

    def pids(self) -> list[int]:
        """The ids of the server process and of all its children."""
        return processes(str(self.data))

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's log."""
        return tail(self.log, lines)

    def own(self, path: Path, mode: int = 0o600) -> Path:
        """Give a file, such as a TLS key, to the user whom the server runs as."""
        return self._scratch.own(path, mode)

    # -- databases -----------------------------------------------------------------------------------------------------

    def url(
        self,
        database: str = SUPERUSER,
        *,
        user: str = SUPERUSER,
        password: str | None = None,
        also: Cluster | None = None,
        **options: str | int,
    ) -> str:
        """The URL of a database. `options` become its query. The password defaults to the superuser's, for that one.

        `also`: another server to look for it, such as a standby.
        """
        if password is None and user == SUPERUSER:
            password = self.password
        who = quote(user, safe="") + ("" if password is None else ":" + quote(password, safe=""))
        query = f"?{urlencode(options)}" if options else ""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in (self, also) if each is not None)
        return f"postgresql://{who}@{hosts}/{quote(database, safe='')}{query}"

    def create_database(self, name: str, template: str | None = None, *, instead_of: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, which nobody may be connected to. Returns its URL.

        `instead_of` is dropped first; that takes less time than two calls.
        """
        dropped = "" if instead_of is None else _DROP.format(_quoted(instead_of))
        copied = "" if template is None else f" TEMPLATE {_quoted(template)}"
        self.sql(f"{dropped}CREATE DATABASE {_quoted(name)}{copied}{self._strategy()}")
        return self.url(name)

    def create_store(self, name: str) -> str:
        """Create a database with the tables of this release, all migrations applied. Returns its URL, for `Tasks`.

        Raises:
            StoreUnusable: the driver is not installed; one line says how to.
        """
        url = self.create_database(name)
        with ThreadPoolExecutor(1) as aside:  # there may be a loop in the caller's thread
            aside.submit(asyncio.run, upgrade_of(url).apply(post=True)).result()
        return url

    def drop_database(self, name: str) -> None:
        """Drop a database if there is one, whoever is connected to it."""
        self.sql(_DROP.format(_quoted(name)))

    def terminate_backends(self, where: str = "true") -> int:
        """End client connections by `pg_terminate_backend`: how many. `where`: a condition on pg_stat_activity."""
        ended = self.sql(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity "  # noqa: S608 - a test's own
            f"WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND ({where})"
        )
        return int(ended)

    def sql(self, statements: str, database: str = SUPERUSER) -> str:
        """Run statements as the superuser, each in a transaction of its own, by psql.

        Returns the rows that they yield, a line each, with `|` between columns.

        Raises:
            ProgramFailed: one failed; the rest was not run.
        """
        done = subprocess.run(  # noqa: S603 - PostgreSQL's psql
            [self._programs / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(database, password="")],
            input=statements,
            env=self._scratch.environment({"PGPASSWORD": self.password, "PGCONNECT_TIMEOUT": "30"}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(done.stderr.strip())
        return done.stdout.rstrip("\n")

    # -- replication ---------------------------------------------------------------------------------------------------

    def standby(self, folder: Path | None = None) -> Cluster:
        """A hot standby of this server, with its data and settings. The copy is made at its first start."""
        made = Cluster(folder, durable=self._durable, auth=self._auth)
        made.password = self.password
        made._make = lambda: made._copy(self)
        return made

    def promote(self) -> None:
        """Make a standby a server that is written to, and wait until it is."""
        self.sql(f"SELECT pg_promote(true, {_PATIENCE:.0f})")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _initdb(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        self.own(secret)
        options = ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", f"--username={SUPERUSER}"]
        options += [f"--pwfile={secret}", f"--auth={self._auth}", "--no-instructions"]
        self._scratch.run([self._programs / "initdb", "-D", self.data, *options])
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in self._settings.items())

    def _copy(self, primary: Cluster) -> None:
        source = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} dbname=replication"
        options = ["-R", "--checkpoint=fast", "--wal-method=stream", "--no-sync", "-d", source]
        self._scratch.run([self._programs / "pg_basebackup", "-D", self.data, *options], PGPASSWORD=self.password)

    def _come_up(self) -> bool:
        """Whether the server takes connections; False: it ended instead."""
        command = [self._programs / "postgres", "-D", self.data, "-p", str(self.port)]
        self._process = self._scratch.spawn(command, self.log)
        deadline = time.monotonic() + _PATIENCE
        while not self._ready(self._process.pid):
            if self._process.poll() is not None:
                self._process = None
                return False
            if time.monotonic() > deadline:
                raise ProgramFailed(f"the server does not come up:\n{self.log_tail()}")
            time.sleep(0.005)
        return True

    def _ready(self, pid: int) -> bool:
        """As pg_ctl sees it: the first line of the server's own note is its id, the eighth is how it is."""
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
        return False

    def _strategy(self) -> str:
        """In memory, copied files (and their two checkpoints) take half the time of copied pages; on a disk, thrice."""
        version = int((self.data / "PG_VERSION").read_text())
        return " STRATEGY file_copy" if self._scratch.in_memory and version >= 15 else ""

    def _process_now(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ProgramFailed("the server is not running")
        return self._process


def _stopped(pid: int) -> bool:
    """Whether the process stands still, or is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "TtZX"


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str | int) -> str:
    return "'" + str(value).replace("'", "''") + "'"
