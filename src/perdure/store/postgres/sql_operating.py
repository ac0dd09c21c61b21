"""The statements of operators, who look at tasks whoever owns them.

As in `sql`, each with its index; the same test reads both. A list and a count come in parts: first which tasks are
looked at, by their numbers alone, then what these have to tell. So what a part costs does not depend on how few tasks
are meant, and no snapshot is held for longer than a part takes: one that is held keeps the hot tables from being
cleaned up.
"""

from __future__ import annotations

from typing import Final

from perdure.store import rows

# As `sql` has them.
_CLOCK: Final = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_NOW: Final = f"(SELECT {_CLOCK})"

# index: task_pkey
NEWEST: Final = "SELECT seq FROM perdure.task WHERE seq < $1 ORDER BY seq DESC LIMIT $2"

# index: run_pkey. A task that is over has no run.
NEWEST_UNFINISHED: Final = "SELECT task_seq FROM perdure.run WHERE task_seq < $1 ORDER BY task_seq DESC LIMIT $2"

# index: task_pkey, then run_pkey. Sorts: the tasks of a part.
TASK_LISTED: Final = f"""
SELECT {rows.LISTED}
FROM perdure.task AS task LEFT JOIN perdure.run AS run ON task_seq = seq AND task_seq = ANY($2::bigint[])
WHERE seq = ANY($2::bigint[]) AND status = ANY($3::text[])
  AND name = coalesce($4::text, name) AND task.tenant = coalesce($5::text, task.tenant)
  AND principal = coalesce($6::text, principal)
  AND created_at <= coalesce({_NOW} - $7::bigint, created_at)
  AND created_at > coalesce({_NOW} - $8::bigint, created_at - 1)
  AND updated_at <= coalesce({_NOW} - $9::bigint, updated_at)
ORDER BY seq DESC"""  # noqa: S608

# index: task_id_key, then run_pkey
TASK_NAMED: Final = f"""
SELECT {rows.LISTED}
FROM perdure.task AS task
LEFT JOIN LATERAL (SELECT * FROM perdure.run WHERE task_seq = task.seq OFFSET 0) AS run ON true
WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3"""  # noqa: S608

# index: task_pkey. Sorts: the handlers of a part.
TASK_TALLY: Final = """
SELECT method, name, handler_version, status, count(*), min(created_at) FROM perdure.task
WHERE seq = ANY($1::bigint[]) GROUP BY method, name, handler_version, status"""

# index: task_id_key
TASK_SEQ: Final = "SELECT seq FROM perdure.task WHERE id = $1"

# index: entry_pkey, then input_pkey. What a run waits for that has a time: what hastening it cuts short, and what it
# leaves alone. No value is read, so it needs no keys.
TIMES: Final = """
SELECT wake_at AS at, verb <> 'external' AS nap FROM perdure.entry
WHERE task_seq = $1 AND wake_at IS NOT NULL
  AND (verb IN ('sleep', 'external') AND state = 'started' OR state = 'retrying')
UNION ALL
SELECT deadline, false FROM perdure.input WHERE task_seq = $1 AND state = 'outstanding' AND deadline IS NOT NULL"""

# index: entry_pkey
ENTRY_HASTEN: Final = """
UPDATE perdure.entry SET wake_at = $2
WHERE task_seq = $1 AND (verb = 'sleep' AND state = 'started' OR state = 'retrying') AND wake_at > $2"""

# index: task_id_key, then task_pkey. A task that somebody is deleting just now is passed over, so nobody waits, and the
# order does not matter.
TASK_DISCARD: Final = f"""
DELETE FROM perdure.task WHERE seq = ANY(ARRAY(
    SELECT seq FROM perdure.task
    WHERE id = ANY($2::text[]) AND status IN ('completed', 'failed', 'cancelled')
    FOR UPDATE SKIP LOCKED))
RETURNING seq, id, tenant, principal, {_NOW} AS now"""  # noqa: S608
