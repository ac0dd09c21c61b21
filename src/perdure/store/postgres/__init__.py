"""Tasks in PostgreSQL, for many machines. Only here is asyncpg known."""

from .store import PostgresStore
from .upgrade import PostgresUpgrade

__all__ = ["PostgresStore", "PostgresUpgrade"]
