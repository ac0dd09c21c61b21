-- Where the tasks of a gateway lie: from the id that a client knows to a backend and its own id. expires_at: when the
-- task's ttl runs out, NULL where it is unlimited. ended_at: when it was first known to be over. doubtful_at: from when
-- on its backend has to be asked whether it is, NULL once that is known.
CREATE TABLE perdure.route (
    id              text   COLLATE "C" PRIMARY KEY,
    tenant          text   COLLATE "C" NOT NULL,
    principal       text   COLLATE "C" NOT NULL,
    backend         text   COLLATE "C" NOT NULL,
    backend_task_id text   COLLATE "C" NOT NULL,
    created_at      bigint NOT NULL,
    expires_at      bigint,
    ended_at        bigint,
    doubtful_at     bigint
);

-- One task of a backend has one route, and one owner.
CREATE UNIQUE INDEX route_behind ON perdure.route (backend, backend_task_id);

-- What is to be purged, by when it was over. Those of which that is not known yet are in the other one.
CREATE INDEX route_over ON perdure.route (greatest(expires_at, ended_at), id) WHERE ended_at IS NOT NULL;
CREATE INDEX route_doubtful ON perdure.route (doubtful_at, id) WHERE doubtful_at IS NOT NULL;

-- As with tasks: a share of the table that pays off early on would let millions of dead rows gather.
ALTER TABLE perdure.route SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);
