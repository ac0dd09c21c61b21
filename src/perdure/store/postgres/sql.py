"""Every statement, one constant a verb's need, with the index it relies on.

`tests/store/postgres/test_plans.py` reads the line above each constant and asserts the plan. Most statements serve a
batch: what they are about comes as arrays, one for each column, so that a statement has one text however many rows
there are, and is prepared once. Where time counts, `$1` is the reading of a test's clock, or NULL: then it is the
database's own.

Whoever changes an unfinished task holds the lock on its run, and takes several of them in the order of their numbers.

A plan is made once, whatever the values, and kept while a queue that was empty then grows to a million rows. Settings
of the connection rule out what would be bad there, a walk through a table and a nested loop over a batch (`url`). What
they leave is to hash what comes as arrays, and that reads the table by itself: so one that is joined is also told which
of its rows are meant (`= ANY`), though that follows from the join. Where a nested loop is wanted all the same, one
probe for each of a few rows, it is written as LATERAL or as a subquery, which can be nothing else.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.domain import policy
from perdure.store import rows

_TASK: Final = rows.TASK
_OWNED_STANDING: Final = rows.OWNED_STANDING
_STANDING: Final = rows.STANDING
_OPERATION: Final = rows.OPERATION
# The time at which a row is given out; and the time of the statement, in a query of its own: only what stays the same
# from row to row is something that an index can be searched for.
_CLOCK: Final = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_NOW: Final = f"(SELECT {_CLOCK})"
_AT_ONCE: Final = -policy.due_at_once(0)

# Runs that may be claimed at once, and those that wait for an instant. Written as the partial indexes have it.
_READY: Final = "session IS NULL AND due_at < 0"
_TIMER: Final = "session IS NULL AND due_at >= 0"

_RUN: Final = "handler, due_at, max_attempts, timeout_ms, session, fence, failures, deaths, deadline_at, minds_cancel"
_LIVE: Final = rows.LIVE
_INPUT: Final = "key, request, issued_at, state, response, place, deadline, awaited"
_ENTRY: Final = "place, verb, name, state, value, wake_at"


# Tasks are looked for by whoever says that they are theirs: `{0}` are their ids, `{1}` and `{2}` the owners, NULL for
# whoever need not be one. A row of somebody else's is never fetched, let alone locked: how long that takes, and whom it
# waits for, would tell of it.
_SOUGHT: Final = """id = ANY({0}::text[]) AND EXISTS (
    SELECT FROM unnest({0}::text[], {1}::text[], {2}::text[]) AS sought (sought_id, sought_tenant, sought_principal)
    WHERE sought_id = id AND coalesce(sought_tenant = tenant AND sought_principal = principal, true))"""


def _named(table: str, columns: str) -> str:
    return ", ".join(f"{table}.{column}" for column in columns.split(", "))


# -- making and finding tasks ------------------------------------------------------------------------------------------

# index: task's indexes and run's. A task that stands there already, by its id or its key, is let pass and looked for
# afterwards. In the order that the callers came, so that equal instants keep it. Sorts: what is given.
TASK_CREATE: Final = f"""
WITH clock AS MATERIALIZED (SELECT {_CLOCK} AS now),
given AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                         $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[],
                         $15::text[], $16::int[], $17::bigint[])
    WITH ORDINALITY AS g (id, tenant, principal, method, name, params, handler_version, ttl_ms, keep_ms, poll_ms,
                          accepts, idem_key, idem_digest, handler, max_attempts, timeout_ms, turn)),
made AS (
    INSERT INTO perdure.task (id, tenant, principal, method, name, params, handler_version, status, version, created_at,
                              updated_at, ttl_ms, keep_ms, expires_at, poll_ms, accepts, idem_key, idem_digest)
    SELECT id, tenant, principal, method, name, params, handler_version, 'working', 1, now, now, ttl_ms, keep_ms,
           now + ttl_ms, poll_ms, accepts, idem_key, idem_digest
    FROM given, clock ORDER BY turn
    ON CONFLICT DO NOTHING RETURNING seq, id, created_at),
queued AS (
    INSERT INTO perdure.run (task_seq, handler, tenant, due_at, max_attempts, timeout_ms)
    SELECT seq, handler, tenant, created_at - {_AT_ONCE}, max_attempts, timeout_ms FROM made JOIN given USING (id))
