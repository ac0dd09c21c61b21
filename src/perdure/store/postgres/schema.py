"""What a database must be like, and the migrations that make it so.

Start-up never changes a schema: many replicas start at once, of two releases during a deploy, and often as a user who
may not. `perdure migrate` does, in one transaction under one lock, and which migrations a database has is told by its
own table. So a replica only looks whether the tables are there that it needs, and that nothing was taken away from
under it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from asyncpg import Record

from perdure.domain.errors import StoreUnusable
from perdure.store import migrate
from perdure.store.migrate import Migration, Phase

from .faults import READ_ONLY
from .url import BEGIN, Connection, Target

__all__ = ["State", "apply", "check", "look", "script"]

MIGRATIONS = migrate.load("perdure.store.postgres")
_OLDEST: Final = 14
_LOCK: Final = 0x50455244  # "PERD"

# A change of a table waits for whoever uses it, and all others wait behind it: so rather not for long.
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '10s'"
_TURN: Final = f"SELECT pg_catalog.pg_advisory_xact_lock({_LOCK})"
# Not IF NOT EXISTS, which asks for the right to make a schema also where there is one.
_SCHEMA: Final = "CREATE SCHEMA perdure"
_VERSIONS: Final = """CREATE TABLE perdure.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    phase      text NOT NULL CHECK (phase IN ('pre', 'post')),
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
_APPLIED: Final = "SELECT number, name, phase FROM perdure.migration ORDER BY number"
_RECORD: Final = "INSERT INTO perdure.migration (number, name, phase) VALUES ({0.number}, '{0.name}', '{0.phase}')"
_STATE: Final = """
SELECT pg_catalog.pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('server_encoding') AS encoding,
       current_setting('synchronous_commit') AS commits,
       EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'perdure') AS schema,
       count(relname) AS relations,
       count(relname) FILTER (WHERE relname = 'migration' AND relkind = 'r') AS versions
  FROM pg_catalog.pg_class
 WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'perdure')
"""
# What CREATE INDEX CONCURRENTLY leaves if it fails: an index that is kept up and not used, and that IF NOT EXISTS takes
# for one. While another session makes one, it looks like that as well, and whoever would mend it waits for a lock.
_INVALID: Final = """
SELECT relname FROM pg_catalog.pg_index JOIN pg_catalog.pg_class AS c ON c.oid = indexrelid
 WHERE NOT indisvalid AND relname = ANY ($1)
   AND relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'perdure')
 ORDER BY relname
"""
_INDEXES: Final = [
    match[1]
    for migration in MIGRATIONS
    for statement in migration.statements
    for match in re.finditer(r"^CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+)", statement, re.MULTILINE)
]
# The sequence behind an identity column needs no right of its own.
_FORBIDDEN: Final = """
SELECT relname FROM pg_catalog.pg_class AS c
 WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'perdure')
   AND CASE relkind
       WHEN 'r' THEN relname <> 'migration'
            AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                     AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
       WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE')
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend WHERE objid = c.oid AND deptype = 'i')
       ELSE false END
 ORDER BY relname
"""

logger = logging.getLogger("perdure.store")


@dataclass(frozen=True, slots=True)
class State:
    """How far a database is. `applied`: its migrations, without their statements. `invalid`: indexes of no use."""

    schema: bool = False
    versions: bool = False
    applied: tuple[Migration, ...] = ()
    invalid: tuple[str, ...] = ()

    @property
    def lacking(self) -> tuple[Migration, ...]:
        """The migrations that this release knows, and the database has not."""
        numbers = {migration.number for migration in self.applied}
        return tuple(migration for migration in MIGRATIONS if migration.number not in numbers)

    @property
    def unknown(self) -> tuple[Migration, ...]:
        """Those that a newer release has brought."""
        return tuple(migration for migration in self.applied if migration.number > len(MIGRATIONS))


async def check(connection: Connection, target: Target) -> None:
    """That this release can work with the database as it is.

    Raises:
        StoreUnusable: it can't; one line says why and what to do.
        asyncpg.PostgresError: the server refuses to tell; `faults.unusable` says why.
    """
    async with connection.transaction(isolation="read_committed"):
        state = await look(connection, target)
        if lacking := migrate.due(state.lacking, post=False):
            raise StoreUnusable(f"{target.shown} {_lack(state, lacking)}: run `{target.migrate}`")
        if not state.unknown:  # what a newer release brings, this one needs no rights to
            await _check_rights(connection, target)
    if state.invalid:
        logger.warning(
            "%s has indexes that were not made to their end, and are not used: %s; run `%s`, which makes them anew",
            target.shown,
            ", ".join(state.invalid),
            target.migrate,
        )
    if state.lacking:
        logger.info(
            "%s still has to be migrated by `%s --post`, once no older release runs: %s",
            target.shown,
            target.migrate,
            _listed(state.lacking),
        )


