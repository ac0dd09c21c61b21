"""What `deploy/` describes, without systemd and without containers: the commands of its units, and its nginx.

A unit's command is run as it stands there, with its variables filled in; only where the program lies is another place.
nginx gets `deploy/nginx` with other ports and paths, and runs as somebody unprivileged, in a folder of its own.
"""

import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from perdure.testing.postgresql.scratch import Scratch, tail
from tests.acceptance.support import Server, accepts, free_port
from tests.acceptance.workers import WORKING, launch
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import EVERYTHING, JSON, Headers, meta
from tests.wire.support import ROOT, Client, Reply

DEPLOY: Final = ROOT / "deploy"
UNITS: Final = DEPLOY / "systemd"
NAME: Final = "tasks.example.com"
BIN: Final = Path(sys.executable).parent
KEY: Final = "dev.perdure/idempotencyKey"


# -- units -------------------------------------------------------------------------------------------------------------


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit file, each with all its values."""
    text = re.sub(r"\\\n\s*", "", (UNITS / f"{name}.service").read_text("utf-8"))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def command(name: str, instance: str, env: Mapping[str, str], setting: str = "ExecStart") -> list[str]:
    """A unit's command as systemd would run it: `${X}` is one word, `$X` as many as there are in it."""
    settings = unit(name)
    given = [each.split("=", 1) for line in settings.get("Environment", []) for each in shlex.split(line)]
    values = dict(given) | dict(env)
    [line] = settings[setting]
    words: list[str] = []
    for word in line.replace("%i", instance).replace("/opt/perdure/bin", str(BIN)).split():
        if word.startswith("$") and not word.startswith("${"):
            words += values[word[1:]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], word))
    return words


# -- nginx -------------------------------------------------------------------------------------------------------------

MAIN: Final = """\
pid nginx.pid;
error_log error.log notice;
worker_processes 1;
daemon off;
events {{ worker_connections 512; }}
http {{
    log_format hops '$http_mcp_method $upstream_addr $status';
    access_log hops.log hops;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include {site};
}}
"""


def nginx() -> str:
    found = shutil.which("nginx", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    assert found, "no nginx found: install it (Debian: apt-get install nginx)"
    return found


class Balancer:
    """nginx with a site of `deploy/`, whose text is changed as `changes` say. A context manager of `balancing`."""

    def __init__(self, scratch: Scratch, site: Path, changes: Mapping[str, str], port: int) -> None:
        self.scratch = scratch
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._certify()
        text = site.read_text("utf-8")
        routes = self._write("routes.conf", (DEPLOY / "nginx/routes.conf").read_text("utf-8"))
        for old, new in {**changes, "/etc/nginx/perdure/routes.conf": str(routes)}.items():
            assert old in text, f"{site.name} has no {old!r}"
            text = text.replace(old, new)
        self._main = self._write("nginx.conf", MAIN.format(site=self._write("site.conf", text)))

    @property
    def command(self) -> list[str]:
        return [nginx(), "-p", str(self.scratch.path), "-e", "error.log", "-c", str(self._main)]

    @property
    def hops(self) -> list[list[str]]:
        """Of each request: the method of its header, the servers that were asked, and the status."""
        return [line.replace(", ", ",").split() for line in (self.scratch.path / "hops.log").read_text().splitlines()]

    async def start(self) -> None:
        process = self._process = self.scratch.spawn(self.command, self.scratch.path / "output.log")

        def up() -> bool:
            assert process.poll() is None, tail(self.scratch.path / "output.log") + tail(
                self.scratch.path / "error.log"
            )
            return accepts(self.port)

        await eventually(up, "nginx listens")

    def close(self) -> None:
        """Stop it, and remove its folder."""
        self.scratch.close()
        if self._process is not None:
            self._process.wait(PATIENCE)

    def test(self) -> None:
        """`nginx -t`."""
        self.scratch.run([*self.command, "-t"])

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator["Patient"]:
        """A client that comes by the name of the site, whose certificate it checks."""
        trust = ssl.create_default_context(cafile=str(self.scratch.path / "fullchain.pem"))

        async def named(request: httpx2.Request) -> None:
            request.headers["host"] = NAME
            request.extensions["sni_hostname"] = NAME

        hooks: dict[str, list[Any]] = {"request": [named]}
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, verify=trust, event_hooks=hooks) as http:
            yield Patient(http, f"https://127.0.0.1:{self.port}/mcp")

    def _write(self, name: str, text: str) -> Path:
        path = self.scratch.path / name
        path.write_text(text, "utf-8")
        return self.scratch.own(path)

    def _certify(self) -> None:
        key, made = (self.scratch.path / name for name in ("privkey.pem", "fullchain.pem"))
        options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
        options += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
        subprocess.run(
            ["openssl", "req", "-x509", *options, "-keyout", key, "-out", made], check=True, capture_output=True
        )
        for path in (key, made):
            self.scratch.own(path)


@contextmanager
def balancing(site: str, changes: Mapping[str, str], port: int) -> Generator[Balancer]:
    """A `Balancer` that is not started yet. At the end it is stopped, and its folder is gone."""
    scratch = Scratch(None, signal.SIGQUIT)
    try:
        balancer = Balancer(scratch, DEPLOY / site, changes, port)
    except BaseException:
        scratch.close()
        raise
    try:
        yield balancer
    finally:
        balancer.close()


