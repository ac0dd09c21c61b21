-- Where the tasks of a gateway lie: from the id that a client knows to a backend and its own id. expires_at: when the
-- task's ttl runs out, NULL where it is unlimited. ended_at: when it was first known to be over. doubtful_at: from when
-- on its backend has to be asked whether it is, NULL once that is known.
CREATE TABLE route (
    id              TEXT    PRIMARY KEY,
    tenant          TEXT    NOT NULL,
    principal       TEXT    NOT NULL,
    backend         TEXT    NOT NULL,
    backend_task_id TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    ended_at        INTEGER,
    doubtful_at     INTEGER
) STRICT, WITHOUT ROWID;

-- One task of a backend has one route, and one owner.
CREATE UNIQUE INDEX route_behind ON route (backend, backend_task_id);

-- What is to be purged, by when it was over. Those of which that is not known yet are in the other one.
CREATE INDEX route_over ON route (max(coalesce(expires_at, ended_at), ended_at), id) WHERE ended_at IS NOT NULL;
CREATE INDEX route_doubtful ON route (doubtful_at, id) WHERE doubtful_at IS NOT NULL;
