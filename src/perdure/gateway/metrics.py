"""What a gateway counts, per backend, and how that is written down: the text format that Prometheus reads.

Names of methods are counted only where the gateway knows them, and backends only by the names of the configuration: a
client can't make a series of its own. Nothing that tells who asked is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from .backends import Backend
from .upstream import Upstream

__all__ = ["Metrics", "exposition"]

_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""
_NOBODY: Final = "none"
"""What was answered without any backend: lists, and what was refused."""
_POSITIONS: Final = ("closed", "half-open", "open")


_GAUGES: Final[Sequence[tuple[str, str, Callable[[Upstream], int]]]] = (
    ("calls", "Requests that a backend has to deal with.", lambda it: it.calls.line.inside),
    ("waiting", "Requests that wait for their turn.", lambda it: it.calls.line.waiting),
    ("streams", "Streams that are open to a backend.", lambda it: it.streams.line.inside),
)


@dataclass(slots=True)
class _Durations:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    total: float = 0.0


class Metrics:
    """Counts requests. `methods`: those that are told apart."""

    def __init__(self, methods: Iterable[str]) -> None:
        self._methods = frozenset(methods)
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._durations: defaultdict[tuple[str, str], _Durations] = defaultdict(_Durations)

    def note(self, backend: str | None, method: str, outcome: str, seconds: float) -> None:
        """One request is over. `outcome`: ok, error (of the backend), gateway (an error of its own) or gone."""
        where, what = backend or _NOBODY, method if method in self._methods else "other"
        self._requests[where, what, outcome] += 1
        durations = self._durations[where, what]
        durations.buckets[bisect_left(_BOUNDS, seconds)] += 1
        durations.total += seconds

    def lines(self) -> Iterator[str]:
        """The series, in an order that does not change."""
        yield from _head("perdure_gateway_requests_total", "counter", "Requests that are over.")
        for (backend, method, outcome), count in sorted(self._requests.items()):
            labels = f'backend="{backend}",method="{method}",outcome="{outcome}"'
            yield f"perdure_gateway_requests_total{{{labels}}} {count}"
        name = "perdure_gateway_request_seconds"
        yield from _head(name, "histogram", "Seconds from a request to the end of its response.")
        for (backend, method), durations in sorted(self._durations.items()):
            labels, so_far = f'backend="{backend}",method="{method}"', 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), durations.buckets, strict=True):
                so_far += count
                yield f'{name}_bucket{{{labels},le="{bound}"}} {so_far}'
            yield f"{name}_sum{{{labels}}} {durations.total:.6f}"
            yield f"{name}_count{{{labels}}} {so_far}"


def exposition(metrics: Metrics, backends: Iterable[Backend], in_flight: int, streams: int) -> str:
    """All that is counted, and how everything stands just now."""
    each = [*backends]
    lines = [*metrics.lines()]
    for name, told, value in _GAUGES:
        lines += _head(f"perdure_gateway_backend_{name}", "gauge", told)
        lines += [f'perdure_gateway_backend_{name}{{backend="{one.name}"}} {value(one.upstream)}' for one in each]
    lines += _head("perdure_gateway_backend_breaker", "gauge", "1 for the position that a backend's breaker has.")
    for one in each:
        for position in _POSITIONS:
            is_it = int(one.upstream.breaker.position.value == position)
            lines.append(f'perdure_gateway_backend_breaker{{backend="{one.name}",position="{position}"}} {is_it}')
    for name, told, count in (
        ("in_flight", "Requests that are under way.", in_flight),
        ("subscriptions", "Streams that clients listen to.", streams),
    ):
        lines += [*_head(f"perdure_gateway_{name}", "gauge", told), f"perdure_gateway_{name} {count}"]
    return "\n".join([*lines, ""])


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"
