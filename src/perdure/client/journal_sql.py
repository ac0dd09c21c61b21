"""The journal's tables and statements, one constant for each verb of `journal`.

Each finds its rows by a number or by one of the two UNIQUE indexes, but for those that say something else.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x50455243  # "PERC"
VERSION: Final = 2

MARK: Final = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"

TABLES: Final = """
CREATE TABLE IF NOT EXISTS call (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never again, or the next call would have the answers of the last
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT,
    arguments TEXT,         -- as JSON, until the handle is known
    digest TEXT,            -- of the arguments; none of a handle that came without a call of ours
    status TEXT,            -- the terminal one, once it was seen
    begun_at REAL NOT NULL,
    settled_at REAL,
    holder TEXT NOT NULL,   -- who makes it, until the handle is known; empty: nobody
    UNIQUE (server, key),
    UNIQUE (server, task_id)
) STRICT;
CREATE INDEX IF NOT EXISTS call_settled ON call (settled_at) WHERE settled_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS question (
    call INTEGER NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('asking', 'recorded', 'sent')),
    response TEXT,          -- as JSON, from 'recorded' on; none of one that an earlier release has sent
    holder TEXT,            -- who asks
    PRIMARY KEY (call, key)
) STRICT, WITHOUT ROWID;
"""

_RECORD: Final = "SELECT number, server, tool, key, task_id, arguments, status, begun_at, holder FROM call "

INTEND: Final = """
INSERT INTO call (server, tool, key, arguments, digest, begun_at, holder) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""

DIGEST: Final = "SELECT tool, digest FROM call WHERE number = ?"

TAKE: Final = "UPDATE call SET holder = ? WHERE number = ? AND holder = ? AND task_id IS NULL"

LET_GO: Final = "UPDATE call SET holder = '' WHERE number = ? AND holder = ? AND task_id IS NULL"

OTHER: Final = "SELECT 1 FROM call WHERE server = ? AND task_id = ? AND number <> ?"

HANDLE: Final = "UPDATE call SET task_id = ?, arguments = NULL WHERE number = ?"

ADOPT: Final = """
INSERT INTO call (server, tool, key, task_id, begun_at, holder) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

SETTLE: Final = "UPDATE call SET status = ?, settled_at = ? WHERE number = ?"

BY_TASK: Final = _RECORD + "WHERE server = ? AND task_id = ?"

BY_NUMBER: Final = _RECORD + "WHERE number = ?"

BY_KEY: Final = _RECORD + "WHERE server = ? AND key = ?"

RECORDS: Final = _RECORD + "ORDER BY number"
"""The whole table."""

RECORDS_OF: Final = _RECORD + "WHERE server = ? ORDER BY number"

FORGET: Final = "DELETE FROM call WHERE number = ?"

FORGET_ANSWERS: Final = "DELETE FROM question WHERE call = ?"

FORGET_ANSWER: Final = "DELETE FROM question WHERE call = ? AND key = ?"

PRUNE: Final = "DELETE FROM call WHERE settled_at < ? AND (status <> 'lost' OR settled_at < ?)"
"""By `call_settled`."""

LOSE: Final = """
UPDATE call SET status = 'lost', settled_at = ? WHERE number = ? AND (status IS NULL OR status = 'lost')
"""

EXPIRE: Final = "UPDATE call SET status = 'expired' WHERE number = ?"

REGAIN: Final = "UPDATE call SET status = NULL, settled_at = NULL WHERE number = ? AND status = 'lost'"

FORGET_DEAD: Final = "DELETE FROM call WHERE number = ? AND status IN ('lost', 'expired')"

PRUNE_ANSWERS: Final = """
DELETE FROM question WHERE call NOT IN (SELECT number FROM call WHERE status IS NULL OR status = 'lost')
"""
"""Both tables, once for each time the journal is opened: what was answered after its call was over or forgotten."""

QUESTION: Final = "SELECT state, response, holder FROM question WHERE call = ? AND key = ?"

LIKE: Final = "SELECT key FROM question WHERE call = ? AND key GLOB ? AND state = 'recorded' ORDER BY key DESC LIMIT 1"

CARRY: Final = "UPDATE OR IGNORE question SET key = ? WHERE call = ? AND key = ?"

CLAIM: Final = """
INSERT INTO question (call, key, state, holder) VALUES (?, ?, 'asking', ?)
ON CONFLICT DO UPDATE SET holder = excluded.holder WHERE state = 'asking'
"""

RELEASE: Final = "DELETE FROM question WHERE call = ? AND key = ? AND state = 'asking' AND holder = ?"

ANSWER: Final = """
INSERT INTO question (call, key, state, response) VALUES (?, ?, 'recorded', ?)
ON CONFLICT DO UPDATE SET state = 'recorded', response = excluded.response, holder = NULL WHERE state = 'asking'
"""

SENT: Final = "UPDATE question SET state = 'sent' WHERE call = ? AND key = ?"

ERASE: Final = "UPDATE question SET response = NULL WHERE call = ? AND key = ? AND state = 'sent'"

REFUSED: Final = "DELETE FROM question WHERE call = ? AND key = ? AND state = 'recorded'"
