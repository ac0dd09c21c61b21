"""Every statement, one constant a verb's need, with the index it relies on.

`tests/store/test_plans.py` reads the line above each constant and asserts the plan. Lists of values go in as one JSON
array (`json_each`), so that each statement has one text and is prepared once.
"""

from __future__ import annotations

from typing import Final

_TASK: Final = (
    "seq, id, tenant, principal, method, name, params, status, message, version, created_at, updated_at,"
    " ttl_ms, keep_ms, poll_ms, cancel_requested, accepts, result, error"
)

# -- task --------------------------------------------------------------------------------------------------------------

# index: task's primary key and the unique id
TASK_INSERT: Final = """
INSERT INTO task (id, tenant, principal, method, name, params, status, version, created_at, updated_at,
                  ttl_ms, keep_ms, expires_at, poll_ms, accepts)
VALUES (?, ?, ?, ?, ?, ?, 'working', 1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""

# index: sqlite_autoindex_task_1 (id)
TASK_OWNED: Final = f"SELECT {_TASK} FROM task WHERE id = ? AND tenant = ? AND principal = ?"  # noqa: S608

# index: task's primary key
TASK_BY_SEQ: Final = f"SELECT {_TASK} FROM task WHERE seq = ?"  # noqa: S608

# index: task's primary key. The guard repeats what the state machine decided: nothing overwrites a terminal status.
TASK_UPDATE: Final = """
UPDATE task SET status = ?, message = ?, version = ?, updated_at = ?, ttl_ms = ?, expires_at = ?, cancel_requested = ?,
                result = ?, error = ?
WHERE seq = ? AND status NOT IN ('completed', 'failed', 'cancelled')"""

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

# index: task's primary key, then tombstone's
TOMBSTONE_INSERT: Final = """
INSERT INTO tombstone (id, tenant, principal, until)
SELECT id, tenant, principal, ? FROM task WHERE seq IN (SELECT value FROM json_each(?))"""

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
RUN_INSERT: Final = "INSERT INTO run (task_seq, handler, due_at, max_attempts) VALUES (?, ?, ?, ?)"

# index: run's primary key. A released run keeps its last fence, but nobody holds it: both halves of the test are
# needed.
RUN_HELD: Final = "SELECT 1 FROM run WHERE task_seq = ? AND fence = ? AND session IS NOT NULL"

# index: run's primary key
RUN_IS_HELD: Final = "SELECT 1 FROM run WHERE task_seq = ? AND session IS NOT NULL"

# index: run_due
RUN_ANY_DUE: Final = """
SELECT 1 FROM run WHERE handler = ? AND session IS NULL AND due_at IS NOT NULL AND due_at <= ? LIMIT 1"""

# index: run_due. due_at comes along because RETURNING promises no order.
RUN_CLAIM: Final = """
UPDATE run SET session = ?, fence = ?
WHERE task_seq IN (
    SELECT task_seq FROM run
    WHERE handler = ? AND session IS NULL AND due_at IS NOT NULL AND due_at <= ?
    ORDER BY due_at, task_seq LIMIT ?)
RETURNING due_at, task_seq, attempt"""

# index: run's primary key
RUN_FREE: Final = "UPDATE run SET session = NULL, due_at = ?, attempt = ? WHERE task_seq = ?"

# index: run's primary key
RUN_RELEASE: Final = "UPDATE run SET session = NULL, due_at = ? WHERE task_seq = ?"

# index: run's primary key
RUN_PARK: Final = "UPDATE run SET session = NULL, due_at = NULL WHERE task_seq = ?"

# index: run's primary key
RUN_DELETE: Final = "DELETE FROM run WHERE task_seq = ?"

# index: run_held. Sorts: the runs of the dead, so that tasks come in one order everywhere.
RUN_OF_SESSIONS: Final = """
SELECT task_seq, attempt, max_attempts FROM run
WHERE session IS NOT NULL AND session IN (SELECT value FROM json_each(?)) ORDER BY task_seq"""

# index: run_held, then task's primary key
RUN_CANCELLED: Final = """
SELECT task_seq FROM run JOIN task ON task.seq = run.task_seq
WHERE session IS NOT NULL AND session = ? AND cancel_requested = 1"""

# index: counter's primary key
FENCE_NEXT: Final = "UPDATE counter SET value = value + 1 WHERE name = 'fence' RETURNING value"

# -- session -----------------------------------------------------------------------------------------------------------

# index: session's primary key
SESSION_INSERT: Final = "INSERT INTO session (id, expires_at, info) VALUES (?, ?, ?)"

# index: session's primary key
SESSION_RENEW: Final = "UPDATE session SET expires_at = ? WHERE id = ?"

# index: session's primary key
SESSION_ALIVE: Final = "SELECT 1 FROM session WHERE id = ? AND expires_at > ?"

# scans: one row per worker process
SESSION_ALL: Final = "SELECT id, expires_at, info FROM session ORDER BY id"

# scans: one row per worker process
SESSION_DELETE_DEAD: Final = """
DELETE FROM session WHERE (expires_at <= ? OR id IN (SELECT value FROM json_each(?))) AND id <> ? RETURNING id"""

# index: session's primary key
SESSION_DELETE: Final = "DELETE FROM session WHERE id = ?"

# -- input -------------------------------------------------------------------------------------------------------------

# index: input's primary key. Sorts: one task's questions.
INPUT_JOURNAL: Final = """
SELECT key, request, issued_at, state, response FROM input WHERE task_seq = ? ORDER BY position"""

# index: input's primary key
INPUT_INSERT: Final = """
INSERT INTO input (task_seq, key, position, request, state, issued_at) VALUES (?, ?, ?, ?, 'outstanding', ?)"""

# index: input's primary key. First answer wins: the guard holds even where the reader's view was old.
INPUT_ANSWER: Final = """
UPDATE input SET state = 'answered', response = ? WHERE task_seq = ? AND key = ? AND state = 'outstanding'"""

# index: input's primary key
INPUT_DELETE: Final = "DELETE FROM input WHERE task_seq IN (SELECT value FROM json_each(?))"
