"""A PostgreSQL server of one's own, for tests, benchmarks and storms; and a PgBouncer in front of it.

    with Cluster() as cluster:
        tasks = Tasks(cluster.create_store("mine"))

`create_store` makes a database and applies the migrations, as `perdure migrate --post` does; the database that
`create_database` makes has no tables, and no server starts on it.

`Cluster` finds the server's programs, makes a data directory in a scratch folder, and listens on a free port of
127.0.0.1 with a password that nobody else knows. What a database does to its users can be done to it: stopped in order
or not, restarted, paused, replaced by its standby. All of it is synchronous: call it from a thread where that matters.

The server dies with the process that started it, even by SIGKILL, and its folder is removed: a guard process of a few
lines (`guard.py`) reads a pipe whose other end only the owner holds, and cleans up as soon as the pipe is closed. That
is also how `close` does it, so there is one way out and every use tests it. A signal on the parent's death
(PR_SET_PDEATHSIG) would not do: it comes when the *thread* that started the server ends, never reaches backends that
are paused, and removes nothing.

Linux only, for /proc. PostgreSQL refuses to run as root; started by root, it runs as `postgres`, else as `nobody`.
"""

from .bouncer import Bouncer
from .cluster import Cluster, Mode
from .programs import ProgramMissing
from .scratch import ProgramFailed

__all__ = ["Bouncer", "Cluster", "Mode", "ProgramFailed", "ProgramMissing"]
