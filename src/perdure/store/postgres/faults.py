"""What errors of driver and server mean: whether they pass by themselves, and what to do about them at start-up.

The server's codes decide, not its words, which may be in any language. Its first line is passed on where it names what
ours can't (which role, which limit); neither it nor the driver ever repeats a password.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

import asyncpg

from perdure.domain.errors import StoreUnusable

from .url import Target

__all__ = ["READ_ONLY", "at_value", "moved", "passes", "retriable", "unusable"]

_PASSING_CLASSES: Final = (
    "08",  # the connection
    "40",  # rolled back: a deadlock, a conflict
    "53",  # too little of something: disk, memory, connections
    "57",  # somebody stepped in: cancelled (a time ran out), shut down, starting up
    "58",  # a fault of the system beneath the server
)
_PASSING: Final = frozenset({
    "25006",  # read-only: the primary has become a standby, or is about to be one
    "25P03",  # idle in a transaction for too long
    "25P04",  # in a transaction for too long
    "55P03",  # a lock was not to be had in time
    # The start has seen to these, so an operator is at work: a backup is being restored, or rights are given anew. It
    # concerns everybody alike, and what a task came to must not be thrown away for it.
    "3F000",  # no schema
    "42501",  # too few rights
    "42P01",  # no table
})  # fmt: skip
_RETRIABLE: Final = frozenset({
    "40001",  # serialization
    "40P01",  # deadlock
})  # fmt: skip

READ_ONLY: Final = (
    "is read-only, as a standby is, or a database with default_transaction_read_only: name the primary, or several "
    "hosts (host1,host2) that it is one of"
)
_POOLER: Final = (
    "is behind a pooler ({said}): add listen_host= and listen_port= to the URL, which say where the server itself is"
)
_SQLSTATES: Final = {
    "22023": "does not take an option of the URL ({said}): correct it, or leave it out",
    "25006": READ_ONLY,
    "26000": _POOLER,
    "28000": "does not let this user in ({said}): correct the user, or allow it in the server's pg_hba.conf",
    "28P01": "refuses the password, or there is none: correct it in the URL, in PGPASSWORD or in the password file",
    "3D000": "names a database that does not exist: create it (CREATE DATABASE), or name another",
    "3F000": "has no schema perdure: run `{migrate}`",
    "42501": (
        "gives this user too few rights ({said}): GRANT USAGE ON SCHEMA perdure, SELECT, INSERT, UPDATE, DELETE ON ALL "
        "TABLES IN SCHEMA perdure and USAGE ON ALL SEQUENCES IN SCHEMA perdure to it"
    ),
    "42703": "has a schema perdure that Perdure did not make ({said}): name a database of its own for the task store",
    "42704": "does not know an option of the URL ({said}): correct it, or leave it out",
    "42P01": "lacks a table ({said}): run `{migrate}`",
    "42P05": _POOLER,
    "53100": "can't grow: the server's disk is full; make room",
    "53300": (
        "takes no more connections ({said}): start fewer processes, raise the server's max_connections or the user's "
        "CONNECTION LIMIT, or put PgBouncer in front"
    ),
    "55P03": "is in use, and a lock was not to be had in time ({said}): try again, or end what holds it",
    "57014": "took too long ({said}): try again, or look what keeps the server busy",
    "57P03": "is starting up or shutting down ({said}): try again in a moment",
}

_POOLERS: Final = (
    ("unsupported startup parameter", "26000"),
    ("password authentication failed", "28P01"),
    ("SASL authentication failed", "28P01"),
    ("no such user", "28P01"),
    ("does not exist", "3D000"),
    ("no such database", "3D000"),
    ("no more connections", "53300"),
)
"""PgBouncer, which speaks English only, has one code for everything; the server's would have been these."""


def passes(error: BaseException) -> bool:
    """Whether it is of the kind that is over by itself: the database is away, busy, or on its way to another server."""
    if isinstance(error, asyncpg.PostgresError):
        code = _code(error)
        return code in _PASSING or code.startswith(_PASSING_CLASSES) or retriable(error)
    if isinstance(error, asyncpg.InterfaceError):
        # A connection that was closed under us; any other is a mistake in how the driver was called.
        return "closed" in str(error)
    # InternalClientError: the server has said goodbye, and the end of the connection has not been read yet.
    return isinstance(error, OSError | asyncpg.TargetServerAttributeNotMatched | asyncpg.InternalClientError)


def moved(error: BaseException) -> bool:
    """Whether the server may no longer be written to, so that another one is likely to have taken its place."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)


def retriable(error: BaseException) -> bool:
    """Whether the same transaction may well succeed at once: it lost against another, or its plan is out of date."""
    if isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError):
        return True  # a migration has changed a table under us; the driver has forgotten the plan by now
    return isinstance(error, asyncpg.PostgresError) and _code(error) in _RETRIABLE


def at_value(error: BaseException) -> bool:
    """Whether it is the value that is at fault: too large, or nothing that the column can hold."""
    return isinstance(error, asyncpg.PostgresError) and _code(error).startswith(("22", "54"))


def unusable(error: BaseException, target: Target) -> StoreUnusable | None:
    """What to say when the store can't be opened because of `error`; None where it is no fault of the database."""
    if isinstance(error, asyncpg.PostgresError):
        what = _SQLSTATES.get(_code(error), "can't be used: {said}").format(said=_said(error), migrate=target.migrate)
    elif isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        what = READ_ONLY
    elif isinstance(error, ssl.SSLError):
        what = _tls(error)
    elif isinstance(error, OSError):
        what = _unreachable(error, target)
    elif isinstance(error, asyncpg.InterfaceError | ValueError):
        what = f"is no URL that the driver can use ({_said(error)}): correct it, or the PG… variables"
    else:
        return None
    return StoreUnusable(f"{target.shown} {what}")


def _code(error: asyncpg.PostgresError) -> str:
    code = error.sqlstate or ""
    if code == "08P01":
        return next((better for words, better in _POOLERS if words in str(error)), code)
    return code


def _said(error: BaseException) -> str:
    """The first line of what it says, which has no details in it and no hints."""
    return " ".join(str(error).strip().partition("\n")[0].split()) or type(error).__name__


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"shows a certificate that is not to be trusted ({error.verify_message.rstrip('.')}): name its authority's "
            "by sslrootcert=, and the host as the certificate does"
        )
    return f"fails at TLS ({error.reason or _said(error)}): check sslmode=, sslrootcert=, sslcert= and sslkey="


def _unreachable(error: OSError, target: Target) -> str:
    missing = [f"{option}={path}" for option, path in target.files.items() if not Path(path).is_file()]
    if missing and isinstance(error, FileNotFoundError):
        return f"can't be used: there is no file {', '.join(missing)}; correct the path"
    if isinstance(error, PermissionError):
        return "can't be used: this user may not read its certificate or key, or write to its socket; fix their mode"
    if isinstance(error, socket.gaierror):
        return f"has a host that can't be found ({error.strerror}): correct it, or look to the name server"
    if isinstance(error, TimeoutError):
        return "does not answer in time: correct host and port, or look for a firewall or a server that hangs"
    if "SSL upgrade" in str(error):
        return "offers no TLS, and sslmode= asks for it: switch ssl on in the server, or write sslmode=prefer"
    return f"does not answer ({error.strerror or _said(error)}): start the server, or correct host and port"
