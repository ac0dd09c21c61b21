"""The statements of operators, who look at tasks whoever owns them.

As in `sql`, each with its index; the same test reads both. A list and a count come in parts: first which tasks are
looked at, by their numbers alone, then what these have to tell. So what a part costs does not depend on how few tasks
are meant, and no read keeps the log from being written back for longer than a part takes.
"""

from __future__ import annotations

from typing import Final

from perdure.store import rows

# Those that still sleep, and the steps that wait for their next try: what hastening a run cuts short.
_NAPS: Final = "(verb = 'sleep' AND state = 'started' OR state = 'retrying') AND wake_at > ?"

# index: task's primary key
NEWEST: Final = "SELECT seq FROM task WHERE seq < ? ORDER BY seq DESC LIMIT ?"

# index: run's primary key. A task that is over has no run.
NEWEST_UNFINISHED: Final = "SELECT task_seq FROM run WHERE task_seq < ? ORDER BY task_seq DESC LIMIT ?"

# index: task's primary key, then run's primary key
TASK_LISTED: Final = f"""
SELECT {rows.LISTED} FROM task LEFT JOIN run ON task_seq = seq
WHERE seq IN (SELECT value FROM json_each(?)) AND status IN (SELECT value FROM json_each(?))
  AND name = coalesce(?, name) AND task.tenant = coalesce(?, task.tenant) AND principal = coalesce(?, principal)
  AND created_at <= coalesce(?, created_at) AND created_at > coalesce(?, created_at - 1)
  AND updated_at <= coalesce(?, updated_at)
ORDER BY seq DESC"""  # noqa: S608

# index: sqlite_autoindex_task_1 (id), then run's primary key
TASK_NAMED: Final = f"""
SELECT {rows.LISTED} FROM task LEFT JOIN run ON task_seq = seq WHERE id >= ? AND id < ? ORDER BY id LIMIT ?
"""  # noqa: S608

# index: task's primary key. Sorts: the handlers of a part.
TASK_TALLY: Final = """
SELECT method, name, handler_version, status, count(*), min(created_at) FROM task
WHERE seq IN (SELECT value FROM json_each(?)) GROUP BY method, name, handler_version, status"""

# index: entry's primary key
ENTRY_NAPS: Final = f"SELECT 1 FROM entry WHERE task_seq = ? AND {_NAPS} LIMIT 1"  # noqa: S608

# index: entry's primary key. No value is read, so it needs no keys.
ENTRY_HASTEN: Final = f"UPDATE entry SET wake_at = ? WHERE task_seq = ? AND {_NAPS}"  # noqa: S608

# index: entry's primary key, then input's primary key
PROMISED: Final = """
SELECT wake_at FROM entry WHERE task_seq = ? AND verb = 'external' AND state = 'started' AND wake_at IS NOT NULL
UNION ALL SELECT deadline FROM input WHERE task_seq = ? AND state = 'outstanding' AND deadline IS NOT NULL"""

# index: sqlite_autoindex_task_1 (id)
TASK_DISCARDED: Final = """
SELECT seq FROM task WHERE id IN (SELECT value FROM json_each(?)) AND status IN ('completed', 'failed', 'cancelled')"""
