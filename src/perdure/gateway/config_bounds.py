"""How a backend that is in trouble is treated, as the file says it: breaker, retries and health checks."""

from __future__ import annotations

from .breaker import BreakerBounds
from .config_tables import Table
from .health import HealthBounds
from .retrying import Safe

__all__ = ["breaker", "health", "retry"]


def breaker(table: Table) -> BreakerBounds:
    """When a backend is left alone, and for how long."""
    default = BreakerBounds()
    found = BreakerBounds(
        failures=table.count("failures", default.failures),
        part=table.part("part", default.part),
        window=table.seconds("window", default.window),
        pause=table.seconds("pause", default.pause),
        longest=table.seconds("longest", default.longest),
    )
    if found.longest < found.pause:
        table.wrong("longest", "is shorter than `pause`")
    table.end()
    return found


def retry(table: Table) -> Safe:
    """How often what is safe is sent, and after which pauses."""
    default = Safe()
    found = Safe(
        tries=table.count("tries", default.tries),
        first=table.seconds("first", default.first),
        longest=table.seconds("longest", default.longest),
    )
    if found.longest < found.first:
        table.wrong("longest", "is shorter than `first`")
    table.end()
    return found


def health(table: Table) -> HealthBounds:
    """How often a backend is asked how it is."""
    default = HealthBounds()
    found = HealthBounds(
        every=table.seconds("every", default.every),
        within=table.seconds("within", default.within),
        failures=table.count("failures", default.failures),
    )
    table.end()
    return found
