"""A PostgreSQL URL: what it may say, how a connection comes of it, and how it is shown without what is secret in it.

What libpq and the driver agree on is the driver's to read (hosts, sockets, TLS, password files, the PG… variables), so
the URL goes to it almost as it came. Ours are the checks that must come before: a password whose special characters
are not written as %40 and the like would be taken for a host, a port or an option, and then appear in an error; so what
is ambiguous is refused here, and no refusal quotes the URL.

Several hosts are tried one after the other, each within its share of the time: one that takes connections and says
nothing (a machine that hangs) would else keep us from the one that has taken its place.

Two options are ours. `listen_host` and `listen_port` say where the server itself is when the URL names a pooler:
PgBouncer in transaction mode gives each transaction another session, so there nothing may outlive one. Settings come
with each BEGIN, statements are not kept, and what needs a session of its own goes to the server directly.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from perdure.domain.errors import StoreUnusable

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

__all__ = ["BEGIN", "Connection", "Target", "parse"]

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Named, since a database may have another default, and a row that was waited for has to be read as it is now."""

_SCHEMES: Final = ("postgresql", "postgres")
_EXAMPLE: Final = "write postgresql://user@host/database"
_OURS: Final = frozenset({"listen_host", "listen_port"})
_FILES: Final = frozenset({"passfile", "sslcert", "sslcrl", "sslkey", "sslrootcert"})
_DRIVERS: Final = _FILES | {
    "database", "dbname", "gsslib", "host", "krbsrvname", "password", "port", "service", "ssl_max_protocol_version",
    "ssl_min_protocol_version", "sslmode", "sslnegotiation", "sslpassword", "target_session_attrs", "user",
}  # fmt: skip
"""The options that the driver reads. It takes any other for a setting of the server."""
_UNKNOWN_TO_DRIVER: Final = frozenset({
    "channel_binding", "connect_timeout", "fallback_application_name", "gssdelegation", "gssencmode", "hostaddr",
    "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts", "replication",
    "require_auth", "requirepeer", "requiressl", "sslcertmode", "sslcompression", "sslcrldir", "sslsni",
    "tcp_user_timeout",
})  # fmt: skip
"""libpq's options that the driver lacks. As settings the server would refuse them, in words that help nobody."""
_SHOWN: Final = (_DRIVERS | _OURS | {"application_name"}) - {"password", "sslpassword"}
"""Named, so that a mistyped `pasword=` is not shown either."""

