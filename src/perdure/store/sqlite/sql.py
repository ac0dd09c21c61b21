"""Every statement, one constant a verb's need, with the index it relies on.

`tests/store/test_plans.py` reads the line above each constant and asserts the plan. Lists of values go in as one JSON
array (`json_each`), so that each statement has one text and is prepared once.
"""

from __future__ import annotations

from typing import Final

from perdure.store import rows

_TASK: Final = rows.TASK
_OWNED: Final = rows.OWNED
_OWNED_STANDING: Final = rows.OWNED_STANDING
_STANDING: Final = rows.STANDING
_OPERATION: Final = rows.OPERATION
# Runs that may be claimed at once, and those that wait for an instant. Written as the indexes have it: SQLite uses a
# partial index only where the statement repeats its condition.
_READY: Final = "session IS NULL AND due_at < 0"
_TIMER: Final = "session IS NULL AND due_at >= 0"

# -- task --------------------------------------------------------------------------------------------------------------

# index: task's primary key and the unique id. Only a clash of ids is let pass: one of idempotency keys is looked for
# before, and would be another task's.
TASK_INSERT: Final = """
INSERT INTO task (id, tenant, principal, method, name, params, handler_version, status, version, created_at, updated_at,
                  ttl_ms, keep_ms, expires_at, poll_ms, accepts, idem_key, idem_digest)
VALUES (?, ?, ?, ?, ?, ?, ?, 'working', 1, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""

# index: task_idem
TASK_RECALL: Final = f"""
SELECT idem_digest, {_OWNED} FROM task WHERE tenant = ? AND principal = ? AND idem_key = ?"""  # noqa: S608

# index: sqlite_autoindex_task_1 (id)
TASK_OWNED: Final = f"SELECT {_OWNED} FROM task WHERE id = ? AND tenant = ? AND principal = ?"  # noqa: S608

# index: sqlite_autoindex_task_1 (id)
TASK_BY_ID: Final = f"SELECT {_TASK} FROM task WHERE id = ?"  # noqa: S608

# index: sqlite_autoindex_task_1 (id)
TASK_VERSIONS: Final = "SELECT id, version FROM task WHERE id IN (SELECT value FROM json_each(?))"

# index: sqlite_autoindex_task_1 (id). The signs keep it from being looked for among all of the owner's.
TASK_VERSIONS_OWNED: Final = f"{TASK_VERSIONS} AND +tenant = ? AND +principal = ?"

# index: sqlite_autoindex_task_1 (id)
TASK_STANDING: Final = f"SELECT {_STANDING} FROM task WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608

# index: task_owned
TASK_PAGE: Final = f"""
SELECT {_OWNED_STANDING} FROM task WHERE tenant = ? AND principal = ? AND seq < ? ORDER BY seq DESC LIMIT ?"""  # noqa: S608

# index: task's primary key
TASK_BY_SEQ: Final = f"SELECT {_TASK} FROM task WHERE seq = ?"  # noqa: S608

# index: task's primary key
TASK_OPERATION: Final = f"SELECT {_OPERATION} FROM task WHERE seq = ?"  # noqa: S608

# index: task's primary key, then input's primary key. Whether a question's time has run out comes along, since a claim
# is the hot path and hardly any task has asked one.
TASK_CLAIMED: Final = f"""
SELECT EXISTS (SELECT 1 FROM input WHERE task_seq = seq AND state = 'outstanding' AND deadline <= ?), {_OPERATION},
       {_TASK}
FROM task WHERE seq = ?"""  # noqa: S608

# index: task's primary key. The guard repeats what the state machine decided: nothing overwrites a terminal status.
TASK_UPDATE: Final = """
UPDATE task SET status = ?, message = ?, version = ?, updated_at = ?, ttl_ms = ?, expires_at = ?, cancel_requested = ?,
                result = ?, error = ?
