"""The statements of gateways, about routes.

As in `sql`, each with its index, batches as arrays, and `$1` for a test's clock; the same test reads both. Whoever
changes routes takes several of them in the order of their ids, and lays them in the order of where they lead, so that
nobody ever waits in a circle.
"""

from __future__ import annotations

from typing import Final

from perdure.domain import routing
from perdure.store import route_rows

_ROUTE: Final = route_rows.COLUMNS
_CLOCK: Final = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_NOW: Final = f"(SELECT {_CLOCK})"
# Written as the index has it.
_OVER: Final = "greatest(expires_at, ended_at)"

# index: route's indexes. What stands there already, under the id or behind it, is let pass and looked for afterwards.
ROUTE_LAY: Final = f"""
INSERT INTO perdure.route (id, tenant, principal, backend, backend_task_id, created_at, expires_at, doubtful_at)
SELECT id, tenant, principal, backend, backend_task_id, now, now + ttl_ms, now + coalesce(ttl_ms, {routing.UNHEARD_MS})
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
    WITH ORDINALITY AS given (id, tenant, principal, backend, backend_task_id, ttl_ms, turn),
    (SELECT {_CLOCK} AS now OFFSET 0) AS clock
ORDER BY turn
ON CONFLICT DO NOTHING RETURNING {_ROUTE}"""  # noqa: S608

# index: route_behind, then route_pkey. For each that could not be laid: whether its id stands there, and the route that
# leads where it was to lead.
ROUTE_STANDING: Final = f"""
SELECT taken.id IS NOT NULL AS taken, standing.*
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS wanted (wanted_id, wanted_backend, wanted_task, turn)
LEFT JOIN LATERAL (SELECT id FROM perdure.route WHERE id = wanted_id OFFSET 0) AS taken ON true
LEFT JOIN LATERAL (
    SELECT {_ROUTE} FROM perdure.route
    WHERE backend = wanted_backend AND backend_task_id = wanted_task OFFSET 0) AS standing ON true
ORDER BY turn"""  # noqa: S608

# index: route_pkey. Somebody else's is never fetched: how long that takes would tell of it.
ROUTE_FIND: Final = f"""
SELECT {_ROUTE} FROM perdure.route
WHERE id = ANY($1::text[]) AND EXISTS (
    SELECT FROM unnest($1::text[], $2::text[], $3::text[]) AS sought (sought_id, sought_tenant, sought_principal)
    WHERE sought_id = id AND coalesce(sought_tenant = tenant AND sought_principal = principal, false))"""  # noqa: S608

# index: route_pkey
ROUTE_READ: Final = f"SELECT {_ROUTE} FROM perdure.route WHERE id = ANY($1::text[])"  # noqa: S608

# index: route_pkey. One after the other, in the order that they are given in. The time is taken from outside, after the
# lock on each, as in `sql.LOCK_HELD`.
ROUTE_LOCK: Final = f"""
SELECT {_CLOCK} AS now, locked.* FROM unnest($2::text[]) AS wanted (wanted_id)
CROSS JOIN LATERAL (SELECT {_ROUTE} FROM perdure.route WHERE id = wanted_id FOR UPDATE) AS locked"""  # noqa: S608

# index: route_pkey
ROUTE_UPDATE: Final = """
UPDATE perdure.route AS route SET expires_at = given.expires_at, ended_at = given.ended_at,
                                  doubtful_at = given.doubtful_at
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS given (given_id, expires_at, ended_at, doubtful_at)
WHERE route.id = given_id AND route.id = ANY($1::text[])"""

# index: route_doubtful, then route_pkey. What another gateway is taking is passed over. $3 and $4: how long nobody else
# gets it, without a ttl and with one.
ROUTE_TAKE_DOUBTFUL: Final = f"""
UPDATE perdure.route SET doubtful_at = {_NOW} + CASE WHEN expires_at IS NULL THEN $3::bigint ELSE $4::bigint END
WHERE id = ANY(ARRAY(
    SELECT id FROM perdure.route WHERE doubtful_at <= {_NOW} ORDER BY doubtful_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING {_ROUTE}"""  # noqa: S608

# index: route_over, then route_pkey. A route that another gateway is deleting is passed over.
ROUTE_PURGE: Final = f"""
DELETE FROM perdure.route WHERE id = ANY(ARRAY(
    SELECT id FROM perdure.route WHERE ended_at IS NOT NULL AND {_OVER} <= {_NOW} - $3::bigint
    ORDER BY {_OVER}, id LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id"""  # noqa: S608

# scans: route. It counts them all, and is asked for seldom.
ROUTE_COUNT: Final = "SELECT count(*) FROM perdure.route"