SELECT id, seq, created_at FROM made"""  # noqa: S608

# index: task_id_key, then input_pkey. A task's questions come along in the same snapshot, if it waits for any.
TASK_FIND: Final = f"""
SELECT CASE WHEN status = 'input_required' THEN (
           SELECT json_agg(json_build_array({_INPUT}) ORDER BY position)::text
           FROM perdure.input WHERE task_seq = seq) END AS questions, {_TASK}
FROM perdure.task WHERE {_SOUGHT.format("$1", "$2", "$3")}"""  # noqa: S608

# index: task_idem, then input_pkey
TASK_RECALL: Final = f"""
SELECT idem_digest, CASE WHEN status = 'input_required' THEN (
           SELECT json_agg(json_build_array({_INPUT}) ORDER BY position)::text
           FROM perdure.input WHERE task_seq = seq) END AS questions, {_TASK}
FROM perdure.task WHERE tenant = $1 AND principal = $2 AND idem_key = $3"""  # noqa: S608

# index: task_id_key. Those whose version is not the one that is known; of one that is gone nothing but the name, and of
# one that is not that owner's. NULL: it may be anybody's.
TASK_CHANGED: Final = f"""
SELECT known_id, found.*
FROM unnest($1::text[], $2::bigint[]) AS known (known_id, known_version)
LEFT JOIN LATERAL (
    SELECT {_STANDING} FROM perdure.task
    WHERE id = known_id AND coalesce(tenant = $3::text AND principal = $4::text, true) OFFSET 0) AS found ON true
WHERE version IS DISTINCT FROM known_version"""  # noqa: S608

# index: task_owned. Written as the index has it.
TASK_PAGE: Final = f"""
SELECT {_OWNED_STANDING} FROM perdure.task
WHERE tenant = $1 AND principal = $2 AND seq > 0 AND seq + 0 < $3 ORDER BY seq + 0 DESC LIMIT $4"""  # noqa: S608

# index: task_pkey
TASK_OPERATION: Final = f"SELECT {_OPERATION} FROM perdure.task WHERE seq = $1"  # noqa: S608

# index: tombstone_pkey. The sum is no column, so the index of those that are to go is not taken for one to seek in.
TOMBSTONE_FIND: Final = f"""
SELECT id, tenant, principal FROM perdure.tombstone
WHERE {_SOUGHT.format("$2", "$3", "$4")} AND until + 0 > {_NOW}"""  # noqa: S608

# -- locking and loading -----------------------------------------------------------------------------------------------

# index: run_pkey, then task_pkey. Both rows are locked, the run first: only then are both read as they are once a
# change that was waited for is through. What a worker knows by its claim is not read again. The time is taken from
# outside, after the lock on each row: what a change is decided by must not be older than the change before it.
LOCK_HELD: Final = f"""
SELECT {_CLOCK} AS now, locked.* FROM (
    SELECT seq, {_named("run", _RUN)}, {_named("task", _LIVE)}
    FROM perdure.run AS run JOIN perdure.task AS task ON seq = task_seq
    WHERE task_seq = ANY($2::bigint[]) AND seq = ANY($2::bigint[]) ORDER BY task_seq FOR UPDATE OF run, task) AS locked
"""  # noqa: S608

# index: run_pkey, then task_pkey. The same of tasks that nobody here knows.
LOCK: Final = f"""
SELECT {_CLOCK} AS now, locked.* FROM (
    SELECT {_named("run", _RUN)}, {_named("task", _TASK)}
    FROM perdure.run AS run JOIN perdure.task AS task ON seq = task_seq
    WHERE task_seq = ANY($2::bigint[]) AND seq = ANY($2::bigint[]) ORDER BY task_seq FOR UPDATE OF run, task) AS locked