WHERE seq = ? AND status NOT IN ('completed', 'failed', 'cancelled')"""

# scans: task. Its first rows and its last. Ask each for what tells under which keys values are sealed.
TASK_SAMPLE: Final = """
SELECT * FROM (SELECT id, tenant, principal, params FROM task ORDER BY seq LIMIT 4)
UNION ALL
SELECT * FROM (SELECT id, tenant, principal, params FROM task ORDER BY seq DESC LIMIT 4)"""

# index: task_unfinished_expiry
TASK_OVERDUE: Final = f"""
SELECT {_TASK} FROM task
WHERE expires_at IS NOT NULL AND status IN ('working', 'input_required') AND expires_at <= ?
ORDER BY expires_at, seq LIMIT ?"""  # noqa: S608

# index: task_finished_expiry
TASK_PURGEABLE: Final = """
SELECT seq FROM task
WHERE expires_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled') AND expires_at <= ?
ORDER BY expires_at, seq LIMIT ?"""

# index: task's primary key, then tombstone's. The id of a task that was purged may be given again, and purged again.
TOMBSTONE_INSERT: Final = """
INSERT INTO tombstone (id, tenant, principal, until)
SELECT id, tenant, principal, ? FROM task WHERE seq IN (SELECT value FROM json_each(?))
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, principal = excluded.principal, until = excluded.until"""

# index: task's primary key
TASK_DELETE: Final = "DELETE FROM task WHERE seq IN (SELECT value FROM json_each(?))"

# index: tombstone's primary key
TOMBSTONE_OWNED: Final = "SELECT 1 FROM tombstone WHERE id = ? AND tenant = ? AND principal = ? AND until > ?"

# index: tombstone_until
TOMBSTONE_AGED: Final = "SELECT id FROM tombstone WHERE until <= ? ORDER BY until LIMIT ?"

# index: tombstone's primary key
TOMBSTONE_DELETE: Final = "DELETE FROM tombstone WHERE id IN (SELECT value FROM json_each(?))"

# -- run ---------------------------------------------------------------------------------------------------------------

# index: run's primary key
RUN_INSERT: Final = """
INSERT INTO run (task_seq, handler, tenant, due_at, max_attempts, timeout_ms) VALUES (?, ?, ?, ?, ?, ?)"""

# index: run's primary key. A released run keeps its last fence, but nobody holds it.
RUN_HELD: Final = "SELECT 1 FROM run WHERE task_seq = ? AND fence = ? AND session = ?"

# index: run's primary key
RUN_MINDS: Final = "SELECT session IS NOT NULL, minds_cancel FROM run WHERE task_seq = ?"

# index: run's primary key
RUN_MIND: Final = "UPDATE run SET minds_cancel = 1 WHERE task_seq = ?"

# index: run's primary key
RUN_STATE: Final = """
SELECT handler, due_at, session, fence, failures, deaths, deadline_at FROM run WHERE task_seq = ?"""

# index: run_timer
RUN_PROMOTE: Final = f"""
UPDATE run SET due_at = due_at - ?
WHERE task_seq IN (SELECT task_seq FROM run WHERE {_TIMER} AND due_at <= ? ORDER BY due_at, task_seq LIMIT ?)
"""  # noqa: S608

# index: run_ready. The first and the last of the tenants that wait: most often they are one.
RUN_TENANTS_ENDS: Final = f"""
SELECT (SELECT tenant FROM run WHERE handler = ? AND {_READY} ORDER BY tenant LIMIT 1),
       (SELECT tenant FROM run WHERE handler = ? AND {_READY} ORDER BY tenant DESC LIMIT 1)"""  # noqa: S608

# index: run_ready. From one tenant to the next that waits, a probe each, however many runs they have.
RUN_TENANTS: Final = f"""
WITH RECURSIVE turn (tenant) AS (
    SELECT ?
    UNION ALL
    SELECT (SELECT tenant FROM run WHERE handler = ? AND {_READY} AND tenant > turn.tenant ORDER BY tenant LIMIT 1)
    FROM turn WHERE tenant IS NOT NULL
    LIMIT ?)
SELECT tenant FROM turn WHERE tenant IS NOT NULL"""  # noqa: S608

# index: run_ready. due_at comes along because RETURNING promises no order.
RUN_CLAIM: Final = f"""
UPDATE run SET session = ?, fence = ?, deadline_at = ? + timeout_ms
WHERE task_seq IN (
    SELECT task_seq FROM run WHERE handler = ? AND tenant = ? AND {_READY} ORDER BY due_at, task_seq LIMIT ?)
RETURNING due_at, task_seq, failures, deaths, deadline_at"""  # noqa: S608

# index: run_ready. What RUN_CLAIM does for a single run, without the list of one that it would make and sort.
RUN_CLAIM_ONE: Final = RUN_CLAIM.replace("task_seq IN", "task_seq =", 1)

# index: run's primary key
RUN_FREE: Final = """
UPDATE run SET session = NULL, due_at = ?, deadline_at = NULL, failures = failures + ?, deaths = deaths + ?
WHERE task_seq = ?"""

# index: run's primary key
RUN_PARK: Final = """
UPDATE run SET session = NULL, due_at = ?, deadline_at = NULL, minds_cancel = ? WHERE task_seq = ?"""

# index: run's primary key. One that is due at once keeps its turn.
RUN_WAKE: Final = """
UPDATE run SET due_at = ? WHERE task_seq = ? AND session IS NULL AND (due_at IS NULL OR due_at >= 0)"""

# index: run's primary key
RUN_DELETE: Final = "DELETE FROM run WHERE task_seq = ?"

# index: run_held. Sorts: the runs of the dead, so that tasks come in one order everywhere.
RUN_OF_SESSIONS: Final = """
SELECT task_seq, deaths, max_attempts, minds_cancel FROM run
WHERE session IS NOT NULL AND session IN (SELECT value FROM json_each(?)) ORDER BY task_seq"""

# index: run_deadline
RUN_LATE: Final = """
SELECT task_seq, deaths, max_attempts, minds_cancel FROM run
WHERE deadline_at IS NOT NULL AND deadline_at < ? ORDER BY deadline_at, task_seq LIMIT ?"""

# scans: run. Each unfinished task is counted, for an operator who asks for it now and then; nobody is kept waiting by a
# read. Sorts: the handlers.
RUN_QUEUES: Final = """
SELECT handler, count(*) FILTER (WHERE session IS NULL AND due_at <= ?), count(session), count(*),
       min(iif(due_at < 0, due_at + ?, due_at)) FILTER (WHERE session IS NULL AND due_at <= ?)
