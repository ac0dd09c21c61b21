"""The reference model: every verb in its plainest form, over dictionaries.

The oracle of the property tests, and a store for unit tests. Nothing in it is durable and one process is all it serves,
so it is not for production. What a reader should look for here is the meaning of a verb; the backends may only be
faster.
"""

from .routes import MemoryRoutes
from .store import MemoryStore

__all__ = ["MemoryRoutes", "MemoryStore"]
