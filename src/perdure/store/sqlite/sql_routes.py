"""The statements of gateways, about routes.

As in `sql`, each with its index; the same test reads both.
"""

from __future__ import annotations

from typing import Final

from perdure.store import route_rows

_ROUTE: Final = route_rows.COLUMNS
# Written as the index has it.
_OVER: Final = "max(coalesce(expires_at, ended_at), ended_at)"

# index: route's primary key and route_behind. What stands there already is let pass, and looked for afterwards.
ROUTE_INSERT: Final = f"""
INSERT INTO route ({_ROUTE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""  # noqa: S608

# index: route_behind
ROUTE_BEHIND: Final = f"SELECT {_ROUTE} FROM route WHERE backend = ? AND backend_task_id = ?"  # noqa: S608

# index: route's primary key
ROUTE_OWNED: Final = f"SELECT {_ROUTE} FROM route WHERE id = ? AND tenant = ? AND principal = ?"  # noqa: S608

# index: route's primary key
ROUTES_OWNED: Final = f"""
SELECT {_ROUTE} FROM route WHERE id IN (SELECT value FROM json_each(?)) AND tenant = ? AND principal = ?"""  # noqa: S608

# index: route's primary key
ROUTE_BY_ID: Final = f"SELECT {_ROUTE} FROM route WHERE id = ?"  # noqa: S608

# index: route's primary key
ROUTE_UPDATE: Final = "UPDATE route SET expires_at = ?, ended_at = ?, doubtful_at = ? WHERE id = ?"

# index: route_doubtful
ROUTE_DOUBTFUL: Final = "SELECT id FROM route WHERE doubtful_at <= ? ORDER BY doubtful_at, id LIMIT ?"

# index: route's primary key
ROUTE_ASKED: Final = f"""
UPDATE route SET doubtful_at = iif(expires_at IS NULL, ?, ?) WHERE id IN (SELECT value FROM json_each(?))
RETURNING {_ROUTE}"""  # noqa: S608

# index: route_over
ROUTE_OVER: Final = f"""
SELECT id FROM route WHERE ended_at IS NOT NULL AND {_OVER} <= ? ORDER BY {_OVER}, id LIMIT ?"""  # noqa: S608

# index: route's primary key
ROUTE_DELETE: Final = "DELETE FROM route WHERE id IN (SELECT value FROM json_each(?))"

# scans: route. It counts them all, and is asked for seldom.
ROUTE_COUNT: Final = "SELECT count(*) FROM route"
