"""The embedded store: one SQLite file, shared by any number of processes of one machine.

`writer` commits many callers' operations in one transaction. The verbs as they run inside it are in one file for each
kind of caller: `clients`, `claims` and `workers`, `outsiders`, `operators`, `housekeeping`; what they share is in
`shared`. `sql` holds every statement, `rows` reads and fills them, `schema` migrates the file, `file` has it
open, and `store` puts all of it together. `routes` is what a gateway keeps in the same file. Nothing else in the house
imports `sqlite3`.
"""

from .routes import SQLiteRoutes
from .store import SQLiteStore

__all__ = ["SQLiteRoutes", "SQLiteStore"]