"""  # noqa: S608

# index: task_id_key, then run_pkey and task_pkey. The same of tasks that are known by their ids.
LOCK_NAMED: Final = LOCK.replace(
    "ANY($2::bigint[])",
    f"ANY(ARRAY(SELECT seq FROM perdure.task WHERE {_SOUGHT.format('$2', '$3', '$4')}))",  # noqa: S608
)

# index: input_pkey. Sorts: the questions of each task.
INPUT_ALL: Final = f"""
SELECT task_seq, {_INPUT} FROM perdure.input WHERE task_seq = ANY($1::bigint[]) ORDER BY task_seq, position
"""  # noqa: S608

# index: entry_pkey
ENTRY_ALL: Final = f"SELECT task_seq, {_ENTRY} FROM perdure.entry WHERE task_seq = ANY($1::bigint[])"  # noqa: S608

# index: task_id_key, then entry_pkey. External work of tasks that are known by their ids, whoever's they are.
ENTRY_NAMED: Final = f"""
SELECT named_id, found.* FROM unnest($1::text[], $2::text[]) AS named (named_id, at_place)
CROSS JOIN LATERAL (SELECT seq, tenant, principal FROM perdure.task WHERE id = named_id OFFSET 0) AS whose
CROSS JOIN LATERAL (
    SELECT whose.tenant, whose.principal, {_ENTRY} FROM perdure.entry
    WHERE task_seq = whose.seq AND place = at_place AND verb = 'external' OFFSET 0) AS found"""  # noqa: S608

# index: entry_pkey
ENTRY_AT: Final = f"""
SELECT found.* FROM unnest($1::bigint[], $2::text[]) AS wanted (seq, at_place)
CROSS JOIN LATERAL (
    SELECT task_seq, {_ENTRY} FROM perdure.entry WHERE task_seq = seq AND place = at_place OFFSET 0) AS found
"""  # noqa: S608

# index: event_pkey
EVENT_ALL: Final = "SELECT at, kind, detail FROM perdure.event WHERE task_seq = $1 ORDER BY position"

# -- writing back ------------------------------------------------------------------------------------------------------

# index: task_pkey. The guard repeats what the state machine decided: nothing overwrites a terminal status.
TASK_WRITE: Final = """
UPDATE perdure.task AS task
SET status = given.status, message = given.message, version = given.version, updated_at = given.updated_at,
    ttl_ms = given.ttl_ms, expires_at = given.expires_at, cancel_requested = given.cancel_requested,
    result = given.result, error = given.error
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::boolean[], $9::text[], $10::text[])
     AS given (seq, status, message, version, updated_at, ttl_ms, expires_at, cancel_requested, result, error)
WHERE task.seq = given.seq AND task.seq = ANY($1::bigint[]) AND task.status IN ('working', 'input_required')"""

# index: run_pkey
RUN_WRITE: Final = """
UPDATE perdure.run AS run
SET due_at = given.due_at, session = given.session, fence = given.fence, failures = given.failures,
    deaths = given.deaths, deadline_at = given.deadline_at, minds_cancel = given.minds_cancel
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::bigint[], $8::boolean[])
     AS given (task_seq, due_at, session, fence, failures, deaths, deadline_at, minds_cancel)
WHERE run.task_seq = given.task_seq AND run.task_seq = ANY($1::bigint[])"""

# index: run_pkey
RUN_DELETE: Final = "DELETE FROM perdure.run WHERE task_seq = ANY($1::bigint[])"

# index: input_pkey. A question keeps its position; the newer ones of a task follow.
INPUT_WRITE: Final = """
INSERT INTO perdure.input AS input (task_seq, key, position, request, issued_at, state, response, place, deadline,
                                    awaited)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
                     $9::bigint[], $10::boolean[])
