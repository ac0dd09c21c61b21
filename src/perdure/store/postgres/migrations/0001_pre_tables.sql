-- Everything lies in a schema of its own, and statements name it: a search path is a setting of a session, which a
-- connection pooler in transaction mode does not keep. Texts are compared by their bytes, as every other store does.
CREATE TABLE perdure.task (
    seq              bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id               text    COLLATE "C" NOT NULL UNIQUE,
    tenant           text    COLLATE "C" NOT NULL,
    principal        text    COLLATE "C" NOT NULL,
    method           text    NOT NULL,
    name             text    NOT NULL,
    params           text    NOT NULL,
    handler_version  text    NOT NULL,
    status           text    NOT NULL CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    message          text,
    version          bigint  NOT NULL,
    created_at       bigint  NOT NULL,
    updated_at       bigint  NOT NULL,
    ttl_ms           bigint,
    keep_ms          bigint,
    expires_at       bigint,
    poll_ms          bigint,
    cancel_requested boolean NOT NULL DEFAULT false,
    accepts          text    NOT NULL,
    result           text,
    error            text,
    idem_key         text    COLLATE "C",
    idem_digest      text
);

-- What clients ask for by its key is asked for by its owner.
CREATE UNIQUE INDEX task_idem ON perdure.task (tenant, principal, idem_key) WHERE idem_key IS NOT NULL;

-- Two indexes, so that the tasks that only wait for their purge are never in the way of those that are to be stopped.
CREATE INDEX task_unfinished_expiry ON perdure.task (expires_at, seq)
    WHERE expires_at IS NOT NULL AND status IN ('working', 'input_required');
CREATE INDEX task_finished_expiry ON perdure.task (expires_at, seq)
    WHERE expires_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled');

-- One row per worker process: THE lease.
CREATE TABLE perdure.session (
    id         text   COLLATE "C" PRIMARY KEY,
    expires_at bigint NOT NULL,
    info       text   NOT NULL
);

-- What may be run or is being run. Hot and narrow: a task that is over has no row here. due_at below zero: at once, in
-- that order; from zero: a timer, at that instant; NULL: waits for somebody. deadline_at: when the one who holds it
-- should have ended it; NULL while nobody does. minds_cancel: its code wants to hear of a cancellation.
CREATE TABLE perdure.run (
    task_seq     bigint  PRIMARY KEY,
    handler      text    COLLATE "C" NOT NULL,
    tenant       text    COLLATE "C" NOT NULL,
    due_at       bigint,
    session      text    COLLATE "C",
    fence        bigint  NOT NULL DEFAULT 0,
    failures     integer NOT NULL DEFAULT 0,
    deaths       integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    timeout_ms   bigint,
    deadline_at  bigint,
    minds_cancel boolean NOT NULL DEFAULT false
);

-- The first finds the tenants that wait for a handler, each with the run that has waited longest; the second what is due,
-- whoever's it is.
CREATE INDEX run_ready ON perdure.run (handler, tenant, due_at, task_seq) WHERE session IS NULL AND due_at < 0;
CREATE INDEX run_timer ON perdure.run (due_at, task_seq) WHERE session IS NULL AND due_at >= 0;
CREATE INDEX run_held ON perdure.run (session) WHERE session IS NOT NULL;
CREATE INDEX run_deadline ON perdure.run (deadline_at, task_seq) WHERE deadline_at IS NOT NULL;

-- Only grows, so that a claim made later has the larger fence.
CREATE SEQUENCE perdure.fence;

-- Every question a task ever asked. The primary key is what keeps a key from being used again.
CREATE TABLE perdure.input (
    task_seq  bigint  NOT NULL,
    key       text    COLLATE "C" NOT NULL,
    position  integer NOT NULL,
    request   text    NOT NULL,
    response  text,
    state     text    NOT NULL CHECK (state IN ('outstanding', 'answered', 'superseded')),
    issued_at bigint  NOT NULL,
    place     text    COLLATE "C",
    deadline  bigint,
    awaited   boolean NOT NULL DEFAULT true,
    PRIMARY KEY (task_seq, key)
);

-- What the code of a task has done so far: the journal. value: JSON; it grows as large as one result may.
CREATE TABLE perdure.entry (
    task_seq bigint NOT NULL,
    place    text   COLLATE "C" NOT NULL,
    verb     text   NOT NULL,
    name     text   NOT NULL,
    state    text   NOT NULL CHECK (state IN ('started', 'retrying', 'done', 'failed')),
    value    text   NOT NULL,
    wake_at  bigint,
    PRIMARY KEY (task_seq, place)
);

-- What was out of the ordinary, for operators: the newest few of each task.
CREATE TABLE perdure.event (
    task_seq bigint  NOT NULL,
    position integer NOT NULL,
    at       bigint  NOT NULL,
    kind     text    NOT NULL,
    detail   text    NOT NULL,
    PRIMARY KEY (task_seq, position)
);

-- What lets an owner, and only the owner, hear that a task has expired.
CREATE TABLE perdure.tombstone (
    id        text   COLLATE "C" PRIMARY KEY,
    tenant    text   COLLATE "C" NOT NULL,
    principal text   COLLATE "C" NOT NULL,
    until     bigint NOT NULL
);

CREATE INDEX tombstone_until ON perdure.tombstone (until);

-- A row of `run` is written three times in its short life, and whoever looks at all that is ready walks over what is
-- left of the others. So these are cleaned up after so many dead rows, whatever the tables' size is, and without pauses.
ALTER TABLE perdure.run SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE perdure.session SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0
);
-- Each task is written twice, so a share of the table that pays off early on would let millions of dead rows gather.
ALTER TABLE perdure.task SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.02
);
ALTER TABLE perdure.entry SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE perdure.input SET (autovacuum_vacuum_scale_factor = 0.02);
