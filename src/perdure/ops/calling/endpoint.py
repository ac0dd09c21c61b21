"""Servers as a command line names them, a URL or a command, and sessions with them.

A token comes from the environment or a file, and goes only where nobody on the way can read it: over https, or to this
machine. It is never an argument, which every user of the machine can see, and never shown.

In the journal a server that is a command has the folder in it that the command was given in, since `python server.py`
means nothing elsewhere: who resumes its task starts the same one.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
from mcp.client import Client
from mcp.client.session import ElicitationFnT
from mcp.client.stdio import StdioServerParameters, stdio_client

from perdure.client import HTTP, Journal, Tasks
from perdure.domain.hosts import is_this_machine
from perdure.ops import text
from perdure.ops.discretion import is_secretive, without_secrets, without_values

from .typed import Unfit

__all__ = [
    "TOKEN",
    "TOKEN_FILE",
    "Access",
    "Door",
    "Endpoint",
    "HttpEndpoint",
    "ServerLog",
    "StdioEndpoint",
    "connected",
    "named",
    "nearest_url",
    "parse_name",
    "parse_url",
    "shown",
]

TOKEN: Final = "PERDURE_TOKEN"  # noqa: S105 - a name
TOKEN_FILE: Final = "PERDURE_TOKEN_FILE"  # noqa: S105 - a name
_FOR_ALL_TO_SEE: Final = f"a URL is there for all to see: put the secret into {TOKEN} or a token file"
_REFUSED: Final = 400
_WITHOUT_SCHEME: Final = re.compile(
    r"(?:(?:localhost|[\w-]+(?:\.[\w-]+)+|\[[0-9a-fA-F:]+\])(?::\d+)?|[\w-]+:\d+)(?:/\S*)?"
)
_STDIO: Final = "stdio:"
_LAST_LINES: Final = 20
_LAST_BYTES: Final = 8_192
_PIPE: Final = 65_536
"""What a pipe holds on Linux; macOS has it, too."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server over HTTP."""

    url: str

    @property
    def name(self) -> str:
        """In the journal: as `perdure.client.server_of` has it."""
        return self.url.partition("#")[0]

    @property
    def shown(self) -> str:
        """For people."""
        return _shown(self.url)

    @property
    def origin(self) -> str:
        """Who a token is for."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class StdioEndpoint:
    """A server that is started, and spoken to over its standard input and output."""

    command: tuple[str, ...]
    folder: str

    @property
    def name(self) -> str:
        """In the journal."""
        return f"{_STDIO}{shlex.join([self.folder, *self.command])}"

    @property
    def shown(self) -> str:
        """For people."""
        return f"{shlex.join(self.command)} (in {self.folder})"


Endpoint = HttpEndpoint | StdioEndpoint


@dataclass(frozen=True, slots=True)
class Access:
    """What opens a server. `over_http`: the token may go to another machine in plain sight."""

    token: str | None = field(default=None, repr=False)
    over_http: bool = False

    @classmethod
    def found(cls, file: str | None, *, over_http: bool) -> Access:
        """From the file, or else from the environment.

        Raises:
            Unfit: what there is can't be a token.
        """
        name = file or os.environ.get(TOKEN_FILE)
        if not name:
            return cls(_token(os.environ.get(TOKEN, ""), TOKEN), over_http)
        try:
            token = _token(Path(name).read_text("ascii"), name)
        except OSError as error:
            raise Unfit(f"the token file {name} can't be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Unfit(f"{name} holds no token: it is not ASCII") from None
        if token is None:
            raise Unfit(f"{name} holds no token: it is empty")
        return cls(token, over_http)

    def headers(self, server: HttpEndpoint) -> dict[str, str]:
        """What goes along with each request.

        Raises:
            Unfit: the token would be there for everybody to read.
        """
        if self.token is None:
            return {}
        parts = urlsplit(server.url)
        if parts.scheme != "https" and not self.over_http and not is_this_machine(parts.hostname or ""):
            raise Unfit(
                f"the token would go to {parts.hostname} over plain http, where others can read it: "
                f"use https, say --token-over-http, or unset {TOKEN}"
            )
        return {"Authorization": f"Bearer {self.token}"}


class Door(httpx2.Auth):
    """Sees how a server over HTTP answers, of which the SDK keeps little. `status`: of its last answer, if any."""

    def __init__(self) -> None:
        self.status: int | None = None

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        """As httpx2 has it."""
        response = yield request
        self.status = response.status_code

    def refusal(self, server: Endpoint, access: Access) -> str | None:
        """Why there is no session, if the last answer says so."""
        if self.status is None or self.status < _REFUSED or not isinstance(server, HttpEndpoint):
            return None
        match self.status:
            case 401 | 403 if access.token is None:
                why = f"it wants a token, in {TOKEN} or in the file that {TOKEN_FILE} names"
            case 401 | 403:
                why = f"it does not take the token that {TOKEN} or the token file has"
            case 404:
                why = f"no server there; is the path /mcp, and not {urlsplit(server.url).path or '/'}?"
            case _:
                why = "it does not take the request"
        return f"HTTP status {self.status}: {text.line(why)}"


def _token(said: str, where: str) -> str | None:
    token = said.strip()
    if any(not "!" <= each <= "~" for each in token):
        raise Unfit(f"{where} holds no token: one line without spaces is wanted")
    return token or None


def parse_url(url: str) -> HttpEndpoint:
    """The server at a URL that somebody types.

    Raises:
        Unfit: it is no URL of a server, or holds a secret.
    """
    parts = urlsplit(_checked(url))
    if parts.username is not None or parts.password is not None:
        raise Unfit(_FOR_ALL_TO_SEE)
    if any(value and is_secretive(name) for name, value in parse_qsl(parts.query)):
        raise Unfit(_FOR_ALL_TO_SEE)
    return HttpEndpoint(url)


def nearest_url(word: str) -> str | None:
    """The URL that somebody may mean who says `127.0.0.1:8000/mcp`."""
    if _WITHOUT_SCHEME.fullmatch(word) is None:
        return None
    try:
        host = urlsplit(f"http://{word}").hostname or ""
    except ValueError:
        return None
    return f"{'http' if is_this_machine(host) else 'https'}://{word}"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
        parts = urlsplit("")
    if not known or text.line(url) != url:
        raise Unfit(f"That is no URL of a server, which is that of a web page, http or https: {text.line(url)}")
    return url


def parse_name(name: str) -> Endpoint:
    """The server that the journal calls so.

    Raises:
        Unfit: it is of another program's making.
    """
    if not name.startswith(_STDIO):
        return HttpEndpoint(_checked(name))
    try:
        folder, *command = shlex.split(name.removeprefix(_STDIO))
    except ValueError:
        folder, command = "", []
    if not command or not folder.startswith("/"):
        raise Unfit(f"the journal's server {text.line(name)} can't be started from here")
    return StdioEndpoint(tuple(command), folder)


def named(name: str) -> Endpoint | None:
    """The server that the journal calls so; None where that is of another program's making."""
    try:
        return parse_name(name)
    except Unfit:
        return None


