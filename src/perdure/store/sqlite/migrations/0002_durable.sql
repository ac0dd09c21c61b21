-- Which code began the task, and under which key its owner may call for it again.
ALTER TABLE task ADD COLUMN handler_version TEXT NOT NULL DEFAULT '';
ALTER TABLE task ADD COLUMN idem_key TEXT;
ALTER TABLE task ADD COLUMN idem_digest TEXT;

CREATE UNIQUE INDEX task_idem ON task (tenant, principal, idem_key) WHERE idem_key IS NOT NULL;

-- Where in the code a question was asked, until when it stays open, and whether the run waits for it.
ALTER TABLE input ADD COLUMN place TEXT;
ALTER TABLE input ADD COLUMN deadline INTEGER;
ALTER TABLE input ADD COLUMN awaited INTEGER NOT NULL DEFAULT 1;

-- What the code of a task has done so far: the journal. value: JSON; it grows as large as one result may.
CREATE TABLE entry (
    task_seq INTEGER NOT NULL,
    place    TEXT    NOT NULL,
    verb     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    state    TEXT    NOT NULL CHECK (state IN ('started', 'retrying', 'done', 'failed')),
    value    TEXT    NOT NULL,
    wake_at  INTEGER,
    PRIMARY KEY (task_seq, place)
) STRICT, WITHOUT ROWID;

-- What was out of the ordinary, for operators: the newest few of each task.
CREATE TABLE event (
    task_seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    detail   TEXT    NOT NULL,
    PRIMARY KEY (task_seq, position)
) STRICT, WITHOUT ROWID;

-- As before, and narrow still. due_at below zero: at once, in that order; from zero: a timer, at that instant; NULL:
-- waits for somebody. deadline_at: when the one who holds it should have ended it; NULL while nobody does.
-- minds_cancel: its code wants to hear of a cancellation.
CREATE TABLE run_2 (
    task_seq     INTEGER PRIMARY KEY,
    handler      TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    due_at       INTEGER,
    session      TEXT,
    fence        INTEGER NOT NULL DEFAULT 0,
    failures     INTEGER NOT NULL DEFAULT 0,
    deaths       INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    timeout_ms   INTEGER,
    deadline_at  INTEGER,
    minds_cancel INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO run_2 (task_seq, handler, tenant, due_at, session, fence, deaths, max_attempts)
SELECT task_seq, handler, tenant, due_at, session, fence, attempt - 1, max_attempts FROM run JOIN task ON task.seq = run.task_seq;

DROP TABLE run;

ALTER TABLE run_2 RENAME TO run;

-- The first finds the tenants that wait for a handler, each with the run that has waited longest; the second what is due,
-- whoever's it is.
CREATE INDEX run_ready ON run (handler, tenant, due_at) WHERE session IS NULL AND due_at < 0;
CREATE INDEX run_timer ON run (due_at) WHERE session IS NULL AND due_at >= 0;
CREATE INDEX run_held ON run (session) WHERE session IS NOT NULL;
CREATE INDEX run_deadline ON run (deadline_at) WHERE deadline_at IS NOT NULL;