ON CONFLICT (task_seq, key) DO UPDATE SET state = excluded.state, response = excluded.response,
                                          place = excluded.place, awaited = excluded.awaited"""

# index: entry_pkey
ENTRY_WRITE: Final = """
INSERT INTO perdure.entry (task_seq, place, verb, name, state, value, wake_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
ON CONFLICT (task_seq, place) DO UPDATE SET verb = excluded.verb, name = excluded.name, state = excluded.state,
                                            value = excluded.value, wake_at = excluded.wake_at"""

# index: entry_pkey
ENTRY_UNDO: Final = """
DELETE FROM perdure.entry AS entry USING unnest($1::bigint[], $2::text[]) AS gone (seq, at_place)
WHERE task_seq = seq AND place = at_place AND task_seq = ANY($1::bigint[])"""


def _after(count: int, statement: str) -> str:
    """A statement as a part of another, which has so many parameters before it."""
    return re.sub(r"\$(\d+)", lambda match: f"${int(match[1]) + count}", statement)


# index: run_pkey, task_pkey, input_pkey and entry_pkey. Most of that in one round trip, of tables that were locked and
# read before; how many tasks were written.
FLUSH: Final = f"""
WITH runs AS ({RUN_WRITE}),
over AS ({_after(8, RUN_DELETE)}),
tasks AS ({_after(9, TASK_WRITE)} RETURNING 1),
inputs AS ({_after(19, INPUT_WRITE)}),
entries AS ({_after(29, ENTRY_WRITE)})
SELECT count(*) FROM tasks"""  # noqa: S608

# index: event_pkey
EVENT_WRITE: Final = """
INSERT INTO perdure.event (task_seq, position, at, kind, detail)
SELECT given.task_seq, coalesce((SELECT max(position) FROM perdure.event AS event
                                 WHERE event.task_seq = given.task_seq), -1) + turn, at, kind, detail
FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[]) AS given (task_seq, turn, at, kind, detail)
"""

# index: event_pkey
EVENT_FORGET: Final = """
DELETE FROM perdure.event AS event USING unnest($1::bigint[]) AS given (seq)
WHERE task_seq = seq AND task_seq = ANY($1::bigint[])
  AND position <= (SELECT max(position) FROM perdure.event WHERE task_seq = seq) - $2::int"""

# -- sessions ----------------------------------------------------------------------------------------------------------

# index: session's primary key
SESSION_OPEN: Final = f"""
INSERT INTO perdure.session (id, expires_at, info) VALUES ($2, {_NOW} + $3::bigint, $4) RETURNING expires_at
"""  # noqa: S608

# index: session_pkey
SESSION_RENEW: Final = f"UPDATE perdure.session SET expires_at = {_NOW} + $3::bigint WHERE id = $2"  # noqa: S608

# index: session_pkey. The lock keeps whoever would take the session's runs over from doing so before the claim is
# through; a heartbeat may pass.
SESSION_ALIVE: Final = f"""
SELECT {_NOW} AS now, nextval('perdure.fence') AS fence FROM perdure.session
WHERE id = $2 AND expires_at > {_NOW} FOR KEY SHARE"""  # noqa: S608

# index: session_pkey. Waits for claims that have not come to their end, since each holds the lock above.
SESSION_ALONE: Final = "SELECT FROM perdure.session WHERE id = $1 FOR UPDATE"

# scans: session. One row per worker process.
SESSION_ALL: Final = f"SELECT id, expires_at, info, expires_at <= {_NOW} FROM perdure.session ORDER BY id"  # noqa: S608

# scans: session. One row per worker process.
SESSION_DELETE_DEAD: Final = f"""
DELETE FROM perdure.session WHERE (expires_at <= {_NOW} OR id = ANY($2::text[])) AND id <> ALL($3::text[])
RETURNING id"""  # noqa: S608

# index: session_pkey
SESSION_DELETE: Final = "DELETE FROM perdure.session WHERE id = $1"

# index: run_held
RUN_OF_SESSIONS: Final = "SELECT task_seq FROM perdure.run WHERE session = ANY($1::text[])"

# index: run_held, then task_pkey
RUN_HELD_BY: Final = """
SELECT task_seq, fence, (SELECT cancel_requested FROM perdure.task WHERE seq = task_seq) FROM perdure.run
WHERE session = $1"""

# -- claiming ----------------------------------------------------------------------------------------------------------

# index: run_ready, run_timer and session_pkey. What there is to claim, before anything is locked or written: whether
# the session lives and timers have come due; then how many runs the tenants have that are known to wait for a handler,
# from an instant on; and, from one tenant to the next within the gaps between those, the others. A probe for each; and
# of each gap no more tenants than runs are wanted, however many there are.
CLAIM_LOOK: Final = f"""
WITH RECURSIVE turn (handler, wanted, more, upto, tenant) AS (
    SELECT handler, wanted, wanted - 1, upto, CASE
        WHEN upto IS NULL THEN (
            SELECT tenant FROM perdure.run AS run
            WHERE run.handler = gap.handler AND {_READY} AND tenant >= at_least ORDER BY tenant LIMIT 1)
        ELSE (
            SELECT tenant FROM perdure.run AS run
            WHERE run.handler = gap.handler AND {_READY} AND tenant >= at_least AND tenant < upto
            ORDER BY tenant LIMIT 1) END
    FROM unnest($3::text[], $4::int[], $5::text[], $6::text[]) AS gap (handler, wanted, at_least, upto)
    UNION ALL
    SELECT handler, wanted, more - 1, upto, CASE
        WHEN upto IS NULL THEN (
            SELECT run.tenant FROM perdure.run AS run
            WHERE run.handler = turn.handler AND {_READY} AND run.tenant > turn.tenant ORDER BY run.tenant LIMIT 1)
        ELSE (
            SELECT run.tenant FROM perdure.run AS run
            WHERE run.handler = turn.handler AND {_READY} AND run.tenant > turn.tenant AND run.tenant < turn.upto
            ORDER BY run.tenant LIMIT 1) END
    FROM turn WHERE tenant IS NOT NULL AND more > 0)