def shown(name: str) -> str:
    """The server that the journal calls so, for people."""
    place = named(name)
    return without_secrets(name) if place is None else place.shown


def _shown(url: str) -> str:
    """Without what is a secret: one before the host, or in the query."""
    head, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    return f"{head}://{'…' if user else ''}{at}{host}{slash}{without_values(path)}"


class ServerLog:
    """The end of what a server that was started writes to its standard error. It is nobody's to paint a terminal with.

    `file` is where it writes: a pipe, which is read as long as the session lasts, so that a server that talks for days
    fills no disk.
    """

    def __init__(self) -> None:
        self._reads, writes = os.pipe()
        os.set_blocking(self._reads, False)
        self.file: TextIO = os.fdopen(writes, "w", encoding="utf-8")
        self._end = b""

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """A block in which it is read."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _keep(self) -> None:
        while True:
            await anyio.wait_readable(self._reads)
            self._take()

    def _take(self) -> None:
        with suppress(BlockingIOError):
            self._end = (self._end + os.read(self._reads, _PIPE))[-_LAST_BYTES:]

    def closed(self) -> tuple[str, ...]:
        """The end of it, fit to be shown. It is gone then; a second time there is nothing."""
        if self.file.closed:
            return ()
        self._take()
        self.file.close()
        os.close(self._reads)
        return tuple(map(text.line, self._end.decode("utf-8", "replace").splitlines()[-_LAST_LINES:]))


@asynccontextmanager
async def connected(
    server: Endpoint, journal: Journal, access: Access, ask: ElicitationFnT, log: ServerLog, door: Door
) -> AsyncGenerator[tuple[Client, Tasks]]:
    """A session with the server, and the tasks of it.

    Raises:
        Unfit: the server must not be given the token.
        Exception: whatever the SDK makes of a server that can't be reached.
    """
    tasks = Tasks(journal, server=server.name)
    if isinstance(server, HttpEndpoint):
        # What stays on this machine goes through no proxy, which would see the token, and has another machine in mind.
        is_near = is_this_machine(urlsplit(server.url).hostname or "")
        transport = HTTP(server.url, headers=access.headers(server), auth=door, trust_env=not is_near)
    else:
        transport = stdio_client(_parameters(server), errlog=log.file)
    async with Client(transport, extensions=[tasks], elicitation_callback=ask) as client:
        yield client, tasks


def _parameters(server: StdioEndpoint) -> StdioServerParameters:
    """The command sees what a command that is typed sees, but for tokens, which are for servers over HTTP."""
    command, *arguments = server.command
    environment = {name: value for name, value in os.environ.items() if name not in {TOKEN, TOKEN_FILE}}
    return StdioServerParameters(command=command, args=arguments, env=environment, cwd=server.folder)