_SETTINGS: Final = {
    # A statement is over in milliseconds. What takes longer than this waits for a machine that is gone or overloaded.
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    # A process may be stopped between BEGIN and COMMIT; then others wait for its locks no longer than this.
    "idle_in_transaction_session_timeout": "10s",
    # Compiling would cost more than the short statements that are all there are here.
    "jit": "off",
    # A plan is made once, for any values, often while a queue is empty and reading all of it costs nothing, and is kept
    # while the queue grows by a hundred thousand. So each statement goes by its indexes from the beginning, and what
    # comes as arrays is joined by hashing it: a nested loop over that would be quadratic in the size of a batch.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_nestloop": "off",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A database that can be connected to.

    `shown`: its URL without anything secret, for messages and logs, and for a command line. `pooled`: a pooler is in
    between, and statements belong into transactions opened by `begin`. `files`: the files that it names, by option.
    """

    shown: str
    pooled: bool
    files: Mapping[str, str]
    _dsn: str = field(repr=False)
    _settings: Mapping[str, str] = field(repr=False)
    _dsns: tuple[str, ...] = field(default=(), repr=False)
    """The URL with one host each, if it names several."""
    _host: list[str] | None = field(default=None, repr=False)
    _port: int | None = field(default=None, repr=False)
    _any_session: bool = field(default=False, repr=False)

    @property
    def migrate(self) -> str:
        """The command that makes or changes the tables."""
        return f"perdure migrate {shlex.quote(self.shown)}"

    @property
    def begin(self) -> str:
        """The command that begins a transaction; one round trip."""
        if not self.pooled:
            return BEGIN
        settings = {**_SETTINGS, **self._settings}
        del settings["application_name"]  # PgBouncer keeps that one for each of its clients
        return "; ".join([BEGIN, *(f"SET LOCAL {name} = {_literal(value)}" for name, value in settings.items())])

    async def connect(self, timeout: float) -> Connection:  # noqa: ASYNC109 - the driver's own, which also closes
        """A connection to work with; behind a pooler, one that must be used in transactions only.

        Raises:
            OSError: nobody answers, or not within `timeout` seconds, or TLS fails.
            asyncpg.PostgresError: the server refuses.
            asyncpg.InterfaceError, ValueError: the driver refuses the URL.
        """
        hosts = [{"dsn": dsn} for dsn in self._dsns or (self._dsn,)]
        if not self.pooled:
            return await _first(
                hosts,
                timeout,
                server_settings={**_SETTINGS, **self._settings},
                target_session_attrs=self._session(),
                max_cached_statement_lifetime=0,  # seconds; 0: for as long as there is room
            )
        return await _first(
            hosts,
            timeout,
            server_settings={"application_name": self._settings["application_name"]},
            # To find out more the driver would ask outside of a transaction; and the pooler chooses the server.
            target_session_attrs=SessionAttribute.any,
            statement_cache_size=0,
        )

    async def connect_directly(self, timeout: float) -> Connection:  # noqa: ASYNC109 - as above
        """A connection to the server itself, past any pooler, without bounds of time on what it does.

        Raises: as `connect`.
        """
        if self._host is not None:
            hosts = [{"dsn": self._dsn, "host": host, "port": self._port} for host in self._host]
        else:
            hosts = [{"dsn": dsn, "port": self._port} for dsn in self._dsns or (self._dsn,)]
        return await _first(
            hosts,
            timeout,
            server_settings=dict(self._settings),
            target_session_attrs=self._session(),
        )

    def _session(self) -> SessionAttribute | None:
        return None if self._any_session else SessionAttribute.read_write


async def _first(hosts: Sequence[Mapping[str, Any]], timeout: float, **options: Any) -> Connection:  # noqa: ASYNC109
    """A connection to the first of `hosts` that will do.

    If none does, what is raised is the last fault; that one of them is no primary is the least to say.
    """
    fault: Exception | None = None
    for host in hosts:
        try:
            return await asyncpg.connect(**host, timeout=timeout / len(hosts), **options)
        except asyncpg.TargetServerAttributeNotMatched as error:
            fault = fault or error
        except (OSError, asyncpg.PostgresError) as error:
            fault = error
    assert fault is not None  # noqa: S101 - there is a host at least
    raise fault


def parse(url: str) -> Target:
    """What `url` names. Connects to nothing.

    Raises:
        StoreUnusable: it can't be read; the message says which part, and shows nothing of it.
    """
    # Raised outside of each `except`: what urllib says quotes the URL, and would hang on to this error as its context.
    parts = _split(url)
    if parts is None:
        raise StoreUnusable(f"The URL of the database can't be read: {_EXAMPLE}")
    if (wrong := next(_wrong(url, parts), None)) is not None:
        raise StoreUnusable(f"The URL of the database can't be used: {wrong}")
    options = _options(parts)
    if options is None:
        raise StoreUnusable("The options in the URL of the database can't be read: write ?name=value&name=value")
    if (wrong := next(_wrong_options(options), None)) is not None:
        raise StoreUnusable(f"{_shown(parts, options)} can't be used: {wrong}")
    return _target(parts, options)


def _split(url: str) -> SplitResult | None:
    try:
        unquote(url, errors="strict").encode()
        return urlsplit(url)
    except ValueError:
        return None


def _options(parts: SplitResult) -> dict[str, str] | None:
    try:
        return dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        return None


def _wrong(url: str, parts: SplitResult) -> Iterator[str]:
    """What keeps the URL from being taken apart for sure."""
    if parts.scheme not in _SCHEMES or not url.startswith(f"{parts.scheme}://"):
        yield f"it does not begin with postgresql://; {_EXAMPLE}"
    if re.search(r"[\s\x00-\x1f\x7f]|%00", url):
        yield "there is a space, a line break or a null in it; take that out, or write a space as %20"
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        yield "there is a % in it that begins no %XX; write % itself as %25"
    if parts.fragment or "#" in url:
        yield "there is a # in it; write it as %23"
    if url.count("@") > int("@" in parts.netloc):
        yield "there is an @ in it that does not stand before the host; write each other as %40, / as %2F and ? as %3F"
    if not all(map(_is_host, (hosts := parts.netloc.rpartition("@")[2]).split(","))) and hosts:
        yield "a host or a port in it can't be read; write host:port, with commas between several"


def _is_host(text: str) -> bool:
    found = re.fullmatch(r"(?:\[[^\[\]]+\]|[^:\[\]]+)(?::(.*))?", text)
    return found is not None and (found[1] is None or _is_port(found[1]))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _wrong_options(options: Mapping[str, str]) -> Iterator[str]:
    for name in options:
        if name in _UNKNOWN_TO_DRIVER:
            yield f"Perdure's driver, asyncpg, has no option {name}; leave it out"
        # Anything odd may be part of a password, and is not shown.
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            yield "the name of an option in it can't be read; names are of letters, digits, _ and ."
    if not all(map(_is_port, options.get("port", "1").split(","))):
        yield "port is no number of a port"
    if not _is_port(options.get("listen_port", "1")):
        yield "listen_port is no number of a port"
    for name in ("host", "listen_host"):
        if "" in options.get(name, "-").split(","):
            yield f"{name} has an empty name in it"


def _target(parts: SplitResult, options: Mapping[str, str]) -> Target:
    mine = {name: value for name, value in options.items() if name in _DRIVERS}
    settings = {name: value for name, value in options.items() if name not in _DRIVERS | _OURS}
    settings.setdefault("application_name", os.environ.get("PGAPPNAME", "perdure"))
    host, port = options.get("listen_host"), options.get("listen_port")
    if host is not None and port is None:
        port = "5432"  # and not the URL's, which is the pooler's
    return Target(
        shown=_shown(parts, options),
        pooled=port is not None,
        files={name: mine[name] for name in sorted(_FILES & mine.keys())},
        _dsn=f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(mine)}",
        _settings=settings,
        _dsns=tuple(_single(parts, mine)),
        _host=None if host is None else host.split(","),
        _port=None if port is None else int(port),
        _any_session="target_session_attrs" in mine or "PGTARGETSESSIONATTRS" in os.environ,
    )


def _single(parts: SplitResult, options: Mapping[str, str]) -> Iterator[str]:
    """The URL once for each host. Nothing for hosts and ports that the driver finds elsewhere, or can't combine."""
    user, at, netloc = parts.netloc.rpartition("@")
    hosts, ports = (netloc or options.get("host", "")).split(","), options.get("port", "").split(",")
    if len(ports) not in (1, len(hosts)) or "," in os.environ.get("PGPORT", ""):
        return
    for host, port in zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=True):
        one = {**options, "port": port} if port else dict(options)
        if not netloc and host:
            one["host"] = host
        yield f"{parts.scheme}://{user}{at}{host if netloc else ''}{parts.path}?{urlencode(one)}"


def _shown(parts: SplitResult, options: Mapping[str, str]) -> str:
    user, at, hosts = parts.netloc.rpartition("@")
    kept = {name: value for name, value in options.items() if name in _SHOWN}
    netloc = f"{user.partition(':')[0]}{at}{hosts}"
    query = urlencode(kept, quote_via=quote, safe="/,:")
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
