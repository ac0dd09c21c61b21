-- What clients read. Cold: a finished task lies here until its ttl has run out, and no claim ever looks at it.
-- AUTOINCREMENT: a number is never given again, or a worker that outlived a purged task would take the next one for it.
CREATE TABLE task (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT    NOT NULL UNIQUE,
    tenant           TEXT    NOT NULL,
    principal        TEXT    NOT NULL,
    method           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    params           TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    message          TEXT,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    ttl_ms           INTEGER,
    keep_ms          INTEGER,
    expires_at       INTEGER,
    poll_ms          INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    accepts          TEXT    NOT NULL,
    result           TEXT,
    error            TEXT
) STRICT;

-- Two indexes, so that the tasks that only wait for their purge are never in the way of those that are to be stopped.
CREATE INDEX task_unfinished_expiry ON task (expires_at)
    WHERE expires_at IS NOT NULL AND status IN ('working', 'input_required');
CREATE INDEX task_finished_expiry ON task (expires_at)
    WHERE expires_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled');

-- One row per worker process: THE lease.
CREATE TABLE session (
    id         TEXT    PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    info       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- What may be run or is being run. Hot and narrow: a task that is over has no row here. due_at NULL: parked; long past: at once, in that order.
CREATE TABLE run (
    task_seq     INTEGER PRIMARY KEY,
    handler      TEXT    NOT NULL,
    due_at       INTEGER,
    session      TEXT,
    fence        INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 1,
    max_attempts INTEGER NOT NULL
) STRICT;

CREATE INDEX run_due ON run (handler, due_at) WHERE session IS NULL AND due_at IS NOT NULL;
CREATE INDEX run_held ON run (session) WHERE session IS NOT NULL;

-- Every question a task ever asked. The primary key is what keeps a key from being used again.
CREATE TABLE input (
    task_seq  INTEGER NOT NULL,
    key       TEXT    NOT NULL,
    position  INTEGER NOT NULL,
    request   TEXT    NOT NULL,
    response  TEXT,
    state     TEXT    NOT NULL CHECK (state IN ('outstanding', 'answered', 'superseded')),
    issued_at INTEGER NOT NULL,
    PRIMARY KEY (task_seq, key)
) STRICT, WITHOUT ROWID;

-- What lets an owner, and only the owner, hear that a task has expired.
CREATE TABLE tombstone (
    id        TEXT    PRIMARY KEY,
    tenant    TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    until     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tombstone_until ON tombstone (until);

CREATE TABLE counter (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counter (name, value) VALUES ('fence', 0);