FROM run GROUP BY handler ORDER BY handler"""

# scans: run by run_ready, then run_timer. No more rows than the caller would have counted. Sorts: the tenants.
RUN_BACKLOG: Final = f"""
SELECT tenant, count(*) FROM (
    SELECT tenant FROM run WHERE {_READY} UNION ALL SELECT tenant FROM run WHERE {_TIMER} AND due_at <= ? LIMIT ?)
GROUP BY tenant ORDER BY tenant"""  # noqa: S608

# index: run_ready, then run_timer. The same of one tenant: from one handler to the next that has anything ready, and of
# each no more than what is counted, however many the other tenants have. Timers whose instant has come are few: each
# claim of any worker makes some of them ready.
RUN_BACKLOG_OF: Final = f"""
WITH RECURSIVE turn (handler) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT handler FROM run WHERE {_READY} AND handler > turn.handler ORDER BY handler LIMIT 1)
    FROM turn WHERE handler IS NOT NULL)
SELECT count(*) FROM (
    SELECT 1 FROM turn CROSS JOIN run WHERE run.handler = turn.handler AND run.tenant = ? AND {_READY}
    UNION ALL SELECT 1 FROM run WHERE {_TIMER} AND due_at <= ? AND tenant = ? LIMIT ?)"""  # noqa: S608

# index: task_open
TASK_UNFINISHED: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM task WHERE tenant = ? AND principal = ? AND status IN ('working', 'input_required') LIMIT ?)"""

# index: run_held, then task's primary key
RUN_HELD_BY: Final = """
SELECT task_seq, fence, cancel_requested FROM run JOIN task ON task.seq = run.task_seq
WHERE session IS NOT NULL AND session = ?"""

# index: counter's primary key
FENCE_NEXT: Final = "UPDATE counter SET value = value + 1 WHERE name = 'fence' RETURNING value"

# -- session -----------------------------------------------------------------------------------------------------------

# index: session's primary key
SESSION_INSERT: Final = "INSERT INTO session (id, expires_at, info) VALUES (?, ?, ?)"

# index: session's primary key
SESSION_RENEW: Final = "UPDATE session SET expires_at = ? WHERE id = ?"

# index: session's primary key, then run_timer. Whether timers have come due is asked along with it: nearly never, and a
# claim that has nothing to do writes nothing.
SESSION_ALIVE: Final = f"""
SELECT EXISTS (SELECT 1 FROM run WHERE {_TIMER} AND due_at <= ?) FROM session WHERE id = ? AND expires_at > ?
"""  # noqa: S608

# scans: session. One row per worker process.
SESSION_ALL: Final = "SELECT id, expires_at, info FROM session ORDER BY id"

# scans: session. One row per worker process.
SESSION_DELETE_DEAD: Final = """
DELETE FROM session WHERE (expires_at <= ? OR id IN (SELECT value FROM json_each(?)))
                    AND id NOT IN (SELECT value FROM json_each(?))
RETURNING id"""

# index: session's primary key
SESSION_DELETE: Final = "DELETE FROM session WHERE id = ?"

# -- input -------------------------------------------------------------------------------------------------------------

# index: input's primary key. Sorts: one task's questions.
INPUT_ALL: Final = """
SELECT key, request, issued_at, state, response, place, deadline, awaited FROM input
WHERE task_seq = ? ORDER BY position"""

# index: input's primary key
INPUT_INSERT: Final = """
INSERT INTO input (task_seq, key, position, request, state, issued_at, place, deadline)
VALUES (?, ?, ?, ?, 'outstanding', ?, ?, ?)"""

# index: input's primary key. First answer wins: the guard holds even where the reader's view was old.
INPUT_ANSWER: Final = """
UPDATE input SET state = 'answered', response = ? WHERE task_seq = ? AND key = ? AND state = 'outstanding'"""

