-- Where the tasks of a gateway lie: from the id that a client knows to a backend and its own id. expires_at: when the
-- task's ttl runs out, NULL where it is unlimited. ended_at: when it was first known to be over.
CREATE TABLE perdure.route (
    id              text   COLLATE "C" PRIMARY KEY,
    tenant          text   COLLATE "C" NOT NULL,
    principal       text   COLLATE "C" NOT NULL,
    backend         text   COLLATE "C" NOT NULL,
    backend_task_id text   COLLATE "C" NOT NULL,
    created_at      bigint NOT NULL,
    expires_at      bigint,
    ended_at        bigint
);

-- One task of a backend has one route, and one owner.
CREATE UNIQUE INDEX route_behind ON perdure.route (backend, backend_task_id);

-- What is to be purged, by when it was over. Those of which that is not known yet have no entry here.
CREATE INDEX route_over ON perdure.route (coalesce(expires_at, ended_at), id)
    WHERE coalesce(expires_at, ended_at) IS NOT NULL;

-- As with tasks: a share of the table that pays off early on would let millions of dead rows gather.
ALTER TABLE perdure.route SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);