SELECT {_NOW} AS now, '' AS handler, NULL AS tenant,
       (SELECT (EXISTS (SELECT 1 FROM perdure.run WHERE {_TIMER} AND due_at >= $11 AND due_at <= {_NOW}))::int
        FROM perdure.session WHERE id = $2 AND expires_at > {_NOW}) AS ready
UNION ALL
SELECT NULL, handler, tenant, (
    SELECT count(*) FROM (
        SELECT 1 FROM perdure.run AS run
        WHERE run.handler = turn.handler AND run.tenant = turn.tenant AND {_READY} LIMIT turn.wanted) AS counted)
FROM turn WHERE tenant IS NOT NULL
UNION ALL
SELECT NULL, handler, tenant, (
    SELECT count(*) FROM (
        SELECT 1 FROM perdure.run AS run
        WHERE run.handler = known.handler AND run.tenant = known.tenant AND {_READY} AND due_at >= since
        LIMIT known.wanted) AS counted)
FROM unnest($7::text[], $8::int[], $9::text[], $10::bigint[]) AS known (handler, wanted, tenant, since)
"""  # noqa: S608

# index: run_timer, then run_pkey
RUN_PROMOTE: Final = f"""
UPDATE perdure.run SET due_at = due_at - {_AT_ONCE}
WHERE task_seq = ANY(ARRAY(
    SELECT task_seq FROM perdure.run WHERE {_TIMER} AND due_at <= {_NOW} ORDER BY due_at, task_seq LIMIT $2
    FOR UPDATE SKIP LOCKED))"""  # noqa: S608

# index: run_ready, run_pkey, task_pkey and input_pkey. A share of each tenant's runs, that which has been due longest
# first. What another worker is about to take is passed over. Runs are locked; their tasks are seen as they were before.
RUN_CLAIM: Final = f"""
WITH taken AS MATERIALIZED (
    SELECT chosen.*
    FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) AS share (handler, tenant, wanted, since)
    CROSS JOIN LATERAL (
        SELECT task_seq FROM perdure.run AS run
        WHERE run.handler = share.handler AND run.tenant = share.tenant AND {_READY} AND due_at >= since
        ORDER BY run.due_at, task_seq LIMIT share.wanted FOR UPDATE SKIP LOCKED) AS chosen)
UPDATE perdure.run AS run
SET session = $5, fence = $6, deadline_at = $7::bigint + timeout_ms
FROM perdure.task AS task
WHERE seq = task_seq AND seq = ANY(ARRAY(SELECT task_seq FROM taken))
  AND task_seq = ANY(ARRAY(SELECT task_seq FROM taken))
RETURNING due_at AS since,
          EXISTS (SELECT 1 FROM perdure.input WHERE input.task_seq = seq AND state = 'outstanding' AND deadline <= $7),
          {_named("run", _RUN)}, {_named("task", _OPERATION)}, {_named("task", _TASK)}"""  # noqa: S608

# index: run_held. What a claim has left behind of which nobody knows whether it was made.
RUN_ORPHANED: Final = "SELECT task_seq FROM perdure.run WHERE session = $1 AND fence = ANY($2::bigint[])"

# -- operators ---------------------------------------------------------------------------------------------------------

# index: run_pkey
RUN_STATE: Final = """
SELECT handler, due_at, session, fence, failures, deaths, deadline_at FROM perdure.run WHERE task_seq = $1"""

# scans: run. Each unfinished task is counted, for an operator who asks for it now and then. Sorts: the handlers.
RUN_QUEUES: Final = f"""
WITH clock AS MATERIALIZED (SELECT {_CLOCK} AS now)
SELECT now, handler, count(*) FILTER (WHERE session IS NULL AND due_at <= now), count(session), count(*),
       min(CASE WHEN due_at < 0 THEN due_at + {_AT_ONCE} ELSE due_at END)
           FILTER (WHERE session IS NULL AND due_at <= now)