# index: input's primary key
INPUT_SUPERSEDE: Final = """
UPDATE input SET state = 'superseded' WHERE task_seq = ? AND key = ? AND state = 'outstanding'"""

# index: input's primary key
INPUT_TURN: Final = "UPDATE input SET awaited = ? WHERE task_seq = ? AND key = ?"

# index: input's primary key
INPUT_UNPLACE: Final = """
UPDATE input SET place = NULL WHERE task_seq = ? AND place IN (SELECT value FROM json_each(?))"""

# index: input's primary key
INPUT_DELETE: Final = "DELETE FROM input WHERE task_seq IN (SELECT value FROM json_each(?))"

# -- step --------------------------------------------------------------------------------------------------------------

# index: entry's primary key
ENTRY_ALL: Final = "SELECT place, verb, name, state, value, wake_at FROM entry WHERE task_seq = ?"

# index: sqlite_autoindex_task_1 (id), then entry's primary key
ENTRY_NAMED: Final = """
SELECT tenant, principal, place, verb, entry.name, state, value, wake_at FROM task JOIN entry ON task_seq = seq
WHERE task.id = ? AND place = ? AND verb = 'external'"""

# index: entry's primary key
ENTRY_AT: Final = """
SELECT place, verb, name, state, value, wake_at FROM entry
WHERE task_seq = ? AND place IN (SELECT value FROM json_each(?))"""

# index: entry's primary key
ENTRY_PLACES: Final = "SELECT place FROM entry WHERE task_seq = ?"

# index: entry's primary key
ENTRY_WRITE: Final = """
INSERT INTO entry (task_seq, place, verb, name, state, value, wake_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_seq, place) DO UPDATE SET verb = excluded.verb, name = excluded.name, state = excluded.state,
                                            value = excluded.value, wake_at = excluded.wake_at"""

# index: entry's primary key
ENTRY_UNDO: Final = "DELETE FROM entry WHERE task_seq = ? AND place IN (SELECT value FROM json_each(?))"

# index: entry's primary key
ENTRY_DELETE: Final = "DELETE FROM entry WHERE task_seq IN (SELECT value FROM json_each(?))"

# -- event -------------------------------------------------------------------------------------------------------------

# index: event's primary key
EVENT_ALL: Final = "SELECT at, kind, detail FROM event WHERE task_seq = ? ORDER BY position"

# index: event's primary key
EVENT_INSERT: Final = """
INSERT INTO event (task_seq, position, at, kind, detail)
SELECT ?, coalesce(max(position), -1) + 1, ?, ?, ? FROM event WHERE task_seq = ? RETURNING position"""

# index: event's primary key
EVENT_FORGET: Final = "DELETE FROM event WHERE task_seq = ? AND position <= ?"

# index: event's primary key
EVENT_DELETE: Final = "DELETE FROM event WHERE task_seq IN (SELECT value FROM json_each(?))"

# -- sealing anew ------------------------------------------------------------------------------------------------------
# A page of each table, in the order of its primary key: seq, key, id, tenant, principal, and the values.

# index: task's primary key
RESEAL_TASK: Final = """
SELECT seq, '', id, tenant, principal, params, result, error, message, idem_digest FROM task
WHERE seq > ? AND ? = '' ORDER BY seq LIMIT ?"""

# index: input's primary key, then task's primary key
RESEAL_INPUT: Final = """
SELECT task_seq, key, id, tenant, principal, request, response FROM input CROSS JOIN task ON seq = task_seq
WHERE (task_seq, key) > (?, ?) ORDER BY task_seq, key LIMIT ?"""

# index: entry's primary key, then task's primary key
RESEAL_ENTRY: Final = """
SELECT task_seq, place, id, tenant, principal, value FROM entry CROSS JOIN task ON seq = task_seq
WHERE (task_seq, place) > (?, ?) ORDER BY task_seq, place LIMIT ?"""

# index: event's primary key, then task's primary key
RESEAL_EVENT: Final = """
SELECT task_seq, position, id, tenant, principal, detail, kind FROM event CROSS JOIN task ON seq = task_seq
WHERE (task_seq, position) > (?, ?) ORDER BY task_seq, position LIMIT ?"""

# index: task's primary key
RESEALED_TASK: Final = """
UPDATE task SET params = ?, result = ?, error = ?, message = ?, idem_digest = ? WHERE seq = ? AND ? = ''"""

# index: input's primary key
RESEALED_INPUT: Final = "UPDATE input SET request = ?, response = ? WHERE task_seq = ? AND key = ?"

# index: entry's primary key
RESEALED_ENTRY: Final = "UPDATE entry SET value = ? WHERE task_seq = ? AND place = ?"

# index: event's primary key
RESEALED_EVENT: Final = "UPDATE event SET detail = ?, kind = ? WHERE task_seq = ? AND position = ?"