def on_loopback(port: int, *servers: int) -> dict[str, str]:
    """What is changed in `nginx/perdure.conf`: ports, and where the certificate is (beside the configuration)."""
    moved = {f"127.0.0.1:800{number}": f"127.0.0.1:{server}" for number, server in enumerate(servers, 1)}
    return {**moved, "listen 443 ": f"listen 127.0.0.1:{port} ", "/etc/ssl/perdure/": ""}


# -- clients -----------------------------------------------------------------------------------------------------------


class Patient(Client):
    """A client that makes a request once more when the balancer could not have it answered."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str | None = None) -> None:
        super().__init__(http, url, token)
        self.http = http
        self.retried: list[str] = []
        """The methods of those."""
        self.broken: list[str] = []
        """The methods of those whose response broke off: no balancer can have that begun anew."""

    async def exchange(self, body: JSON, extra: Headers | None = None) -> Reply:
        try:
            reply = await super().exchange(body, extra)
        except httpx2.RemoteProtocolError:
            self.broken.append(body["method"])
            reply = await super().exchange(body, extra)
        if reply.status == 502:
            self.retried.append(body["method"])
            reply = await super().exchange(body, extra)
        return reply

    async def begin(self, label: str) -> str:
        """A task, by a call that may be made twice."""
        return await self.start("short", {"label": label}, params={"_meta": {**meta(EVERYTHING), KEY: label}})


# -- all of it ---------------------------------------------------------------------------------------------------------


@dataclass
class Deployment:
    """What runs: processes by unit and instance."""

    folder: Path
    env: Mapping[str, str]
    balancer: Balancer
    client: Patient
    processes: dict[tuple[str, str], Server] = field(default_factory=dict[tuple[str, str], Server])

    async def start(self, name: str, instance: str) -> None:
        """Start a unit. `up` waits for it."""
        port = int(instance) if name == "perdure-server@" else 0
        words = command(name, instance, self.env)
        process = await launch(self.folder, *words, port=port, env=self.env, anew=True)
        self.processes[name, instance] = process

    async def up(self, name: str, instance: str) -> Server:
        """Wait until a unit is at work: a server until what comes after its start in the unit succeeds."""
        process = self.processes[name, instance]
        if name == "perdure-server@":
            *_, url = command(name, instance, self.env, "ExecStartPost")
            await eventually(lambda: self._healthy(process, url), f"{url} answers")
        else:
            await eventually(lambda: WORKING in self._said(process), f"{name}{instance} works")
        return process

    async def restart(self, name: str, instance: str) -> None:
        """`systemctl restart`."""
        (within,) = unit(name)["TimeoutStopSec"]
        assert float(within) > 25
        assert await self.processes[name, instance].stop() in (0, -signal.SIGTERM)
        await self.start(name, instance)
        await self.up(name, instance)

    def of(self, name: str) -> list[Server]:
        return [process for (each, _), process in self.processes.items() if each == name]

    async def _healthy(self, process: Server, url: str) -> bool:
        self._said(process)
        if not accepts(process.port):
            return False
        async with httpx2.AsyncClient(trust_env=False, verify=False) as http:
            return (await http.get(url)).status_code == 200

    @staticmethod
    def _said(process: Server) -> str:
        assert process.alive, process.output.read_text()
        return process.output.read_text()


def secret_apart(url: str) -> dict[str, str]:
    """A database's URL as the units have it: the password is not in it."""
    parts = urlsplit(url)
    assert parts.password
    return {"PERDURE_STORE": url.replace(f":{parts.password}@", "@"), "PGPASSWORD": parts.password}


def migrated(env: Mapping[str, str]) -> str:
    """What the unit that migrates says."""
    done = subprocess.run(
        command("perdure-migrate", "", env),
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@asynccontextmanager
async def deployed(folder: Path, database: str, workers: Sequence[str] = ("1", "2")) -> AsyncGenerator[Deployment]:
    """Two servers and two workers on a database, behind nginx. At the end they are stopped."""
    env = {**secret_apart(database), "PERDURE_APP": "tests.acceptance.deployed:mcp"}
    port, first, second = free_port(), free_port(), free_port()
    units = [("perdure-server@", str(first)), ("perdure-server@", str(second))]
    units += [("perdure-worker@", each) for each in workers]
    async with AsyncExitStack() as stack:
        balancer = stack.enter_context(balancing("nginx/perdure.conf", on_loopback(port, first, second), port))
        client = await stack.enter_async_context(balancer.connected())
        deployment = Deployment(folder, env, balancer, client)
        stack.push_async_callback(_ended, deployment)
        for each in units:
            await deployment.start(*each)
        await balancer.start()
        for each in units:
            await deployment.up(*each)
        yield deployment
        for process in deployment.processes.values():
            assert not process.complaints(), process.output.read_text()


async def _ended(deployment: Deployment) -> None:
    for process in deployment.processes.values():
        if process.alive:
            await process.end(signal.SIGKILL)