FROM perdure.run, clock GROUP BY now, handler ORDER BY handler"""  # noqa: S608

# index: run_ready and run_timer. No more rows than the caller would have counted. Sorts: the tenants.
RUN_BACKLOG: Final = f"""
SELECT tenant, count(*) FROM (
    (SELECT tenant FROM perdure.run WHERE {_READY} LIMIT $2)
    UNION ALL (SELECT tenant FROM perdure.run WHERE {_TIMER} AND due_at <= {_NOW} LIMIT $2) LIMIT $2) AS counted
GROUP BY tenant ORDER BY tenant"""  # noqa: S608

# index: task_open
TASK_UNFINISHED: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM perdure.task
    WHERE tenant = $1 AND principal = $2 AND status IN ('working', 'input_required') AND seq > 0 LIMIT $3) AS counted"""

# index: run_ready and run_timer. The same of one tenant: from one handler to the next that has anything ready.
RUN_BACKLOG_OF: Final = f"""
WITH RECURSIVE turn (handler) AS (
    SELECT (SELECT handler FROM perdure.run WHERE {_READY} ORDER BY handler LIMIT 1)
    UNION ALL
    SELECT (SELECT run.handler FROM perdure.run AS run
            WHERE {_READY} AND run.handler > turn.handler ORDER BY run.handler LIMIT 1)
    FROM turn WHERE handler IS NOT NULL)
SELECT count(*) FROM (
    (SELECT 1 FROM turn CROSS JOIN LATERAL (
        SELECT 1 FROM perdure.run AS run
        WHERE run.handler = turn.handler AND run.tenant = $3 AND {_READY} LIMIT $2) AS ready)
    UNION ALL
    (SELECT 1 FROM perdure.run WHERE {_TIMER} AND due_at <= {_NOW} AND tenant = $3 LIMIT $2) LIMIT $2) AS counted
"""  # noqa: S608

# -- housekeeping ------------------------------------------------------------------------------------------------------

# index: task_unfinished_expiry
TASK_OVERDUE: Final = f"""
SELECT seq FROM perdure.task
WHERE expires_at IS NOT NULL AND status IN ('working', 'input_required') AND expires_at <= {_NOW}
ORDER BY expires_at, seq LIMIT $2"""  # noqa: S608

# index: run_deadline
RUN_LATE: Final = f"""
SELECT task_seq FROM perdure.run
WHERE deadline_at IS NOT NULL AND deadline_at < {_NOW} - $3::bigint ORDER BY deadline_at, task_seq LIMIT $2
"""  # noqa: S608

# index: tombstone_until, then tombstone_pkey
TOMBSTONE_PURGE: Final = f"""
DELETE FROM perdure.tombstone WHERE id = ANY(ARRAY(
    SELECT id FROM perdure.tombstone WHERE until <= {_NOW} ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED))
"""  # noqa: S608

# index: task_finished_expiry, then task_pkey. A task that another replica is deleting is passed over.
TASK_PURGE: Final = f"""
DELETE FROM perdure.task WHERE seq = ANY(ARRAY(
    SELECT seq FROM perdure.task
    WHERE expires_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled')
      AND expires_at <= {_NOW} - $3::bigint
    ORDER BY expires_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING seq, id, tenant, principal, {_NOW} AS now"""  # noqa: S608

# index: tombstone_pkey. The id of a task that was purged may be given again, and purged again.
TOMBSTONE_WRITE: Final = """
INSERT INTO perdure.tombstone (id, tenant, principal, until)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, principal = excluded.principal, until = excluded.until"""

# index: input_pkey
INPUT_DELETE: Final = "DELETE FROM perdure.input WHERE task_seq = ANY($1::bigint[])"

# index: entry_pkey
ENTRY_DELETE: Final = "DELETE FROM perdure.entry WHERE task_seq = ANY($1::bigint[])"

# index: event_pkey
EVENT_DELETE: Final = "DELETE FROM perdure.event WHERE task_seq = ANY($1::bigint[])"
