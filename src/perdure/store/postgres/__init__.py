"""Tasks and routes in PostgreSQL, for many machines. Only here is asyncpg known."""

from .routes import PostgresRoutes
from .store import PostgresStore
from .upgrade import PostgresUpgrade

__all__ = ["PostgresRoutes", "PostgresStore", "PostgresUpgrade"]