async def look(connection: Connection, target: Target) -> State:
    """How far the database is. Within a transaction.

    Raises:
        StoreUnusable: no migration of this release would make it usable.
        asyncpg.PostgresError: as `check`.
    """
    if (version := connection.get_server_version()) < (_OLDEST,):
        raise StoreUnusable(
            f"{target.shown} is PostgreSQL {version.major}, which is too old: Perdure needs {_OLDEST} or newer"
        )
    (found,) = await connection.fetch(_STATE)
    _refuse(found, target)
    rows = await connection.fetch(_APPLIED) if found["versions"] else []
    applied = tuple(Migration(row["number"], row["name"], (), Phase(row["phase"])) for row in rows)
    invalid = tuple(row["relname"] for row in await connection.fetch(_INVALID, _INDEXES))
    state = State(found["schema"], bool(found["versions"]), applied, invalid)
    if gone := [migration for migration in state.unknown if migration.phase is Phase.POST]:
        raise StoreUnusable(f"{target.shown} was migrated for newer releases only, by {_listed(gone)}: upgrade Perdure")
    return state


def _refuse(found: Record, target: Target) -> None:
    if found["read_only"]:
        raise StoreUnusable(f"{target.shown} {READ_ONLY}")
    if found["encoding"] != "UTF8":
        raise StoreUnusable(
            f"{target.shown} has the encoding {found['encoding']}, which can't hold every text: make a database with "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    if found["relations"] and not found["versions"]:
        raise StoreUnusable(
            f"{target.shown} has a schema perdure that Perdure did not make: name a database of its own for the task "
            "store"
        )
    if found["commits"] == "off":
        logger.warning(
            "%s has synchronous_commit off: tasks that were accepted are lost when the server crashes", target.shown
        )


async def apply(connection: Connection, target: Target, *, post: bool) -> tuple[Migration, ...]:
    """Apply what is due, in one transaction, and return that. Waits while another process does so.

    An index that is there and of no use, since somebody's CREATE INDEX CONCURRENTLY failed, is made anew with it.

    Raises:
        StoreUnusable, asyncpg.PostgresError: as `look`; nothing is changed then.
    """
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(_TURN)
        state = await look(connection, target)  # after the lock: a neighbour may just have done it
        migrations = migrate.due(state.lacking, post=post)
        for statement in _statements(state, migrations):
            await connection.execute(statement)
    if state.invalid:
        logger.warning("%s: made anew what had not been made to its end: %s", target.shown, ", ".join(state.invalid))
    return migrations


def script(state: State, *, post: bool) -> str:
    """What `apply` would do from `state` on, for psql; empty if that is nothing."""
    migrations = migrate.due(state.lacking, post=post)
    if not migrations and not state.invalid:
        return ""
    statements = [BEGIN, _TURN, *_statements(state, migrations), "COMMIT"]
    return "\\set ON_ERROR_STOP on\n" + "".join(f"{statement.removesuffix(';')};\n" for statement in statements)


def _statements(state: State, migrations: tuple[Migration, ...]) -> list[str]:
    statements = [_LOCK_TIMEOUT]
    if not state.schema:
        statements.append(_SCHEMA)
    if not state.versions:
        statements.append(_VERSIONS)
    for migration in migrations:
        statements += [*migration.statements, _RECORD.format(migration)]
    return [*statements, *(f"REINDEX INDEX perdure.{name}" for name in state.invalid)]


async def _check_rights(connection: Connection, target: Target) -> None:
    if forbidden := await connection.fetch(_FORBIDDEN):
        raise StoreUnusable(
            f"{target.shown} gives this user too few rights (to {', '.join(row['relname'] for row in forbidden)}): "
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure and USAGE ON ALL SEQUENCES IN SCHEMA "
            "perdure to it"
        )


def _lack(state: State, lacking: tuple[Migration, ...]) -> str:
    return f"lacks {_listed(lacking)}" if state.applied else "has no tables of Perdure yet"


def _listed(migrations: list[Migration] | tuple[Migration, ...]) -> str:
    return ", ".join(map(str, migrations))
