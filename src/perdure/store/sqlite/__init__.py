"""The embedded store: one SQLite file, shared by any number of processes of one machine.

`writer` commits many callers' operations in one transaction, `operations` are the verbs as they run inside it, `sql`
holds every statement, `schema` opens and migrates the file, and `store` puts them together. Nothing else in the house
imports `sqlite3`.
"""

from .store import SQLiteStore

__all__ = ["SQLiteStore"]
