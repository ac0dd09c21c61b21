"""PostgreSQL: a private, durable server, and between it and each process a link that can be made to misbehave.

The processes come as a user who has no more rights than the how-to gives them. What is done to them is done by the
superuser, past the links.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg

from chaos.evidence import Store
from chaos.interposer import Interposer
from chaos.links import Link
from chaos.logs import OF_OURS, OF_POSTGRESQL, oddities
from chaos.processes import PERDURE
from perdure.testing.postgresql import Cluster
from perdure.testing.postgresql.programs import free_port

from .base import Site
from .postgresql_troubles import Troubles
from .reading import WORKING, account, queries

__all__ = ["PostgreSQLGround", "ground"]

USER: Final = "chaos"
DATABASE: Final = "chaos"

_PREPARE: Final = f"""
CREATE ROLE {USER} LOGIN PASSWORD '{{password}}';
GRANT USAGE ON SCHEMA perdure TO {USER};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {USER};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA perdure TO {USER};
CREATE TABLE audit (
    position bigserial, seq bigint, before text, after text, old_version bigint, version bigint, old_updated bigint,
    updated bigint);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO public.audit (seq, before, after, old_version, version, old_updated, updated)
    VALUES (NEW.seq, OLD.status, NEW.status, OLD.version, NEW.version, OLD.updated_at, NEW.updated_at);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON perdure.task FOR EACH ROW EXECUTE FUNCTION audit();
"""
_LEASES: Final = "SELECT info FROM perdure.session"
_LEFT: Final = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{USER}'"
LEFT_WITHIN: Final = 15.0
"""Seconds in which the server has noticed that its clients are gone."""
_CONNECT: Final = 5.0
_ANSWER: Final = 30.0
_FRESH: Final = 0.3
"""Seconds for which what was seen of the leases is good enough."""


@contextmanager
def ground(site: Site) -> Generator[PostgreSQLGround]:
    with Cluster(settings={"log_lock_waits": "on"}) as cluster:
        yield PostgreSQLGround(cluster, site)


class PostgreSQLGround:
    """`Ground`. Time is the server's, and no clock that is set for a process matters."""

    own_clock = True
    known = OF_OURS

    def __init__(self, cluster: Cluster, site: Site) -> None:
        self._cluster = cluster
        self._password = secrets.token_hex(16)
        self._seen: tuple[float, set[int]] = (0.0, set())
        self._asking = asyncio.Lock()
        self._prepare()
        self._links = [Link(free_port(), cluster.port) for _ in range(site.seats)]
        self.secrets: Sequence[str] = (self._password, cluster.password)
        self.environment: Mapping[str, str] = {}
        if isinstance(site.interposer, Interposer):
            self.environment = site.interposer.environment(site.scratch / "nothing")
        version = cluster.sql("SHOW server_version").split()[0]
        self.kind = f"PostgreSQL {version}, durable"
        self._troubles = Troubles(cluster, self._links, USER, DATABASE)
        self.troubles = self._troubles.kinds

    def _prepare(self) -> None:
        """As an operator does: the database, its tables by the command line, and a user with the rights it takes."""
        url = self._cluster.create_database(DATABASE)
        subprocess.run([PERDURE, "migrate", url], check=True, capture_output=True)
        self._cluster.sql(_PREPARE.format(password=self._password), DATABASE)

    @asynccontextmanager
    async def prepared(self) -> AsyncGenerator[None]:
        asyncio.get_running_loop().set_exception_handler(_but_for_the_drivers)
        try:
            for link in self._links:
                await link.listen()
            yield
        finally:
            for link in self._links:
                await link.close()

    def url(self, seat: int) -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._links[seat].port}/{DATABASE}"

    async def audit(self) -> None:
        """It does so from the beginning."""

    async def heal(self) -> None:
        await self._troubles.heal()

    # -- what it holds -------------------------------------------------------------------------------------------------

    async def leases(self) -> set[int]:
        async with self._asking:
            if time.monotonic() > self._seen[0] + _FRESH:
                with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    found = await self._fetch(_LEASES, within=1.0)
                    self._seen = time.monotonic(), {json.loads(info)["pid"] for (info,) in found}
            return self._seen[1]

    async def working(self) -> int:
        ((count,),) = await self._fetch(WORKING.format("perdure."))
        return count

    async def look(self) -> Store:
        integrity: list[str] = []
        if left := await self._left():
            integrity.append(f"{left} connections outlived all processes")
        found = {name: await self._fetch(query) for name, query in queries("perdure.").items()}
        return account(found, integrity)

    async def rows(self, query: str) -> Sequence[Any]:
        """What a query of the superuser's yields."""
        return await self._fetch(query)

    async def _left(self) -> int:
        """How many connections of the processes there still are, once the server has had time to notice."""
        deadline = time.monotonic() + LEFT_WITHIN
        while True:
            ((count,),) = await self._fetch(_LEFT)
            if not count or time.monotonic() > deadline:
                return count
            await asyncio.sleep(0.2)

    async def _fetch(self, query: str, within: float = _ANSWER) -> Sequence[Any]:
        async with asyncio.timeout(within):
            connection = await asyncpg.connect(self._cluster.url(DATABASE), timeout=min(_CONNECT, within))
            try:
                return [tuple(row) for row in await connection.fetch(query)]
            finally:
                connection.terminate()

    def oddities(self) -> list[str]:
        return [*oddities(self._cluster.log, OF_POSTGRESQL, self.secrets)]

    def keep(self, target: Path) -> None:
        self._cluster.resume()
        if not self._cluster.running:
            self._cluster.start()
        (target / "server.log").write_bytes(self._cluster.log.read_bytes())
        for table in ("task", "run", "input", "entry", "event", "session"):
            rows = self._cluster.sql(f"SELECT row_to_json(t) FROM perdure.{table} AS t", DATABASE)
            (target / f"{table}.jsonl").write_text(rows)
        (target / "audit.jsonl").write_text(self._cluster.sql("SELECT row_to_json(t) FROM audit AS t", DATABASE))


def _but_for_the_drivers(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that was given up before it was made leaves the driver an error that nobody waits for."""
    if "unexpected connection_lost() call" not in str(context.get("exception")):
        loop.default_exception_handler(context)
